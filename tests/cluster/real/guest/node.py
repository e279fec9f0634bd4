"""A node in a guest: kernel, udevd and devices of its own, with the control plane outside.

The programs, and what they are told, are those of a node on this machine. They come to the API
server by QEMU's network, in which this machine's loopback has an address.
"""

import os
from contextlib import ExitStack
from dataclasses import replace
from types import TracebackType
from typing import Self

from tests.cluster.real.control_plane import LOOPBACK, ControlPlane, free_ports
from tests.cluster.real.credentials import HOST_OF_A_GUEST
from tests.cluster.real.guest.place import PROGRAMS, Guest, make_disk, network
from tests.cluster.real.kubelet_node import KubeletNode
from tests.cluster.real.node import which
from tests.cluster.real.programs import Programs
from tests.vm.hardware import AT_BOOT
from tests.vm.machine import Machine

HEALTH_PORT = 10248

SHIM = "containerd-shim-runc-v2"

SLOWNESS = 3.0
"""An emulated processor takes ten times as long for what it does; most of the bounds' time is for
waits of the kubelet's, which are as long as elsewhere."""


def server_of(control_plane: ControlPlane) -> str:
    """URL of the API server in a guest."""
    return f"https://{HOST_OF_A_GUEST}:{control_plane.port}"


class GuestNode(KubeletNode):
    """A node that is ready. Use as a context manager, as root and in the main thread.

    Args:
        programs: what it runs.
        control_plane: to which it belongs.
        directory: for all files; it must exist, and its path must be short (see `Machine`).
        name: of the node.

    Attributes:
        machine: the guest.

    Raises:
        GuestFailed: on entering, if the guest does not boot.
        ProgramFailed: on entering, if a program does not start.
    """

    def __init__(
        self, programs: Programs, control_plane: ControlPlane, directory: str, name: str
    ) -> None:
        runc = which("runc")
        assert runc is not None
        [port] = free_ports(1)
        disk = make_disk(
            directory,
            [programs.containerd, f"{programs.directory}/{SHIM}", programs.multiple, runc],
        )
        self.machine = Machine(directory, [*AT_BOOT, *disk, *network(port, HEALTH_PORT)])
        self._guest = Guest(self.machine)
        self._stack = ExitStack()
        inside = replace(
            programs,
            directory=PROGRAMS,
            multiple=f"{PROGRAMS}/{os.path.basename(programs.multiple)}",
        )
        super().__init__(
            inside,
            control_plane,
            directory,
            name,
            self._guest,
            health_url=f"http://{LOOPBACK}:{port}/healthz",
            slowness=SLOWNESS,
        )
        everywhere = "0.0.0.0"  # of the guest, which only this machine reaches
        settings = {
            "address": everywhere,
            "healthzBindAddress": everywhere,
            "healthzPort": HEALTH_PORT,
        }
        self.configure(
            settings,
            server=server_of(control_plane),
            runc=f"{PROGRAMS}/{os.path.basename(runc)}",
            pause=programs.pause,
        )

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            stack.enter_context(self.machine)
            self._guest.prepare(self.name)
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
