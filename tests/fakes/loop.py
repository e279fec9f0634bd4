"""The loop on a machine in memory, for tests under a clock that jumps."""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import TypeAlias

import pytest
import trio

from liken_events.core.backlog import Backlog
from liken_events.core.events import DeviceChanged
from liken_events.core.model.device import Inventory
from liken_events.core.model.machine import Machine
from liken_events.core.model.publish import Policy
from liken_events.core.model.snapshot import Device, Snapshot
from liken_events.core.timing import Timing
from liken_events.inbox import Inbox
from liken_events.latest import Latest
from liken_events.reconcile import Reconciler
from tests.fakes.reader import FakeReader

TIMING = Timing()
NEVER = 1e6
"""Seconds until the whole machine is read without a reason, where a test is about reasons."""


class Loop:
    """A reconciler with its settings, and shorthands for what tests say and see."""

    def __init__(self, reader: FakeReader, safety_seconds: float) -> None:
        self.reader = reader
        self.inbox = Inbox()
        self.inventories: Latest[Inventory] = Latest()
        self.backlog = Backlog()
        self.reconciler = Reconciler(
            reader=reader,
            machine=Machine(Policy()),
            inbox=self.inbox,
            inventories=self.inventories,
            timing=TIMING,
            safety_seconds=safety_seconds,
            backlog=self.backlog,
        )

    @property
    def offered(self) -> set[str]:
        """Names of what is offered now."""
        return set(self.inventories.get().by_name())

    def say(self, action: str, *devices: Device, below: str = "", subsystem: str = "usb") -> None:
        """A uevent for each of the devices, or for something below them."""
        for device in devices:
            self.inbox.mark(
                DeviceChanged(path=device.path + below, action=action, subsystem=subsystem)
            )

    def looked(self, device: Device) -> list[float]:
        """When the device was looked at by itself."""
        return [look.at for look in self.reader.looks if look.key == device.key]

    async def until(self, condition: Callable[[], object]) -> float:
        """Waits for an inventory with which the condition holds; returns when it came."""
        while not condition():
            await self.inventories.wait_newer(self.inventories.number)
        return trio.current_time()


@asynccontextmanager
async def running(
    monkeypatch: pytest.MonkeyPatch, machine: Snapshot | FakeReader, *, safety: float = NEVER
) -> AsyncIterator[Loop]:
    """Runs a reconciler from its first inventory to the end of the block, with its reads on the
    trio thread."""
    reader = machine if isinstance(machine, FakeReader) else FakeReader(machine)
    loop = Loop(reader, safety)
    monkeypatch.setattr(trio.to_thread, "run_sync", reader.run_here)
    async with trio.open_nursery() as nursery:
        await nursery.start(loop.reconciler.run)
        yield loop
        nursery.cancel_scope.cancel()


Run: TypeAlias = Callable[..., AbstractAsyncContextManager[Loop]]
"""`running` without its first argument."""
