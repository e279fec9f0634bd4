"""A node on this machine: containerd and a kubelet with their own places, cgroups and ports.

Pods run as containers do; the devices in them are the machine's. All that is not in the directory
given belongs to the `room` or to `cgroups`, and goes with them.
"""

import json
import os
import shutil
import time
from contextlib import ExitStack
from types import TracebackType
from typing import Any, Self

import urllib3

from tests.cluster.real.cgroups import Cgroups
from tests.cluster.real.control_plane import LOOPBACK, ControlPlane, free_ports
from tests.cluster.real.images import PAUSE, write_images
from tests.cluster.real.processes import Process
from tests.cluster.real.programs import Programs
from tests.cluster.real.room import Room

START_SECONDS = 60.0
"""Bound for each step of the start. On two free cores all of them take 3 s together."""

IMPORT_SECONDS = 60.0

SOCKET = "/run/containerd/containerd.sock"

CONTAINERD = """\
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

PACKAGES = {"runc": "runc", "busybox": "busybox-static", "nsenter": "util-linux"}
"""Programs that a node needs beside those that are built, and Debian's packages of them."""

SBIN = "/usr/local/sbin:/usr/sbin:/sbin"


def what_is_missing() -> str | None:
    """One sentence that says what a node lacks here; None if nothing is missing."""
    if os.geteuid() != 0:
        return "A node on this machine needs root, for its mounts, cgroups and devices"
    packages = [name for tool, name in PACKAGES.items() if _which(tool) is None]
    if packages:
        return f"A node on this machine needs more of Debian: apt install {' '.join(packages)}"
    return None


class Node:
    """A node that is ready. Use as a context manager, as root and in the main thread.

    Args:
        programs: what it runs.
        control_plane: to which it belongs.
        directory: for all files; it must exist.
        name: of the node.

    Attributes:
        name: see there.
        room: where it lives; an agent has to live there too.
        kubelet_started: when the newest kubelet was started, in seconds of the wall clock.

    Raises:
        ProgramFailed: on entering, if a program does not start.
    """

    def __init__(
        self, programs: Programs, control_plane: ControlPlane, directory: str, name: str
    ) -> None:
        self.name = name
        self.kubelet_started = 0.0
        self.room = Room(programs, directory)
        self._programs = programs
        self._control_plane = control_plane
        self._directory = directory
        self._cgroups = Cgroups(name)
        self._kubelet_port, self._health_port = free_ports(2)
        self._processes: dict[str, Process] = {}
        self._stack = ExitStack()
        self._pool = urllib3.PoolManager(retries=False, timeout=5.0)

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            stack.enter_context(self._cgroups)
            stack.enter_context(self.room)
            stack.callback(self._pool.clear)
            stack.callback(self._stop_all)
            self._configure()
            self._start_containerd()
            self._import_images()
            self.start_kubelet()
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stack.close()

    @property
    def path(self) -> str:
        """The node's path in the API."""
        return f"/api/v1/nodes/{self.name}"

    def logs(self) -> dict[str, str]:
        """The ends of the programs' logs, to be shown when a test fails."""
        return {name: process.log_end() for name, process in self._processes.items()}

    def start_kubelet(self) -> None:
        """Starts the kubelet, with what it knew when it was stopped, and waits until the node is
        ready."""
        self.kubelet_started = time.time()
        kubelet = self._start(
            "kubelet",
            *self._programs.kubernetes("kubelet"),
            f"--config={self._directory}/kubelet.json",
            f"--kubeconfig={self._kubeconfig}",
            *(f"--hostname-override={self.name}", "--root-dir=/var/lib/kubelet", "--v=4"),
        )
        health = f"http://{LOOPBACK}:{self._health_port}/healthz"
        kubelet.until(lambda: self._answers(health), "its health", seconds=START_SECONDS)
        kubelet.until(self._is_ready, "a ready node", seconds=START_SECONDS)

    def stop_kubelet(self) -> None:
        """Ends the kubelet in order. Pods run on."""
        self._processes["kubelet"].stop()

    def restart_kubelet(self) -> None:
        """Ends the kubelet and starts it again."""
        self.stop_kubelet()
        self.start_kubelet()

    def pod_log(self, namespace: str, pod: str, container: str) -> str:
        """What a container printed so far, of the newest run of it; empty if it did not run."""
        logs = f"{self.room.root}/var/log/pods"
        found = ""
        for directory in os.listdir(logs):
            if directory.startswith(f"{namespace}_{pod}_"):
                path = f"{logs}/{directory}/{container}"
                runs = os.listdir(path) if os.path.isdir(path) else []
                for newest in sorted(runs, key=lambda name: int(name.split(".")[0]))[-1:]:
                    with open(f"{path}/{newest}", encoding="utf-8") as file:
                        # Each line has time, stream and whether it is whole before the text.
                        found = "".join(line.split(" ", 3)[3] for line in file)
        return found

    def _configure(self) -> None:
        files = self._control_plane.credentials
        self._kubeconfig = files.kubeconfig(
            self.name,
            self._control_plane.url,
            user=f"system:node:{self.name}",
            groups=["system:nodes"],
        )
        self._write("kubelet.json", json.dumps(self._kubelet_configuration()))
        text = CONTAINERD.format(socket=SOCKET, pause=PAUSE, runc=_which("runc"))
        self._write("containerd.toml", text)
        network = f"{self.room.root}/etc/cni/net.d/10-pod.conflist"
        with open(network, "w", encoding="utf-8") as file:
            json.dump(NETWORK, file)

    def _kubelet_configuration(self) -> dict[str, Any]:
        files = self._control_plane.credentials
        return {
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "address": LOOPBACK,
            "port": self._kubelet_port,
            "healthzPort": self._health_port,
            "tlsCertFile": files.certificate,
            "tlsPrivateKeyFile": files.key,
            "authentication": {"anonymous": {"enabled": True}, "webhook": {"enabled": False}},
            "authorization": {"mode": "AlwaysAllow"},
            "cgroupDriver": "cgroupfs",
            "cgroupRoot": self._cgroups.path,
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

    def _start_containerd(self) -> None:
        containerd = self._start(
            "containerd", self._programs.containerd, "-c", f"{self._directory}/containerd.toml"
        )
        socket = self.room.root + SOCKET
        containerd.until(lambda: os.path.exists(socket), "its socket", seconds=START_SECONDS)

    def _import_images(self) -> None:
        archives = write_images(self._directory, self._programs.pause)
        importing = self._start(
            "import-images", self._programs.containerd, "import-images", SOCKET, *archives
        )
        importing.wait(seconds=IMPORT_SECONDS)

    def _is_ready(self) -> bool:
        node = self._control_plane.client.find(self.path)
        conditions = node["status"].get("conditions", []) if node is not None else []
        return ("Ready", "True") in [(each["type"], each["status"]) for each in conditions]

    def _start(self, name: str, *line: str) -> Process:
        # containerd looks for its shim in the path, and the shim for runc.
        path = os.pathsep.join(
            [self._programs.directory, os.environ["PATH"], "/usr/sbin", "/sbin"]
        )
        process = self.room.start(name, line, {"PATH": path, "HOME": self._directory})
        self._processes[name] = process
        return process

    def _stop_all(self) -> None:
        for process in reversed(self._processes.values()):
            process.stop()

    def _answers(self, url: str) -> bool:
        try:
            return self._pool.request("GET", url).status == 200
        except urllib3.exceptions.HTTPError:
            return False

    def _write(self, name: str, text: str) -> None:
        with open(os.path.join(self._directory, name), "w", encoding="utf-8") as file:
            file.write(text)


def _which(program: str) -> str | None:
    """The path of a program that may be where only root looks for it."""
    return shutil.which(program, path=os.pathsep.join([os.environ.get("PATH", ""), SBIN]))
