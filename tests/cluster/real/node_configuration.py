"""What a kubelet and a container runtime of these tests are told, wherever they run."""

from typing import Any

from tests.cluster.real.credentials import Credentials
from tests.cluster.real.images import PAUSE

SOCKET = "/run/containerd/containerd.sock"

RUNTIME = """\
version = 3
root = "/var/lib/containerd"
state = "/run/containerd"
[grpc]
  address = "{socket}"
[plugins.'io.containerd.cri.v1.images']
  snapshotter = "overlayfs"
  [plugins.'io.containerd.cri.v1.images'.pinned_images]
    sandbox = "{pause}"
[plugins.'io.containerd.cri.v1.runtime']
  cdi_spec_dirs = ["/etc/cdi", "/var/run/cdi"]
  # Without CAP_SYS_RESOURCE, as in many sandboxes, runc may not lower it, and dies.
  restrict_oom_score_adj = true
  [plugins.'io.containerd.cri.v1.runtime'.containerd]
    default_runtime_name = "runc"
    [plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
      [plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc.options]
        BinaryName = "{runc}"
        SystemdCgroup = false
  [plugins.'io.containerd.cri.v1.runtime'.cni]
    bin_dirs = ["/usr/lib/cni"]
    conf_dir = "/etc/cni/net.d"
"""
"""Debian's crun (1.8.1) is no choice: it refuses the specification's version of containerd 2."""

NETWORK = {"cniVersion": "1.0.0", "name": "pod", "plugins": [{"type": "loopback"}]}
"""A node without any is never ready. Pods are to use the machine's network."""

NETWORK_FILE = "/etc/cni/net.d/10-pod.conflist"


def runtime_configuration(runc: str) -> str:
    """The file of containerd.

    Args:
        runc: the program's path.
    """
    return RUNTIME.format(socket=SOCKET, pause=PAUSE, runc=runc)


def kubelet_configuration(files: Credentials) -> dict[str, Any]:
    """What the file of a kubelet says, but for its addresses and ports.

    Args:
        files: the certificate that it serves with.
    """
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "tlsCertFile": files.certificate,
        "tlsPrivateKeyFile": files.key,
        "authentication": {"anonymous": {"enabled": True}, "webhook": {"enabled": False}},
        "authorization": {"mode": "AlwaysAllow"},
        "cgroupDriver": "cgroupfs",
        "failCgroupV1": False,  # many machines have it still
        "containerRuntimeEndpoint": f"unix://{SOCKET}",
        "failSwapOn": False,
        "makeIPTablesUtilChains": False,  # they would be the machine's
        "imageMinimumGCAge": "24h",
        "imageGCHighThresholdPercent": 100,  # never remove what was imported
        "evictionHard": {
            "memory.available": "50Mi",
            "nodefs.available": "1%",
            "imagefs.available": "1%",
        },
        "resolvConf": "",
        "nodeStatusUpdateFrequency": "5s",  # bounds how late a change of capacity shows
        "syncFrequency": "10s",  # bounds how late a pod that failed is tried again
        "volumeStatsAggPeriod": "0s",
    }
