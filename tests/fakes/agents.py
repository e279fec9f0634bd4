"""The whole agent as a process of its own, on a made-up machine, with all that it logs and
writes."""

import json
import os
import signal
import threading
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from types import TracebackType
from typing import Any, Protocol, Self

from liken_events.core.model.publish import inventory
from liken_events.core.model.snapshot import Snapshot
from liken_events.simulate.tree import MachineTree
from liken_events.simulate.uevents import Uevent
from tests.fakes.devices import tty, usb
from tests.fakes.network import PrivateNetwork
from tests.fakes.versions import Versions, generation
from tests.fakes.waiting import until

NODE = "n1"
SLICE = f"{NODE}-liken.sh"

STICK = usb("1-9:1.0", "10c4:ea60", "ff0000", "cp210x", 12, serial="Z1", nodes=[tty("ttyUSB9", 9)])
STICK_NAME = "usb-1-9-1-0"
"""A stick that none of the made-up machines has."""

QUICK = ("--settle-quiet=0.05", "--settle-ceiling=0.5", "--settle-longest=0.5")
"""Settle times for claims that do not depend on them."""


class Agent:
    """One run of `liken-events run` with a directory for a cluster. Use as a context manager.

    Args:
        network: the namespace it runs in.
        tree: the machine it looks at.
        directory: the directory that stands for a cluster.
        flags: further flags.

    Attributes:
        tree: the machine.
        path: the slice's file.
        pid: process id.
        log: what it logged so far, oldest first.
        stray: lines on standard error that are no log.
    """

    def __init__(
        self, network: PrivateNetwork, tree: MachineTree, directory: str, *flags: str
    ) -> None:
        self.tree = tree
        self.path = os.path.join(directory, "resourceslices", f"{SLICE}.yaml")
        self.pid = 0
        self.log: list[dict[str, Any]] = []
        self.stray: list[str] = []
        self._network = network
        self._argv = [
            "run",
            f"--node-name={NODE}",
            "--cluster=directory",
            f"--cluster-dir={directory}",
            f"--cdi-dir={directory}/cdi",
            f"--record-dir={directory}/records",
            f"--sys-root={tree.sys}",
            f"--dev-root={tree.dev}",
            f"--proc-root={tree.proc}",
            f"--pci-ids={tree.pci_ids}",
            "--uevents=kernel",
            "--log-format=json",
            "--log-level=debug",
            *flags,
        ]
        self._status: int | None = None

    def __enter__(self) -> Self:
        os.makedirs(os.path.dirname(self.path), exist_ok=True)
        with ExitStack() as stack:
            self._versions = stack.enter_context(Versions(self.path))
            ours, theirs = os.pipe()
            self.pid = self._network.start(self._argv, theirs)
            os.close(theirs)
            self._reader = threading.Thread(target=self._read, args=(ours,), daemon=True)
            self._reader.start()
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self.status is None:
            os.kill(self.pid, signal.SIGKILL)
        self._reader.join(timeout=10)
        while self.status is None:
            pass
        self._stack.close()

    @property
    def status(self) -> int | None:
        """The exit status, or minus the signal that ended it; None while it runs."""
        if self._status is None:
            self._status = self._network.poll(self.pid)
        return self._status

    @property
    def generation(self) -> int:
        """How many versions of the slice there were, by the pool's generation; 0 before the
        first."""
        newest = self._versions.newest
        return 0 if newest is None else generation(newest)

    @property
    def offered(self) -> dict[str, dict[str, Any]]:
        """The devices of the newest version, name to attributes; none before the first."""
        newest = self._versions.newest
        return {} if newest is None else devices(newest)

    @property
    def shapes(self) -> list[dict[str, dict[str, Any]]]:
        """The devices of every version there ever was."""
        return [devices(body) for body in self._versions.all]

    def say(self, uevents: Iterable[Uevent]) -> None:
        """Has the kernel say this."""
        self._network.send(uevents)

    def flood(self, uevents: Iterable[Uevent], *, repeat: int) -> None:
        """Has the kernel say this many times over, as fast as it can."""
        self._network.send_raw([uevent.to_bytes() for uevent in uevents], repeat=repeat)

    def logged(self, event: str, **facts: Any) -> list[dict[str, Any]]:
        """The lines of this event that have these facts."""
        return [
            line
            for line in list(self.log)
            if line["event"] == event and facts.items() <= line.items()
        ]

    def logged_above_info(self) -> list[dict[str, Any]]:
        """The warnings and errors."""
        return [line for line in list(self.log) if line["level"] not in {"debug", "info"}]

    def nodes(self, device: str) -> list[list[str]]:
        """The nodes of a device at each change of it since the first slice."""
        return [
            line["nodes"]
            for line in list(self.log)
            if line["event"] in {"device.added", "device.changed"} and line["device"] == device
        ]

    async def until(self, condition: Callable[[], object], *, seconds: float = 10.0) -> None:
        """Waits until the condition holds; says what was logged if it does not come to hold."""
        try:
            await until(lambda: condition() or self.status is not None, seconds=seconds)
        finally:
            assert condition(), "\n".join([*self.stray, *map(str, self.log)])

    async def until_offered(
        self,
        *,
        present: Iterable[str] = (),
        absent: Iterable[str] = (),
        seconds: float = 10.0,
    ) -> None:
        """Waits until the slice has all of these devices, and none of those."""
        wanted, unwanted = set(present), set(absent)
        await self.until(
            lambda: wanted <= self.offered.keys() and not unwanted & self.offered.keys(),
            seconds=seconds,
        )

    async def until_nodes(self, device: str, *changes: list[str]) -> None:
        """Waits until the device was told to have had just these nodes, one change after the
        other."""
        await self.until(lambda: self.nodes(device) == list(changes))

    async def until_last_nodes(self, device: str, path: str) -> None:
        """Waits until this node was among the device's at its last change."""
        await self.until(lambda: path in [*self.nodes(device)[-1:], []][0])

    async def until_ready(self) -> None:
        """Waits until the first inventory is published."""
        await self.until(lambda: self.logged("offer.published"))

    async def until_sliced(self) -> int:
        """Waits until the first inventory is published and the slice seen; returns its
        generation."""
        await self.until(lambda: self.logged("offer.published") and self.generation)
        return self.generation

    async def until_true(self) -> None:
        """Waits until the slice says just what the tree offers."""
        names = {device.name for device in inventory(self.tree.snapshot).offered}
        await self.until(lambda: self.offered.keys() == names)

    async def stop(self) -> int:
        """Ends it as a supervisor does; returns its exit status."""
        os.kill(self.pid, signal.SIGTERM)
        await until(lambda: self.status is not None)
        self._reader.join(timeout=10)
        assert self._status is not None
        return self._status

    def _read(self, descriptor: int) -> None:
        with open(descriptor, encoding="utf-8", errors="replace") as lines:
            for line in lines:
                try:
                    self.log.append(json.loads(line))
                except ValueError:
                    self.stray.append(line)


def devices(body: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The devices of a slice: name to attributes, as plain values."""
    return {
        device["name"]: {
            name: next(iter(value.values()))
            for name, value in device.get("attributes", {}).items()
        }
        for device in body["spec"]["devices"]
    }


class Build(Protocol):
    """Makes a machine of files."""

    def __call__(self, snapshot: Snapshot, *, clutter: bool = False) -> MachineTree: ...


class Launch(Protocol):
    """Starts an agent on a machine of files."""

    def __call__(self, tree: MachineTree, *flags: str) -> Agent: ...
