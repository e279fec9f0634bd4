"""The whole agent in this process, on a recorded machine and a clock that jumps.

All is real but for four things: the clock; worker threads, during which that would jump; the
netlink sockets, whose place pairs of sockets take; and sysfs, which is a directory. So the settle
times are those of a real agent, and a minute takes a fifth of a second.
"""

import errno
import json
import os
import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from liken_events.agent import run_agent
from liken_events.cluster.directory import DirectoryCluster
from liken_events.commands.follow import Teller
from liken_events.config import Config
from liken_events.core.plan.slices import CreateSlice, ObservedSlice, PatchSlice
from liken_events.sources.uevent import CREDENTIALS, DATAGRAM_BYTES, KERNEL_PORT, UeventSource
from tests.fakes.agents import NODE, devices
from tests.fakes.recorded_tree import RecordedTree
from tests.fakes.recordings import Devices, Recording, Step

T = TypeVar("T")

OVERRUN = b"\0"
"""Stands for what the kernel could not put into a socket's buffer."""

ROOT_CREDENTIALS = CREDENTIALS.pack(1, 0, 0)

SPEC_PREFIX, SPEC_ENDING = "liken.sh-", ".json"

END_SECONDS = 30.0
"""Until all has settled, whatever it was: longer than any wait of the agent's for hardware."""


class Line(socket.socket):
    """The agent's end of a socket, which seems to be netlink's.

    Attributes:
        is_losing: whether something was lost of which the agent was not told yet. The kernel tells
            it once, however much it was.
    """

    is_losing = False

    def recvmsg(self, *sizes: int) -> Any:
        """A datagram of root's or the kernel's. Raises OSError."""
        data = self.recv(DATAGRAM_BYTES)
        if data == OVERRUN:
            self.is_losing = False
            raise OSError(errno.ENOBUFS, os.strerror(errno.ENOBUFS))
        ancillary = [(socket.SOL_SOCKET, socket.SCM_CREDENTIALS, ROOT_CREDENTIALS)]
        return data, ancillary, 0, (KERNEL_PORT, 0)


class Kernel:
    """Both groups of uevents, with those who listen."""

    def __init__(self) -> None:
        self._listeners: list[tuple[str, socket.socket, Line]] = []

    def open(self, source: UeventSource) -> socket.socket:
        """A listener's socket, in place of `UeventSource._open`."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        line = Line(fileno=theirs.detach())
        line.setblocking(False)
        self._listeners.append((source._group, ours, line))
        return line

    def say(self, group: str, message: bytes) -> None:
        """Sends an event to all who listen to a group; an empty one is lost to them."""
        for its, ours, line in self._listeners:
            if its == group and not (line.is_losing and not message):
                line.is_losing |= not message
                ours.send(message or OVERRUN)

    def close(self) -> None:
        """Ends all connections."""
        for _, ours, _ in self._listeners:
            ours.close()


class Watched(DirectoryCluster):
    """A directory for a cluster that remembers every version of the slice.

    Attributes:
        versions: the devices of each.
    """

    def __init__(self, directory: str) -> None:
        super().__init__(directory)
        self.versions: list[Devices] = []

    async def create_slice(self, change: CreateSlice) -> ObservedSlice:
        written = await super().create_slice(change)
        self.versions.append(devices(dict(written.body)))
        return written

    async def patch_slice(self, change: PatchSlice) -> ObservedSlice:
        written = await super().patch_slice(change)
        self.versions.append(devices(dict(written.body)))
        return written


class Replay:
    """One replay of a recording.

    Args:
        directory: for the machine and what the agent writes; it must be empty.
        recording: what is replayed.
        group: the uevents that the agent listens to.

    Attributes:
        specs: every version of each claim's spec: its uid, and its text; None for one that went.
        strangers: what a spec named while it was another device's, when the agent had nothing more
            to do: the node's path and whose it was.
        tree: the machine.
    """

    def __init__(
        self, directory: str, recording: Recording, group: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        self.tree = RecordedTree(f"{directory}/machine")
        self.specs: list[tuple[str, str | None]] = []
        self.strangers: list[tuple[str, str]] = []
        self._cluster = Watched(f"{directory}/cluster")
        self._config = Config(
            node_name=NODE,
            cluster="directory",
            cluster_dir=f"{directory}/cluster",
            sys_root=self.tree.sys,
            dev_root=self.tree.dev,
            proc_root=self.tree.proc,
            cdi_dir=f"{directory}/cdi",
            record_dir=f"{directory}/records",
            pci_ids=f"{directory}/none",
            uevents=group,
        )
        self._known: Mapping[str, str] = {}
        self._kernel = Kernel()
        monkeypatch.setattr(UeventSource, "_open", lambda source: self._kernel.open(source))
        monkeypatch.setattr(trio.to_thread, "run_sync", self._run_here)
        monkeypatch.setattr(trio.from_thread, "check_cancelled", lambda: None)
        for path, files in recording.there.items():
            self.tree.put(path, files)
        for name, lines in recording.tables.items():
            self.tree.show(name, lines)

    @property
    def versions(self) -> list[Devices]:
        """Every version of the slice."""
        return self._cluster.versions

    async def run(self, steps: Sequence[Step]) -> None:
        """Has the agent live through all of it."""
        self._cluster.prepare()
        try:
            async with trio.open_nursery() as nursery:
                await nursery.start(self._run_agent)
                began = trio.current_time() + END_SECONDS
                for step in steps:
                    await trio.sleep_until(began + step.at)
                    self._take(step)
                    await wait_all_tasks_blocked()
                    self.strangers += self._find_strangers()
                await trio.sleep(END_SECONDS)
                nursery.cancel_scope.cancel()
        finally:
            self._kernel.close()

    async def _run_agent(self, *, task_status: trio.TaskStatus[None]) -> None:
        tell = Teller().tell
        await run_agent(self._config, self._cluster, on_published=tell, task_status=task_status)

    def _take(self, step: Step) -> None:
        for path, files in step.changed.items():
            self.tree.put(path, files)
        if step.table is not None:
            self.tree.show(*step.table)
        if step.claim is not None:
            self._take_claim(*step.claim)
        if step.group:
            self._kernel.say(step.group, step.message)

    def _take_claim(self, name: str, text: str | None) -> None:
        folder = f"{self._config.cluster_dir}/resourceclaims/default"
        path = f"{folder}/{name}"
        if text is None:
            os.unlink(path)
            return
        os.makedirs(folder, exist_ok=True)
        with open(f"{path}.draft", "w", encoding="utf-8") as file:
            file.write(text)
        os.replace(f"{path}.draft", path)

    async def _run_here(self, work: Callable[..., T], *args: Any, **how: Any) -> T:
        """What a thread would do. Specs are written there alone, so each version is seen here."""
        await trio.lowlevel.checkpoint()
        try:
            return work(*args)
        finally:
            self._look_at_specs()

    def _look_at_specs(self) -> None:
        found = {}
        for name in _listed(self._config.cdi_dir):
            if name.startswith(SPEC_PREFIX) and name.endswith(SPEC_ENDING):
                with open(os.path.join(self._config.cdi_dir, name), encoding="utf-8") as file:
                    found[name.removeprefix(SPEC_PREFIX).removesuffix(SPEC_ENDING)] = file.read()
        for uid in sorted(found.keys() | self._known.keys()):
            if found.get(uid) != self._known.get(uid):
                self.specs.append((uid, found.get(uid)))
        self._known = found

    def _find_strangers(self) -> Iterator[tuple[str, str]]:
        addresses = {
            name: device["address"] for state in self.versions for name, device in state.items()
        }
        for uid, text in self._known.items():
            for name, nodes in nodes_in(text).items():
                address = addresses[name.removeprefix(f"{uid}-")]
                for path, *_ in nodes:
                    owner = self.tree.owner(path)
                    if owner is not None and not is_part(owner, address):
                        yield path, owner


def nodes_in(text: str) -> dict[str, list[list[Any]]]:
    """The nodes of each device of a spec: path, type, major and minor as far as they are given."""
    keys = ("path", "type", "major", "minor")
    return {
        item["name"]: [
            [node[key] for key in keys if key in node]
            for node in item["containerEdits"]["deviceNodes"]
        ]
        for item in json.loads(text)["devices"]
    }


def is_part(devpath: str, address: str) -> bool:
    """Whether a device lies in the slot of this address, or is that interface's USB device."""
    return address in devpath.split("/") or devpath.endswith(f"/{address.partition(':')[0]}")


def _listed(directory: str) -> list[str]:
    try:
        return os.listdir(directory)
    except FileNotFoundError:
        return []
