"""What mounts and disks mean to the loop."""

from dataclasses import replace

import pytest
import trio
from structlog.typing import EventDict
from trio.testing import MockClock

from liken_events.core.events import DeviceChanged, MountsChanged
from liken_events.core.model.snapshot import Use
from liken_events.reconcile import STORAGE_RETRY_SECONDS, STORAGE_SECONDS
from tests.fakes.devices import scsi_disk, tty, usb
from tests.fakes.loop import Run
from tests.fakes.machines import machine

STICK = usb("1-1:1.0", "10c4:ea60", "ff0000", "cp210x", 2, nodes=[tty("ttyUSB0", 0)])
DISK = usb("2-1:1.0", "1058:25a2", "080650", "usb-storage", 2, nodes=scsi_disk("", 0, 0, 1))
MOUNTED = Use(what="/mnt", fstype="ext4", source="/dev/sda1", number="8:1")


async def test_a_mount_takes_its_disk_out_of_the_offer_and_an_unmount_returns_it(
    run: Run, clock: MockClock
) -> None:
    async with run(machine([DISK, STICK])) as loop:
        assert "usb-2-1-1-0" in loop.offered
        loop.reader.mount(MOUNTED)
        loop.inbox.mark(MountsChanged(source="mounts"))
        await loop.until(lambda: "usb-2-1-1-0" not in loop.offered)
        assert loop.inventories.get().causes[DISK.key].text == "mounts changed"
        loop.reader.mount()
        loop.inbox.mark(MountsChanged(source="mounts"))
        await loop.until(lambda: "usb-2-1-1-0" in loop.offered)
        assert loop.reader.looks == []


async def test_a_machine_that_mounts_all_the_time_has_its_mounts_read_some_times(
    run: Run, clock: MockClock
) -> None:
    async with run(machine([DISK])) as loop:
        start = trio.current_time()
        while trio.current_time() < start + 10:
            loop.inbox.mark(MountsChanged(source="mounts"))
            await trio.sleep(0.003)
        assert len(loop.reader.uses) <= 10 / STORAGE_SECONDS + 1
        assert loop.reader.storages == [], "block devices are read when uses changed"


@pytest.mark.parametrize(
    "trigger",
    [
        DeviceChanged(path="/devices/virtual/block/dm-3", action="add", subsystem="block"),
        DeviceChanged(path="/devices/virtual/block/md0", action="change", subsystem="block"),
        DeviceChanged(
            path=f"{DISK.path}/{DISK.nodes[-1].place}", action="change", subsystem="block"
        ),
    ],
)
async def test_an_event_of_a_block_device_means_looking_at_all_of_them(
    run: Run, clock: MockClock, trigger: DeviceChanged
) -> None:
    async with run(machine([DISK])) as loop:
        loop.reader.mount(MOUNTED)
        loop.inbox.mark(trigger)
        await loop.until(lambda: not loop.offered)
        assert loop.reader.storages


async def test_a_disk_that_appears_is_never_offered_before_its_use_is_known(
    run: Run, clock: MockClock
) -> None:
    async with run(machine([STICK])) as loop:
        seen: list[set[str]] = []
        loop.reader.put(DISK)
        loop.reader.machine = machine([DISK, STICK], [MOUNTED])
        loop.say("add", DISK)
        loop.say("bind", DISK)
        with trio.move_on_after(5):
            while True:
                await loop.inventories.wait_newer(loop.inventories.number)
                seen.append(loop.offered)
        assert seen, "it was looked at"
        assert all("usb-2-1-1-0" not in offered for offered in seen)


async def test_no_disk_is_offered_while_the_mounts_cannot_be_read(
    run: Run, clock: MockClock, logs: list[EventDict]
) -> None:
    async with run(machine([DISK, STICK])) as loop:
        known = loop.reader.machine
        unknown = replace(known.storage, uses=(), unknown="the mounts could not be read")
        loop.reader.machine = replace(known, storage=unknown)
        disk = DeviceChanged(path="/devices/virtual/block/dm-3", action="add", subsystem="block")
        for _ in range(3):
            loop.inbox.mark(disk)
            await trio.sleep(1)
        assert loop.offered == {"usb-1-1-1-0"}
        assert [line["reason"] for line in logs if line["event"] == "storage.unknown"] == [
            "the mounts could not be read"
        ]
        loop.reader.machine = known
        loop.inbox.mark(disk)
        await loop.until(lambda: "usb-2-1-1-0" in loop.offered)


async def test_mounts_that_could_not_be_read_are_tried_again_without_an_event(
    run: Run, clock: MockClock
) -> None:
    async with run(machine([DISK])) as loop:
        known = loop.reader.machine
        unknown = replace(known.storage, uses=(), unknown="the mounts could not be read")
        loop.reader.machine = replace(known, storage=unknown)
        loop.inbox.mark(MountsChanged(source="mounts"))
        await loop.until(lambda: not loop.offered)
        lost = trio.current_time()
        loop.reader.machine = known
        await loop.until(lambda: bool(loop.offered))
        assert trio.current_time() - lost <= STORAGE_RETRY_SECONDS + STORAGE_SECONDS
