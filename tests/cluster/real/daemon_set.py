"""The package's DaemonSet on one node: the agent in its pod, as the cluster runs it.

Of `packaging/kustomize/daemonset.yaml` everything is kept that an overlay of a user's would keep:
the name of the image, the node and the way to the API server are its own, as there is no registry,
another node and no service network here.
"""

import json
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any, Self

from tests.cluster.real import manifests
from tests.cluster.real.agent_image import IMAGE
from tests.cluster.real.agents import TROUBLE
from tests.cluster.real.client import Client, Late, Object
from tests.cluster.real.control_plane import LOOPBACK, ControlPlane
from tests.cluster.real.node import Node
from tests.cluster.real.objects import collection
from tests.cluster.real.polling import poll

CONTAINER = "agent"

READY_SECONDS = 60.0
"""Bound for its pod to be ready, and for what the agent does then. On two free cores it takes some
seconds, most of them Python's start."""

EXEC_SECONDS = 30.0

RUNC_ROOT = "/run/containerd/runc/k8s.io"
"""Where containerd has runc keep the containers of pods."""


class DaemonSet:
    """The DaemonSet, and all else of the package. Use as a context manager.

    Args:
        control_plane: where it is.
        node: the only one that it is for.
        places: other directories of the node for some of its volumes, by the volume's name.

    Attributes:
        pod: the name of its pod.
    """

    def __init__(
        self, control_plane: ControlPlane, node: Node, places: Mapping[str, str] | None = None
    ) -> None:
        self.pod = ""
        self._client: Client = control_plane.client
        self._node = node
        [self._body] = manifests.read("daemonset.yaml")
        spec = self._body["spec"]["template"]["spec"]
        spec["nodeSelector"]["kubernetes.io/hostname"] = node.name
        [container] = spec["containers"]
        container["image"] = IMAGE
        container["env"] += [
            {"name": "KUBERNETES_SERVICE_HOST", "value": LOOPBACK},
            {"name": "KUBERNETES_SERVICE_PORT", "value": str(control_plane.port)},
            {"name": "LIKEN_EVENTS_LOG_LEVEL", "value": "debug"},
        ]
        for volume in spec["volumes"]:
            if volume["name"] in (places or {}):
                volume["hostPath"]["path"] = (places or {})[volume["name"]]
        self._path = f"{collection(self._body, manifests.NAMESPACE)}/liken-events"
        self._pods = f"/api/v1/namespaces/{manifests.NAMESPACE}/pods"

    def __enter__(self) -> Self:
        for name in ("namespace.yaml", "access.yaml", "admission.yaml"):
            manifests.apply(self._client, name)
        self._client.patch(self._path, self._body, kind="apply")
        try:
            self._client.until(
                self._path, lambda it: it["status"].get("numberReady") == 1, seconds=READY_SECONDS
            )
        except Late as late:
            raise Late(f"{late}\n{json.dumps(self._list())}\n{self.log_end()}") from None
        [pod] = self._list()
        self.pod = pod["metadata"]["name"]
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Takes it away, and waits until its pod has ended."""
        self._client.delete(self._path)
        assert poll(lambda: not self._list(), READY_SECONDS), self._list()

    @property
    def log(self) -> list[dict[str, Any]]:
        """What the agent logged so far; of a pod that is gone, nothing."""
        text = self._node.pod_log(manifests.NAMESPACE, self.pod, CONTAINER)
        return [json.loads(line) for line in text.splitlines(keepends=True) if line[-2:] == "}\n"]

    @property
    def troubles(self) -> list[dict[str, Any]]:
        """The warnings and errors."""
        return [line for line in self.log if line["level"] in TROUBLE]

    def log_end(self) -> str:
        """All that its pods printed, whatever it is."""
        return "\n".join(
            self._node.pod_log(manifests.NAMESPACE, pod["metadata"]["name"], CONTAINER)
            for pod in self._list()
        )

    def until_logged(self, event: str) -> dict[str, Any]:
        """Waits until the agent has logged an event; returns the first line of it."""

        def lines() -> list[dict[str, Any]]:
            return [line for line in self.log if line["event"] == event]

        self._until(lines, event)
        return lines()[0]

    def status(self) -> Object:
        """The status of its container."""
        found: Object = self._client.get(f"{self._pods}/{self.pod}")["status"]
        [container] = found["containerStatuses"]
        status: Object = container
        return status

    def run_inside(self, script: str) -> Any:
        """Runs Python in its container, with the container's rights; returns the JSON that it
        printed."""
        container = self.status()["containerID"].rpartition("/")[2]
        python = ("/opt/liken-events/bin/python", "-c", script)
        ran = self._node.room.start(
            f"exec-{container[:12]}",
            ["runc", "--root", RUNC_ROOT, "exec", container, *python],
            {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin"},
        )
        ran.wait(seconds=EXEC_SECONDS)
        return json.loads(ran.log_end())

    def _until(self, condition: Callable[[], object], what: str) -> None:
        assert poll(condition, READY_SECONDS), f"no {what} in\n{self.log_end()}"

    def _list(self) -> list[Object]:
        return self._client.items(self._pods, labelSelector="app.kubernetes.io/name=liken-events")
