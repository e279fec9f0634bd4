"""Which home of slices is meant, from the environment alone.

The kubelet gives every container the address of the API server in two variables. A person names a
kubeconfig in `KUBECONFIG`. A machine without either has no cluster.

This file reads these variables and nothing else, so that a machine without a cluster never loads
the client library. Whether the configuration is any good is found out by `cluster.kubernetes`.
"""

from collections.abc import Mapping


def in_cluster(environ: Mapping[str, str]) -> bool:
    """Whether this is a container of a pod.

    A pod without a token (`automountServiceAccountToken: false`) counts too: that is a mistake to
    be told of, and not a machine without a cluster.
    """
    return bool(environ.get("KUBERNETES_SERVICE_HOST") and environ.get("KUBERNETES_SERVICE_PORT"))


def kubeconfig(environ: Mapping[str, str]) -> str | None:
    """What `KUBECONFIG` says, one path or several with `:` between; None if it says nothing."""
    return environ.get("KUBECONFIG", "").strip() or None
