from dataclasses import replace
from itertools import pairwise

import pytest
import trio
from trio.testing import MockClock

from liken_events.core.events import DeviceChanged, MountsChanged, Resync
from liken_events.core.model.snapshot import Device
from liken_events.reconcile import GATHER_SECONDS
from tests.fakes.devices import drm, pci, tty, usb
from tests.fakes.loop import TIMING, Run
from tests.fakes.machines import machine
from tests.fakes.reader import FakeReader

STICK = usb("1-1:1.0", "10c4:ea60", "ff0000", "cp210x", 2, nodes=[tty("ttyUSB0", 0)])
OTHER = usb("1-2:1.0", "10c4:ea60", "ff0000", "cp210x", 3, nodes=[tty("ttyUSB1", 1)])
PAIR = [
    usb(f"1-4:1.{number}", "0403:6010", "ffffff", "ftdi_sio", 5,
        nodes=[tty(f"ttyUSB{number + 2}", number + 2)])
    for number in (0, 1)
]  # fmt: skip
GPU = pci("0000:00:02.0", "8086:3e92", "030000", "i915",
          nodes=[drm("card0", 0), drm("renderD128", 128)])  # fmt: skip

HALF = 100.0
"""Seconds that a storm goes on without, and then with, a change in each event."""


async def test_the_first_inventory_is_there_when_the_loop_says_that_it_started(
    run: Run, clock: MockClock
) -> None:
    async with run(machine([STICK])) as loop:
        assert loop.offered == {"usb-1-1-1-0"}
        assert len(loop.reader.scans) == 1


async def test_a_device_is_looked_at_a_quiet_time_after_its_last_event(
    run: Run, clock: MockClock
) -> None:
    async with run(machine([])) as loop:
        loop.reader.put(STICK)
        start = trio.current_time()
        loop.say("add", STICK)
        await trio.sleep(0.1)
        loop.say("bind", STICK)
        await trio.sleep(0.1)
        loop.say("add", STICK, below="/ttyUSB0/tty/ttyUSB0", subsystem="tty")
        seen = await loop.until(lambda: "usb-1-1-1-0" in loop.offered)
        assert seen - start == pytest.approx(0.2 + TIMING.quiet)
        assert len(loop.looked(STICK)) == 1


@pytest.mark.parametrize(
    ("device", "seconds"), [(STICK, TIMING.probing_usb), (GPU, TIMING.probing_pci)]
)
async def test_a_device_that_was_added_is_not_looked_at_before_its_probe_is_over(
    run: Run, clock: MockClock, device: Device, seconds: float
) -> None:
    async with run(machine([])) as loop:
        loop.reader.put(replace(device, nodes=device.nodes[:1]))
        start = trio.current_time()
        loop.say("add", device)
        for _ in range(3):
            await trio.sleep(0.5)
            loop.say("add", device, below="/drm/card0", subsystem="drm")
        seen = await loop.until(lambda: loop.offered)
        assert seen - start == pytest.approx(seconds)


@pytest.mark.parametrize(
    ("end", "seconds"),
    [("bind", 3.0 + TIMING.quiet), ("remove", 3.0 + TIMING.quiet), (None, TIMING.probing_disk)],
)
async def test_a_disk_that_was_found_is_not_looked_at_before_its_driver_has_it(
    run: Run, clock: MockClock, end: str | None, seconds: float
) -> None:
    disk = DeviceChanged(
        path=f"{STICK.path}/host2/target2:0:0/2:0:0:0",
        action="add",
        subsystem="scsi",
        awaits_driver=True,
    )
    async with run(machine([STICK])) as loop:
        start = trio.current_time()
        loop.inbox.mark(disk)
        for _ in range(6):
            await trio.sleep(0.5)
            loop.say("add", STICK, below="/host2/scsi_host/host2", subsystem="scsi_host")
        if end is not None:
            loop.inbox.mark(replace(disk, action=end, awaits_driver=False))
        await trio.sleep(10)
        assert loop.looked(STICK) == [pytest.approx(start + seconds)]


async def test_an_add_that_somebody_asked_for_is_followed_by_no_probe(
    run: Run, clock: MockClock
) -> None:
    async with run(machine([GPU])) as loop:
        start = trio.current_time()
        loop.inbox.mark(DeviceChanged(path=GPU.path, action="add", synthetic=True))
        await trio.sleep(1)
        assert loop.looked(GPU) == [pytest.approx(start + TIMING.quiet)]


async def test_a_device_that_is_never_quiet_is_looked_at_all_the_same(
    run: Run, clock: MockClock
) -> None:
    async with run(machine([STICK, OTHER])) as loop:
        loop.reader.put(replace(STICK, serial="new"), replace(OTHER, serial="new"))
        number, start = loop.inventories.number, trio.current_time()
        loop.say("change", OTHER)
        while trio.current_time() < start + 3:
            loop.say("change", STICK)
            await trio.sleep(0.1)
        assert loop.looked(OTHER) == [pytest.approx(start + TIMING.quiet)]
        assert loop.looked(STICK) == [pytest.approx(start + TIMING.ceiling)]
        assert loop.inventories.number == number + 2


async def test_a_storm_of_one_device_costs_little_and_delays_nobody(
    run: Run, clock: MockClock
) -> None:
    async with run(machine([STICK])) as loop:
        number, start = loop.inventories.number, trio.current_time()
        while trio.current_time() < start + 2 * HALF:
            if trio.current_time() > start + HALF:
                loop.reader.put(replace(STICK, serial=str(trio.current_time())))
            loop.say("change", STICK)
            await trio.sleep(1 / 30)
        assert len(loop.looked(STICK)) <= 2 * HALF / TIMING.longest + 5
        assert loop.inventories.number - number <= HALF / TIMING.longest + 3
        loop.reader.put(OTHER)
        began = trio.current_time()
        loop.say("bind", OTHER)
        loop.say("change", STICK)
        seen = await loop.until(lambda: "usb-1-2-1-0" in loop.offered)
        assert seen - began < 1


async def test_a_removal_is_told_at_the_moment_it_is_heard(run: Run, clock: MockClock) -> None:
    async with run(machine([STICK, OTHER])) as loop:
        loop.reader.remove(STICK.key)
        start = trio.current_time()
        loop.say("remove", STICK)
        seen = await loop.until(lambda: loop.offered == {"usb-1-2-1-0"})
        assert seen == start
        assert loop.inventories.get().causes[STICK.key].text == "remove 1-1:1.0"


async def test_a_removal_is_told_before_anything_else_is_looked_at(
    run: Run, clock: MockClock
) -> None:
    async with run(machine([STICK, OTHER])) as loop:
        offered: list[set[str]] = []
        loop.reader.during = lambda: offered.append(loop.offered)
        loop.reader.remove(STICK.key)
        loop.say("remove", STICK)
        loop.inbox.mark(MountsChanged(source="mounts"))
        await trio.sleep(1)
        assert offered == [{"usb-1-2-1-0"}]


async def test_a_usb_device_that_is_removed_takes_its_interfaces_with_it(
    run: Run, clock: MockClock
) -> None:
    async with run(machine([*PAIR, OTHER])) as loop:
        loop.reader.remove(*(device.key for device in PAIR))
        start = trio.current_time()
        path = PAIR[0].path.rpartition("/")[0]
        loop.inbox.mark(DeviceChanged(path=path, action="remove", subsystem="usb"))
        seen = await loop.until(lambda: loop.offered == {"usb-1-2-1-0"})
        assert seen == start


async def test_a_usb_device_that_changes_has_its_interfaces_looked_at(
    run: Run, clock: MockClock
) -> None:
    async with run(machine([*PAIR, OTHER])) as loop:
        loop.reader.put(*(replace(device, serial="new") for device in PAIR))
        number = loop.inventories.number
        path = PAIR[0].path.rpartition("/")[0]
        slow = loop.reader.gates[PAIR[1].key] = trio.Event()
        loop.inbox.mark(DeviceChanged(path=path, action="change", subsystem="usb"))
        await trio.sleep(TIMING.quiet + GATHER_SECONDS / 2)
        slow.set()
        await trio.sleep(1)
        assert {look.key for look in loop.reader.looks} == {device.key for device in PAIR}
        assert loop.inventories.number == number + 1, "a composite device is one change"


async def test_a_late_removal_leads_to_a_look_and_no_more(run: Run, clock: MockClock) -> None:
    async with run(machine([STICK])) as loop:
        number = loop.inventories.number
        loop.say("remove", STICK)
        await trio.sleep(1)
        assert len(loop.looked(STICK)) == 1
        assert loop.inventories.number == number


async def test_a_device_removed_while_it_is_read_never_comes_back(
    run: Run, clock: MockClock
) -> None:
    async with run(machine([OTHER])) as loop:
        gate = loop.reader.gates[STICK.key] = trio.Event()
        loop.reader.put(STICK)
        loop.say("bind", STICK)
        await trio.sleep(1)
        assert len(loop.looked(STICK)) == 1
        loop.reader.remove(STICK.key)
        loop.say("remove", STICK)
        await trio.sleep(0.1)
        gate.set()
        await trio.sleep(10)
        assert loop.offered == {"usb-1-2-1-0"}


async def test_a_device_that_moves_on_while_it_is_read_is_read_again(
    run: Run, clock: MockClock
) -> None:
    async with run(machine([])) as loop:
        gate = loop.reader.gates[STICK.key] = trio.Event()
        loop.reader.put(STICK)
        loop.say("bind", STICK)
        await trio.sleep(1)
        loop.reader.gates.clear()
        loop.reader.put(replace(STICK, driver="other"))
        loop.say("unbind", STICK)
        loop.say("bind", STICK)
        await trio.sleep(0.1)
        gate.set()
        await loop.until(lambda: loop.offered)
        attributes = dict(loop.inventories.get().offered[0].attributes)
        assert attributes["driver"] == "other"
        assert len(loop.looked(STICK)) == 2


async def test_a_read_that_hangs_delays_nobody_else(run: Run, clock: MockClock) -> None:
    async with run(machine([STICK])) as loop:
        loop.reader.gates[STICK.key] = trio.Event()
        loop.reader.put(OTHER)
        start = trio.current_time()
        loop.say("bind", STICK, OTHER)
        seen = await loop.until(lambda: "usb-1-2-1-0" in loop.offered)
        assert seen - start <= TIMING.quiet + GATHER_SECONDS + 0.01
        loop.reader.remove(OTHER.key)
        began = trio.current_time()
        loop.say("remove", OTHER)
        seen = await loop.until(lambda: "usb-1-2-1-0" not in loop.offered)
        assert seen == began
        assert "usb-1-1-1-0" in loop.offered, "what was known of it stays"


async def test_lost_events_lead_to_one_full_look(run: Run, clock: MockClock) -> None:
    async with run(machine([STICK])) as loop:
        loop.reader.put(OTHER)
        loop.reader.remove(STICK.key)
        for _ in range(3):
            loop.inbox.mark(Resync(source="uevent", reason="receive buffer overrun"))
            await trio.sleep(0.01)
        await loop.until(lambda: loop.offered == {"usb-1-2-1-0"})
        await trio.sleep(100)
        assert len(loop.reader.scans) == 2


async def test_losing_events_all_the_time_does_not_mean_looking_all_the_time(
    run: Run, clock: MockClock
) -> None:
    async with run(machine([STICK])) as loop:
        start = trio.current_time()
        while trio.current_time() < start + 60:
            loop.inbox.mark(Resync(source="uevent", reason="receive buffer overrun"))
            await trio.sleep(0.1)
        assert 60 / TIMING.longest <= len(loop.reader.scans) <= 60 / TIMING.ceiling + 1


async def test_a_full_look_leaves_alone_what_is_being_probed(run: Run, clock: MockClock) -> None:
    async with run(machine([STICK])) as loop:
        loop.reader.put(replace(GPU, nodes=GPU.nodes[:1]))
        loop.say("add", GPU, subsystem="pci")
        loop.inbox.mark(Resync(source="uevent", reason="receive buffer overrun"))
        await trio.sleep(1)
        assert len(loop.reader.scans) == 2
        assert loop.offered == {"usb-1-1-1-0"}
        loop.reader.put(GPU)
        loop.say("bind", GPU, subsystem="pci")
        await loop.until(lambda: len(loop.offered) > 1)
        assert loop.offered == {"usb-1-1-1-0", "pci-0000-00-02-0", "pci-0000-00-02-0-display"}


async def test_a_scan_that_fails_keeps_what_is_known_and_is_tried_again(
    run: Run, clock: MockClock
) -> None:
    async with run(machine([STICK])) as loop:
        number = loop.inventories.number
        loop.reader.failing = True
        loop.reader.remove(STICK.key)
        loop.reader.put(OTHER)
        loop.inbox.mark(Resync(source="uevent", reason="receive buffer overrun"))
        await trio.sleep(600)
        assert loop.inventories.number == number
        assert loop.offered == {"usb-1-1-1-0"}
        pauses = [later - at for at, later in pairwise(loop.reader.scans[1:])]
        assert all(0.5 * 2**count <= pause for count, pause in enumerate(pauses[:6]))
        assert max(pauses) <= 60.01
        loop.reader.failing = False
        await loop.until(lambda: loop.offered == {"usb-1-2-1-0"})


async def test_a_device_that_cannot_be_read_stays_as_it_was_until_it_can(
    run: Run, clock: MockClock
) -> None:
    async with run(machine([STICK])) as loop:
        number = loop.inventories.number
        loop.reader.failing = True
        loop.reader.put(replace(STICK, driver="other"))
        loop.say("bind", STICK)
        await trio.sleep(60)
        assert loop.inventories.number == number
        assert len(loop.looked(STICK)) == 1
        assert 3 <= len(loop.reader.scans) < 20
        loop.reader.failing = False
        await loop.until(lambda: loop.inventories.number > number)
        assert dict(loop.inventories.get().offered[0].attributes)["driver"] == "other"


async def test_a_machine_that_cannot_be_read_at_first_is_read_when_it_can(
    run: Run, clock: MockClock
) -> None:
    reader = FakeReader(machine([STICK]))
    reader.failing = True

    async def heal() -> None:
        await trio.sleep(10)
        reader.failing = False

    async with trio.open_nursery() as nursery:
        nursery.start_soon(heal)
        async with run(reader) as loop:
            assert trio.current_time() >= 10
            assert loop.offered == {"usb-1-1-1-0"}


async def test_everything_is_read_again_after_a_long_time_without_a_reason(
    run: Run, clock: MockClock
) -> None:
    async with run(machine([STICK]), safety=600) as loop:
        loop.reader.put(OTHER)
        start = trio.current_time()
        await loop.until(lambda: "usb-1-2-1-0" in loop.offered)
        assert trio.current_time() - start == pytest.approx(600)
        await trio.sleep(6000.1)
        assert len(loop.reader.scans) == 12


@pytest.mark.parametrize("seen", [True, False], ids=["seen by the scan", "missed by the scan"])
async def test_a_device_plugged_in_during_the_first_scan_is_offered_once(
    run: Run, clock: MockClock, seen: bool
) -> None:
    reader = FakeReader(machine([OTHER]))

    def plug() -> None:
        reader.during = lambda: None
        reader.put(STICK)

    if seen:
        plug()
    else:
        reader.during = plug
    async with run(reader) as loop:
        loop.say("add", STICK)
        loop.say("bind", STICK)
        await loop.until(lambda: loop.offered == {"usb-1-1-1-0", "usb-1-2-1-0"})
        number = loop.inventories.number
        await trio.sleep(10)
        assert loop.inventories.number == number
        assert number == (1 if seen else 2)


async def test_looking_again_at_what_is_the_same_tells_nobody(run: Run, clock: MockClock) -> None:
    async with run(machine([STICK, GPU])) as loop:
        number = loop.inventories.number
        loop.say("change", STICK, GPU)
        loop.inbox.mark(Resync(source="uevent", reason="receive buffer overrun"))
        loop.inbox.mark(MountsChanged(source="mounts"))
        await trio.sleep(5)
        assert loop.reader.looks
        assert loop.inventories.number == number
