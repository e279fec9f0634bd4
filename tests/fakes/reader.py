"""A machine that is read from memory, piece by piece, as slowly as a test likes."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypeVar

import trio

from liken_events.core.model.snapshot import Device, Key, Snapshot, Storage, Use, sort_devices
from liken_events.sources import ScanFailed

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Look:
    """One look at a device, and when it began."""

    key: Key
    at: float


class FakeReader:
    """Behaves as `Reader` says; `run_here` takes the place of the worker threads.

    Attributes:
        machine: what there is to be seen.
        looks: the looks at single devices so far.
        scans, storages, uses: when the whole machine, its storage, and its mounts alone were read.
        failing: all looks fail while it is true.
        during: called in the middle of each look at the whole machine or its storage.
        gates: reads of these devices end only when the event is set.
    """

    def __init__(self, machine: Snapshot) -> None:
        self.machine = machine
        self.looks: list[Look] = []
        self.scans: list[float] = []
        self.storages: list[float] = []
        self.uses: list[float] = []
        self.failing = False
        self.during: Callable[[], None] = lambda: None
        self.gates: dict[Key, trio.Event] = {}
        self._gate: trio.Event | None = None

    def put(self, *devices: Device) -> None:
        """Devices appear, or change."""
        known = {device.key: device for device in (*self.machine.devices, *devices)}
        self.machine = replace(self.machine, devices=sort_devices(known.values()))

    def remove(self, *keys: Key) -> None:
        """Devices disappear."""
        left = tuple(device for device in self.machine.devices if device.key not in keys)
        self.machine = replace(self.machine, devices=left)

    def mount(self, *uses: Use) -> None:
        """These are the mounts now."""
        self.machine = replace(self.machine, storage=replace(self.machine.storage, uses=uses))

    def scan(self) -> Snapshot:
        self.scans.append(trio.current_time())
        if self.failing:
            raise ScanFailed("cannot list usb devices")
        seen = self.machine
        self.during()
        return seen

    def device(self, key: Key) -> Device | None:
        self.looks.append(Look(key, trio.current_time()))
        self._gate = self.gates.get(key)
        if self.failing:
            raise ScanFailed(f"cannot read usb {key.address}: Too many open files")
        return {device.key: device for device in self.machine.devices}.get(key)

    def storage(self) -> Storage:
        self.storages.append(trio.current_time())
        self.during()
        return self.machine.storage

    def uses_changed(self, storage: Storage) -> bool:
        self.uses.append(trio.current_time())
        self.during()
        return self.machine.storage.uses != storage.uses

    def present(self, key: Key) -> bool:
        return any(device.key == key for device in self.machine.devices)

    async def run_here(
        self, read: Callable[[], T], *, limiter: trio.CapacityLimiter, abandon_on_cancel: bool
    ) -> T:
        """Reads on the trio thread: trio's mock clock would jump while a real thread is busy."""
        assert abandon_on_cancel
        async with limiter:
            value = read()
            gate, self._gate = self._gate, None
            if gate is not None:
                await gate.wait()
            return value
