"""What udevd has not told yet is not looked at."""

from dataclasses import replace

import pytest
import trio
from trio.testing import MockClock

from liken_events.core.backlog import LONGEST
from liken_events.core.events import Resync
from liken_events.core.model.snapshot import Device
from tests.fakes.devices import pci, tty, usb
from tests.fakes.loop import TIMING, Run
from tests.fakes.machines import machine

STICK = usb("1-1:1.0", "10c4:ea60", "ff0000", "cp210x", 2, nodes=[tty("ttyUSB0", 0)])
OTHER = usb("1-2:1.0", "10c4:ea60", "ff0000", "cp210x", 3, nodes=[tty("ttyUSB1", 1)])
PAIR = [
    usb(f"1-4:1.{number}", "0403:6010", "ffffff", "ftdi_sio", 5,
        nodes=[tty(f"ttyUSB{number + 2}", number + 2)])
    for number in (0, 1)
]  # fmt: skip
CARD = pci("0000:03:00.0", "1b36:0002", "070002", "serial", nodes=[tty("ttyS4", 68)])


@pytest.mark.parametrize(("path", "device"), [(f"{STICK.path}/ttyUSB0", STICK), (CARD.path, CARD)])
async def test_a_device_is_not_looked_at_while_udevd_is_behind(
    run: Run, clock: MockClock, path: str, device: Device
) -> None:
    async with run(machine([STICK, CARD])) as loop:
        start = trio.current_time()
        loop.backlog.heard(path, 2, start)
        loop.say("change", STICK, CARD)
        await trio.sleep(3)
        assert loop.looked(device) == []
        assert loop.looked(CARD if device is STICK else STICK) == [start + TIMING.quiet]
        assert loop.reconciler.unsettled == {device.key}
        loop.reader.put(replace(device, nodes=()))
        loop.backlog.told(path, 2, trio.current_time())
        await trio.sleep(1)
        (look,) = loop.looked(device)
        assert 3 <= look - start <= 3 + TIMING.quiet
        assert loop.inventories.get().causes[device.key].at == start


async def test_udevd_that_says_nothing_keeps_no_device_from_being_looked_at_for_good(
    run: Run, clock: MockClock
) -> None:
    async with run(machine([STICK])) as loop:
        start = trio.current_time()
        loop.backlog.heard(STICK.path, 1, start)
        loop.say("change", STICK)
        await trio.sleep(2 * LONGEST)
        (look,) = loop.looked(STICK)
        assert LONGEST <= look - start <= LONGEST + 2 * TIMING.quiet


async def test_a_full_look_takes_nothing_that_udevd_is_behind_with(
    run: Run, clock: MockClock
) -> None:
    async with run(machine([OTHER])) as loop:
        loop.reader.put(replace(STICK, nodes=()))
        loop.backlog.heard(STICK.path, 1, trio.current_time())
        loop.inbox.mark(Resync(source="uevent", reason="a test"))
        await trio.sleep(1)
        assert (len(loop.reader.scans), loop.offered) == (2, {"usb-1-2-1-0"})
        loop.reader.put(STICK)
        loop.backlog.told(STICK.path, 1, trio.current_time())
        await trio.sleep(1)
        assert loop.offered == {"usb-1-1-1-0", "usb-1-2-1-0"}


async def test_of_a_usb_device_that_udevd_is_behind_with_no_interface_is_looked_at(
    run: Run, clock: MockClock
) -> None:
    async with run(machine([*PAIR, OTHER])) as loop:
        loop.backlog.heard(PAIR[0].path.rpartition("/")[0], 1, trio.current_time())
        loop.say("change", *PAIR, OTHER)
        await trio.sleep(1)
        assert loop.reconciler.unsettled == {device.key for device in PAIR}
        assert [look.key for look in loop.reader.looks] == [OTHER.key]
