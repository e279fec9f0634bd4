"""A sink of slices on a cluster in memory."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio

from liken_events.cluster import Cause, Rejected, SliceView
from liken_events.converge import converge
from liken_events.core.model.device import Inventory
from liken_events.core.model.publish import inventory
from liken_events.core.model.snapshot import Device
from liken_events.latest import Latest
from liken_events.sinks import SinkUnavailable
from liken_events.sinks.slices import SliceSink, plan_slices
from tests.fakes.agents import devices
from tests.fakes.cluster import FakeCluster
from tests.fakes.devices import drm, pci, tty, usb
from tests.fakes.machines import machine

NODE, NAME = "n1", "n1-liken.sh"
STICK = usb("1-1:1.0", "10c4:ea60", "ff0000", "cp210x", 2, serial="Z1", nodes=[tty("ttyUSB0", 0)])
OTHER = usb("1-2:1.0", "10c4:ea60", "ff0000", "cp210x", 3, serial="Z2", nodes=[tty("ttyUSB1", 1)])
GPU = pci("0000:00:02.0", "8086:3e92", "030000", "i915", nodes=[drm("renderD128", 128)])
STICK_NAME, OTHER_NAME = "usb-1-1-1-0", "usb-1-2-1-0"


def of(*found: Device) -> Inventory:
    return inventory(machine(found))


class Bench:
    """A sink on a cluster in memory."""

    def __init__(self) -> None:
        self.cluster = FakeCluster()
        self.view = SliceView()
        self.sink = SliceSink(self.cluster, self.view, NODE)

    @property
    def stored(self) -> dict[str, dict[str, Any]]:
        """The devices that the cluster holds: name to attributes."""
        return devices(self.cluster.slices[NAME]) if NAME in self.cluster.slices else {}

    @property
    def generation(self) -> int:
        number: int = self.cluster.slices[NAME]["spec"]["pool"]["generation"]
        return number

    async def reach(self, wanted: Inventory) -> int:
        """One turn of the sink; returns how many changes it made."""
        changes = plan_slices(await self.sink.observe(), wanted)
        for change in changes:
            await self.sink.apply(change)
        return len(changes)

    async def refused(self, wanted: Inventory, *causes: Cause) -> SinkUnavailable:
        """One turn that the server refuses."""
        self.cluster.faults.append(Rejected("invalid", causes))
        with pytest.raises(SinkUnavailable) as caught:
            await self.reach(wanted)
        return caught.value


@asynccontextmanager
async def bench() -> AsyncIterator[Bench]:
    made = Bench()
    async with trio.open_nursery() as nursery:

        async def watch(task_status: trio.TaskStatus[None]) -> None:
            await made.cluster.watch_slices(NODE, made.view, task_status=task_status)

        await nursery.start(watch)
        yield made
        nursery.cancel_scope.cancel()


@asynccontextmanager
async def converging(b: Bench, *found: Device) -> AsyncIterator[None]:
    """A sink at work, whose inventory never changes."""
    inventories: Latest[Inventory] = Latest()
    inventories.set(of(*found))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(converge, b.sink, plan_slices, inventories)
        yield
        nursery.cancel_scope.cancel()
