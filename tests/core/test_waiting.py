import pytest

from liken_events.core.backlog import Backlog
from liken_events.core.events import DeviceChanged
from liken_events.core.model.address import subject
from liken_events.core.model.machine import Machine
from liken_events.core.model.publish import Policy
from liken_events.core.model.snapshot import Device, Key
from liken_events.core.timing import Timing
from liken_events.core.waiting import Waiting
from tests.fakes.devices import pci, tty, usb
from tests.fakes.machines import machine

TIMING = Timing(quiet=1.0, ceiling=5.0, probing_usb=10.0, probing_pci=20.0, probing_disk=30.0)

STICK = usb("1-1:1.0", "10c4:ea60", "ff0000", "cp210x", 2, nodes=[tty("ttyUSB0", 0)])
PAIR = [usb(f"1-4:1.{number}", "0403:6010", "ffffff", "ftdi_sio", 5) for number in (0, 1)]
CARD = pci("0000:03:00.0", "1b36:0002", "070002", "serial", nodes=[tty("ttyS4", 68)])
PAIR_PATH = PAIR[0].path.rpartition("/")[0]


class Room:
    """A machine with the devices, and what waits of them."""

    def __init__(self) -> None:
        self.present = {device.key for device in (STICK, *PAIR, CARD)}
        self.backlog = Backlog()
        self.machine = Machine(Policy())
        self.machine.replace(machine([STICK, *PAIR, CARD]))
        self.waiting = Waiting(TIMING, self.machine, self.present.__contains__, self.backlog)

    def say(self, path: str, action: str, at: float) -> list[Key]:
        return self.tell(DeviceChanged(path=path, action=action), at)

    def tell(self, trigger: DeviceChanged, at: float) -> list[Key]:
        return self.waiting.note(trigger, subject(trigger.path, self.machine.paths), at)

    def due(self, now: float, *busy: Key) -> set[Key]:
        return set(self.waiting.take_due(now, busy))


@pytest.fixture
def room() -> Room:
    return Room()


def test_an_event_below_a_device_puts_it_off_and_no_other(room: Room) -> None:
    assert room.say(f"{STICK.path}/ttyUSB0", "add", 1.0) == []
    assert room.waiting.keys(1.0) == {STICK.key}
    assert STICK.key in room.waiting
    assert CARD.key not in room.waiting
    assert room.waiting.deadline() == 2.0
    assert room.due(2.0) == {STICK.key}
    assert room.waiting.deadline() is None


@pytest.mark.parametrize(("device", "probing"), [(STICK, 10.0), (CARD, 20.0)])
def test_a_device_that_was_added_waits_for_its_driver(
    room: Room, device: Device, probing: float
) -> None:
    room.say(device.path, "add", 0.0)
    assert room.waiting.deadline() == probing
    room.say(device.path, "bind", 3.0)
    assert room.waiting.deadline() == 4.0


def test_an_add_that_somebody_made_announces_no_driver(room: Room) -> None:
    room.tell(DeviceChanged(path=STICK.path, action="add", synthetic=True), 0.0)
    assert room.waiting.deadline() == 1.0


@pytest.mark.parametrize("end", ["bind", "remove"])
def test_a_part_that_has_a_driver_of_its_own_is_waited_for(room: Room, end: str) -> None:
    part = f"{STICK.path}/host0/target0:0:0/0:0:0:0"
    room.tell(DeviceChanged(path=part, action="add", awaits_driver=True), 0.0)
    assert room.waiting.deadline() == 30.0
    room.say(part, end, 3.0)
    assert room.waiting.deadline() == 4.0


def test_what_is_gone_waits_no_more(room: Room) -> None:
    room.say(STICK.path, "change", 0.0)
    room.present.clear()
    assert room.say(STICK.path, "remove", 0.1) == [STICK.key]
    assert room.waiting.keys(0.1) == set()


def test_a_removal_of_the_device_that_was_here_before_is_none(room: Room) -> None:
    assert room.say(STICK.path, "remove", 0.0) == []
    assert room.waiting.deadline() == 1.0


def test_a_usb_device_stands_for_all_its_interfaces(room: Room) -> None:
    room.say(PAIR_PATH, "change", 0.0)
    assert room.due(1.0) == {device.key for device in PAIR}
    room.present.remove(PAIR[1].key)
    assert room.say(PAIR_PATH, "remove", 2.0) == [PAIR[1].key]
    assert room.waiting.keys(2.0) == {PAIR[0].key}


def test_an_event_of_no_bus_concerns_nobody(room: Room) -> None:
    assert room.say("/devices/virtual/tty/tty1", "remove", 0.0) == []
    assert room.waiting.keys(0.0) == set()


def test_a_device_of_which_a_look_is_under_way_is_due_again_later(room: Room) -> None:
    for device in (STICK, CARD):
        room.say(device.path, "change", 0.0)
    assert room.due(1.0, STICK.key) == {CARD.key}
    assert room.waiting.deadline() == 2.0
    assert room.due(2.0) == {STICK.key}


def test_a_device_is_not_due_while_udevd_is_behind_with_it(room: Room) -> None:
    room.backlog.heard(PAIR_PATH, 1, 0.0)
    assert room.waiting.keys(0.0) == {device.key for device in PAIR}
    assert room.waiting.deadline() is None  # udevd's event will be one
    for device in (*PAIR, STICK):
        room.say(device.path, "change", 0.0)
    assert room.due(1.0) == {STICK.key}
    room.backlog.told(PAIR_PATH, 1, 1.5)
    assert room.due(2.0) == {device.key for device in PAIR}


def test_after_a_full_look_those_that_udevd_is_behind_with_are_looked_at_anew(room: Room) -> None:
    room.backlog.heard(CARD.path, 1, 0.0)
    room.waiting.note_behind(0.5, "full look")
    room.backlog.told(CARD.path, 1, 1.0)
    [(key, burst)] = room.waiting.take_due(1.5, ()).items()
    assert (key, burst.text) == (CARD.key, "full look")
