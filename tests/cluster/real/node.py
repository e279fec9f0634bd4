"""A node on this machine: containerd and a kubelet with their own places, cgroups and ports.

Pods run as containers do; the devices in them are the machine's. All that is not in the directory
given belongs to the `room` or to `cgroups`, and goes with them.
"""

import os
import shutil
from contextlib import ExitStack
from types import TracebackType
from typing import Self

from tests.cluster.real.cgroups import Cgroups
from tests.cluster.real.control_plane import LOOPBACK, ControlPlane, free_ports
from tests.cluster.real.kubelet_node import KubeletNode
from tests.cluster.real.programs import Programs
from tests.cluster.real.room import Room

PACKAGES = {"runc": "runc", "busybox": "busybox-static", "nsenter": "util-linux"}
"""Programs that a node needs beside those that are built, and Debian's packages of them."""

SBIN = "/usr/local/sbin:/usr/sbin:/sbin"


def what_is_missing() -> str | None:
    """One sentence that says what a node lacks here; None if nothing is missing."""
    if os.geteuid() != 0:
        return "A node on this machine needs root, for its mounts, cgroups and devices"
    packages = [name for tool, name in PACKAGES.items() if which(tool) is None]
    if packages:
        return f"A node on this machine needs more of Debian: apt install {' '.join(packages)}"
    return None


class Node(KubeletNode):
    """A node that is ready. Use as a context manager, as root and in the main thread.

    Args:
        programs: what it runs.
        control_plane: to which it belongs.
        directory: for all files; it must exist.
        name: of the node.

    Attributes:
        room: where it lives; an agent has to live there too.

    Raises:
        ProgramFailed: on entering, if a program does not start.
    """

    def __init__(
        self, programs: Programs, control_plane: ControlPlane, directory: str, name: str
    ) -> None:
        self.room = Room(programs, directory)
        self._cgroups = Cgroups(name)
        port, health_port = free_ports(2)
        self._settings = {
            "address": LOOPBACK,
            "port": port,
            "healthzPort": health_port,
            "cgroupRoot": self._cgroups.path,
        }
        self._server = control_plane.url
        self._pause = programs.pause
        self._stack = ExitStack()
        super().__init__(
            programs,
            control_plane,
            directory,
            name,
            self.room,
            health_url=f"http://{LOOPBACK}:{health_port}/healthz",
        )

    def __enter__(self) -> Self:
        runc = which("runc")
        assert runc is not None
        with ExitStack() as stack:
            stack.enter_context(self._cgroups)
            self.configure(self._settings, server=self._server, runc=runc, pause=self._pause)
            stack.enter_context(self.room)
            stack.callback(self.end)
            self.begin()
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stack.close()


def which(program: str) -> str | None:
    """The path of a program that may be where only root looks for it."""
    return shutil.which(program, path=os.pathsep.join([os.environ.get("PATH", ""), SBIN]))
