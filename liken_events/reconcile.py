"""The loop: from triggers to the newest inventory.

A trigger says where to look. When to look is a question of time: a device that is being plugged in
has to settle, one that was pulled out is gone. What is seen replaces what was known of that one
device, and if the offer is another then, the sinks are told.

This file joins inbox, waiting, scanner and machine, and owns the clock. Reads happen in worker
threads, each device's alone: a device whose attribute hangs delays nobody else. What is read, and
what follows from it, is decided elsewhere.
"""

import random
from collections.abc import Callable
from typing import TypeVar

import structlog
import trio

from liken_events.core.backlog import Backlog
from liken_events.core.backoff import Backoff
from liken_events.core.events import DeviceChanged, MountsChanged, NodeAdded, Resync
from liken_events.core.model.address import subject
from liken_events.core.model.device import Cause, Inventory
from liken_events.core.model.machine import Machine
from liken_events.core.model.snapshot import Device, Key, Storage
from liken_events.core.model.storage import has_disks
from liken_events.core.timing import Burst, Settling, Timing
from liken_events.core.waiting import Waiting
from liken_events.inbox import Inbox
from liken_events.latest import Latest
from liken_events.node_watch import NodeWatch
from liken_events.sources import Reader, ScanFailed

SAFETY_SECONDS = 600.0
"""How often the whole machine is read without any reason. Nothing should ever be found then; a
warning tells."""

STORAGE_SECONDS = 0.1
"""Shortest time between two looks at the mounts: a container host mounts dozens of times a
second."""

STORAGE_RETRY_SECONDS = 5.0
"""How soon mounts that could not be read are tried again: disks are withheld until they can be."""

GATHER_SECONDS = 0.1
"""How long the first of several looks waits for the others, so that a composite device is one
change."""

THREADS = 8
"""Worker threads for reading. A device that hangs holds one until the kernel gives up on it."""

VIRTUAL = "/devices/virtual/"
"""Where device-mapper, md and other devices are that lie on no bus."""

SCAN_BACKOFF = Backoff(base=1.0, ceiling=60.0)

log = structlog.get_logger()


T = TypeVar("T")


class Reconciler:
    """Keeps `inventories` at the newest inventory of the machine."""

    def __init__(
        self,
        *,
        reader: Reader,
        machine: Machine,
        inbox: Inbox,
        inventories: Latest[Inventory],
        timing: Timing,
        safety_seconds: float = SAFETY_SECONDS,
        nodes: NodeWatch | None = None,
        backlog: Backlog | None = None,
    ) -> None:
        self._reader = reader
        self._machine = machine
        self._inbox = inbox
        self._inventories = inventories
        self._safety_seconds = safety_seconds
        self._nodes = nodes if nodes is not None else NodeWatch()
        self._waiting = Waiting(
            timing, machine, reader.present, backlog if backlog is not None else Backlog()
        )
        self._resync: Settling[None] = Settling(timing)
        self._limiter = trio.CapacityLimiter(THREADS)
        self._reading: dict[Key, Burst] = {}
        self._seen: list[tuple[Key, Burst, Device | None]] = []
        self._arrived = trio.Event()
        self._storage_due: float | None = None
        self._storage_looked = -STORAGE_SECONDS
        self._storage_whole = False
        self._storage_cause = Cause(text="", at=0.0)
        self._scan_failures = 0
        self._full_due = 0.0
        self._read_once = False

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Reads the whole machine, then follows the inbox for ever. `started()` after the first
        inventory."""
        async with trio.open_nursery() as nursery:
            self._full_due = trio.current_time()
            while True:
                await self._turn(nursery)
                if self._inventories.number:
                    task_status.started()
                    break
                await trio.sleep_until(self._full_due)
            while True:
                await self._wait()
                await self._turn(nursery)

    @property
    def unsettled(self) -> frozenset[Key]:
        """The devices that are waited for or being looked at: what is known of them may be half of
        what they are about to be."""
        return frozenset((*self._reading, *self._waiting.keys(trio.current_time())))

    async def _wait(self) -> None:
        """Until something is pending, seen or due."""
        times = (
            self._full_due,
            self._waiting.deadline(),
            self._resync.deadline(),
            self._storage_due,
        )
        with trio.move_on_at(min(time for time in times if time is not None)):
            await self._inbox.wait()

    async def _turn(self, nursery: trio.Nursery) -> None:
        """Takes in what came, looks at what is due, and tells of what is new."""
        if self._take_marks():
            self._publish()  # what is gone waits for nobody
        now = trio.current_time()
        if self._storage_due is not None and self._storage_due <= now:
            await self._read_storage()
        if self._resync.take_due(now) or self._full_due <= now:
            await self._read_everything()
        await self._look_at_due(now, nursery)
        await self._take_seen()
        self._publish()

    def _take_marks(self) -> bool:
        """Sorts the pending triggers to what they concern. True if a device was found to be
        gone."""
        gone = False
        for marked in self._inbox.take():
            trigger = marked.trigger
            match trigger:
                case DeviceChanged():
                    gone |= self._note(trigger, marked.at)
                case NodeAdded():
                    self._nodes.announce(trigger.node, trigger.path)
                case MountsChanged():
                    self._doubt_storage(trigger.cause, marked.at)
                case Resync():
                    if None not in self._resync:  # one line for all losses until the next look
                        log.warning("machine.resync", source=trigger.source, reason=trigger.reason)
                    self._resync.note(None, marked.at, trigger.cause)
        return gone

    def _note(self, trigger: DeviceChanged, at: float) -> bool:
        """Takes one uevent into account. True if it says that a device is gone, and it is."""
        if trigger.node:
            self._nodes.announce(trigger.node, trigger.path)
        found = subject(trigger.path, self._machine.paths)
        is_disk = trigger.subsystem == "block" or trigger.path.startswith(VIRTUAL)
        if is_disk and trigger.action == "remove":
            # Its partitions and holders go one by one; what is gone is in nobody's way.
            self._doubt_storage(trigger.cause, at, whole=True, delay=STORAGE_SECONDS)
        elif is_disk and found is None:
            # What a device on a bus got is looked at with the device, when that has settled.
            self._doubt_storage(trigger.cause, at, whole=True)
        gone = self._waiting.note(trigger, found, at)
        for key in gone:
            self._reading.pop(key, None)
            self._machine.put(key, None)
            self._machine.note(key, Cause(text=trigger.cause, at=at))
        return bool(gone)

    def _doubt_storage(
        self, text: str, at: float, *, whole: bool = False, delay: float = 0.0
    ) -> None:
        self._storage_whole |= whole
        due = max(at + delay, self._storage_looked + STORAGE_SECONDS)
        if self._storage_due is None:
            self._storage_cause = Cause(text=text, at=at)
        self._storage_due = due if self._storage_due is None else min(due, self._storage_due)

    async def _read_storage(self) -> None:
        """Looks at mounts and swap areas, and at block devices if those may be others."""
        whole, self._storage_whole = self._storage_whole, False
        self._storage_due = None
        known = self._machine.storage
        if whole or await self._in_thread(lambda: self._reader.uses_changed(known)):
            self._take_storage(await self._in_thread(self._reader.storage), self._storage_cause)
        self._storage_looked = trio.current_time()

    def _take_storage(self, storage: Storage, cause: Cause) -> None:
        if storage.unknown is not None and storage.unknown != self._machine.storage.unknown:
            log.error(
                "storage.unknown",
                reason=storage.unknown,
                result="no block device is published until it can be told what is in use",
            )
        if storage.unknown is not None:
            self._storage_whole = True
            self._storage_due = trio.current_time() + STORAGE_RETRY_SECONDS
        for key in self._machine.put_storage(storage):
            self._machine.note(key, cause)

    async def _read_everything(self) -> None:
        began = trio.current_time()
        cause = Cause(text="full look", at=began)
        self._resync.take(None)
        try:
            snapshot = await self._in_thread(self._reader.scan)
        except ScanFailed as error:
            self._scan_failures += 1
            delay = SCAN_BACKOFF.delay(self._scan_failures, random.random())  # noqa: S311  # jitter
            self._full_due = trio.current_time() + delay
            log.warning("machine.scan_failed", reason=str(error), retry_seconds=round(delay, 1))
            return
        self._scan_failures = 0
        self._full_due = trio.current_time() + self._safety_seconds
        self._take_storage(snapshot.storage, cause)
        # A device in the middle of a burst keeps what is known of it: its own look is still to
        # come.
        self._waiting.note_behind(trio.current_time(), cause.text)
        changed = self._machine.replace(snapshot, self.unsettled)
        for key in changed if self._read_once else ():  # the first look is not a change
            self._machine.note(key, cause)
        self._read_once = True
        log.info(
            "machine.read",
            devices=len(snapshot.devices),
            changed=len(changed),
            seconds=round(trio.current_time() - began, 3),
        )

    async def _look_at_due(self, now: float, nursery: trio.Nursery) -> None:
        """Starts the looks whose time has come, and waits a little for them."""
        begun = set()
        for key, burst in self._waiting.take_due(now, self._reading).items():
            self._reading[key] = burst
            begun.add(key)
            nursery.start_soon(self._look, key, burst)
        with trio.move_on_after(GATHER_SECONDS):
            while begun & self._reading.keys():
                await self._arrived.wait()

    async def _look(self, key: Key, burst: Burst) -> None:
        device: Device | None = None
        failure: ScanFailed | None = None
        try:
            device = await self._in_thread(lambda: self._reader.device(key))
        except ScanFailed as error:
            failure = error
        if self._reading.get(key) is burst:  # else the device was removed meanwhile
            del self._reading[key]
            if failure is None:
                self._seen.append((key, burst, device))
            else:  # what is known stays, until all can be read
                self._inbox.mark(Resync(source="machine", reason=str(failure)))
        self._arrived.set()
        self._arrived = trio.Event()
        self._inbox.wake()

    async def _take_seen(self) -> None:
        """Takes in the looks that ended. One that found disks is worth another look at what is in
        use."""
        seen, self._seen = self._seen, []
        if any(device is not None and has_disks(device) for _, _, device in seen):
            now = trio.current_time()
            self._storage_due, self._storage_whole = None, False  # this look answers for them
            storage = await self._in_thread(self._reader.storage)
            self._storage_looked = trio.current_time()
            self._take_storage(storage, Cause(text="look at disks", at=now))
        for key, burst, device in seen:
            if key in self._waiting and device is not None:
                continue  # it moved on while it was looked at: the next look counts
            self._machine.put(key, device)
            self._machine.note(key, Cause(text=burst.text, at=burst.heard))

    def _publish(self) -> None:
        inventory = self._machine.inventory()
        if not self._read_once or (
            self._inventories.number and inventory == self._inventories.get()
        ):
            return
        self._inventories.set(inventory)

    async def _in_thread(self, read: Callable[[], T]) -> T:
        return await trio.to_thread.run_sync(read, limiter=self._limiter, abandon_on_cancel=True)
