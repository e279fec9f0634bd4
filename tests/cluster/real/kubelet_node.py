"""containerd and a kubelet in some place, which together are a node that is ready.

Where they run, and what makes and removes that place, is for `node` (on this machine) and
`guest.node` (in a guest).
"""

import json
import os
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import urllib3

from tests.cluster.real.control_plane import ControlPlane
from tests.cluster.real.images import write_images
from tests.cluster.real.node_configuration import (
    NETWORK,
    NETWORK_FILE,
    SOCKET,
    kubelet_configuration,
    runtime_configuration,
)
from tests.cluster.real.programs import Programs

START_SECONDS = 60.0
"""Bound for each step of the start. On two free cores all of them take 3 s together."""

POD_LOGS = "/var/log/pods"


class Running(Protocol):
    """A program that runs in a place; `processes` says what these do."""

    def until(self, condition: Callable[[], object], what: str, *, seconds: float) -> None: ...
    def wait(self, *, seconds: float) -> None: ...
    def stop(self) -> None: ...
    def log_end(self, lines: int = 30) -> str: ...


class Place(Protocol):
    """Where a node's programs and files are."""

    def start(self, name: str, line: Sequence[str], environment: Mapping[str, str]) -> Running:
        """Starts a program, with this and no other environment; the name is for its log."""

    def read(self, path: str) -> str:
        """The text of a file; `FileNotFoundError` if there is none."""

    def write(self, path: str, text: str) -> None:
        """Writes a file."""

    def names(self, path: str) -> list[str]:
        """The names in a directory; none if it is none."""

    def kill_all(self, container: str) -> None:
        """Ends the processes of a container as a crash does."""


class KubeletNode:
    """The node. `configure` comes first, then the place, then `begin`; `end` is last.

    Args:
        programs: what it runs, where it is in the place.
        control_plane: to which it belongs.
        directory: for the configuration, under the same path in the place; it must exist.
        name: of the node.
        place: where it runs.
        health_url: where the kubelet's health is asked for.
        slowness: how many times longer all may take than on this machine; bounds are multiplied
            with it.

    Attributes:
        name, place, slowness: see there.
        kubelet_started: when the newest kubelet was started, in seconds of the wall clock.
    """

    def __init__(
        self,
        programs: Programs,
        control_plane: ControlPlane,
        directory: str,
        name: str,
        place: Place,
        *,
        health_url: str,
        slowness: float = 1.0,
    ) -> None:
        self.name = name
        self.place = place
        self.slowness = slowness
        self.kubelet_started = 0.0
        self._programs = programs
        self._control_plane = control_plane
        self._directory = directory
        self._health_url = health_url
        self._seconds = START_SECONDS * slowness
        self._processes: dict[str, Running] = {}
        self._pool = urllib3.PoolManager(retries=False, timeout=5.0)

    @property
    def path(self) -> str:
        """The node's path in the API."""
        return f"/api/v1/nodes/{self.name}"

    @property
    def shows_health(self) -> bool:
        """Whether the status of a pod says how the devices of its claims fare."""
        return not self._programs.is_old

    def logs(self) -> dict[str, str]:
        """The ends of the programs' logs, to be shown when a test fails."""
        return {name: process.log_end() for name, process in self._processes.items()}

    def configure(
        self, settings: Mapping[str, Any], *, server: str, runc: str, pause: str
    ) -> None:
        """Writes what the programs read.

        Args:
            settings: the kubelet's addresses and ports.
            server: URL of the API server.
            runc: the path of runc in the place.
            pause: the path of the program here.
        """
        files = self._control_plane.credentials
        self._kubeconfig = files.kubeconfig(
            self.name, server, user=f"system:node:{self.name}", groups=["system:nodes"]
        )
        self._archives = write_images(self._directory, pause)
        self._write("kubelet.json", json.dumps({**kubelet_configuration(files), **settings}))
        self._write("containerd.toml", runtime_configuration(runc))

    def begin(self) -> None:
        """Starts the programs and waits until the node is ready.

        Raises:
            ProgramFailed: one does not start.
        """
        self.place.write(NETWORK_FILE, json.dumps(NETWORK))
        containerd = self._start(
            "containerd", self._programs.containerd, "-c", f"{self._directory}/containerd.toml"
        )
        folder, name = os.path.split(SOCKET)
        containerd.until(
            lambda: name in self.place.names(folder), "its socket", seconds=self._seconds
        )
        importing = self._start(
            "import-images", self._programs.containerd, "import-images", SOCKET, *self._archives
        )
        importing.wait(seconds=self._seconds)
        self.start_kubelet()

    def end(self) -> None:
        """Ends the programs."""
        for process in reversed(self._processes.values()):
            process.stop()
        self._pool.clear()

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
        kubelet.until(self._is_healthy, "its health", seconds=self._seconds)
        kubelet.until(self._is_ready, "a ready node", seconds=self._seconds)

    def stop_kubelet(self) -> None:
        """Ends the kubelet in order. Pods run on."""
        self._processes["kubelet"].stop()

    def restart_kubelet(self) -> None:
        """Ends the kubelet and starts it again."""
        self.stop_kubelet()
        self.start_kubelet()

    def pod_log(self, namespace: str, pod: str, container: str) -> str:
        """What a container printed so far, of the newest run of it; empty if it did not run."""
        for directory in self.place.names(POD_LOGS):
            if directory.startswith(f"{namespace}_{pod}_"):
                path = f"{POD_LOGS}/{directory}/{container}"
                runs = self.place.names(path)
                for newest in sorted(runs, key=lambda name: int(name.split(".")[0]))[-1:]:
                    lines = self.place.read(f"{path}/{newest}").splitlines(keepends=True)
                    # Each line has time, stream and whether it is whole before the text.
                    return "".join(line.split(" ", 3)[3] for line in lines)
        return ""

    def _is_ready(self) -> bool:
        node = self._control_plane.client.find(self.path)
        conditions = node["status"].get("conditions", []) if node is not None else []
        return ("Ready", "True") in [(each["type"], each["status"]) for each in conditions]

    def _is_healthy(self) -> bool:
        try:
            return self._pool.request("GET", self._health_url).status == 200
        except urllib3.exceptions.HTTPError:
            return False

    def _start(self, name: str, *line: str) -> Running:
        # containerd looks for its shim in the path, and the shim for runc.
        path = os.pathsep.join(
            [self._programs.directory, os.environ["PATH"], "/usr/sbin", "/sbin"]
        )
        process = self.place.start(name, line, {"PATH": path, "HOME": self._directory})
        self._processes[name] = process
        return process

    def _write(self, name: str, text: str) -> None:
        with open(os.path.join(self._directory, name), "w", encoding="utf-8") as file:
            file.write(text)
