from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from liken_events.core.model.claims import DeviceHealth
from liken_events.core.model.health import health, merged
from liken_events.core.model.names import printable
from liken_events.core.model.prepared import PreparedDevice, Presence, Sight, look_at
from liken_events.core.model.snapshot import Device
from tests.core import generated
from tests.fakes.devices import drm, pci, tty, usb
from tests.fakes.held import held, judged, prepared_devices, sights

STICK = usb("1-2:1.0", "10c4:ea60", "ff0000", "cp210x", 7, nodes=[tty("ttyUSB0", 0)])
PAIR = replace(STICK, nodes=(tty("ttyUSB0", 0), tty("ttyUSB1", 1)))
RADIO = usb("1-4:1.0", "8087:0aaa", "e00101", "btusb", 3)
GPU = pci(
    "0000:03:00.0", "1002:73e3", "030000", "amdgpu",
    nodes=[drm("card0", 0), drm("renderD128", 128)],
)  # fmt: skip
NAME = "usb-1-2-1-0"


def moved(device: Device, devnum: int, port: int | None = None) -> Device:
    """The same unit, plugged in again."""
    bus = usb("1-2:1.0", "10c4:ea60", "ff0000", "cp210x", devnum).bus_node
    nodes = device.nodes if port is None else (tty(f"ttyUSB{port}", port),)
    return replace(device, bus_node=bus, nodes=nodes)


def detached(device: Device) -> Device:
    return replace(device, driver=None, nodes=())


def fares(mine: PreparedDevice, now: Device | None) -> DeviceHealth:
    return health(mine, look_at(mine, None if now is None else judged(now)))


def well(name: str) -> DeviceHealth:
    return DeviceHealth(device=name, is_healthy=True, message="")


@pytest.mark.parametrize(
    ("mine", "now"),
    [
        (held(STICK), STICK),
        (held(RADIO), RADIO),
        (held(GPU), GPU),
        (held(GPU, "-display"), GPU),
        # The same numbers again: the nodes that were given work.
        (held(STICK), moved(STICK, 7, 0)),
        # More than was given is nobody's trouble.
        (held(STICK), PAIR),
        # A program works it, and has its usbfs node.
        (held(STICK), detached(STICK)),
        (held(STICK), replace(detached(STICK), driver="usbfs")),
        (held(RADIO), detached(RADIO)),
    ],
)
def test_a_device_is_healthy_while_what_was_given_works(mine: PreparedDevice, now: Device) -> None:
    assert fares(mine, now) == well(mine.name)


BACK = f"{NAME} came back as "
DEAD = ", which is dead: delete the pod"


@pytest.mark.parametrize(
    ("mine", "now", "message"),
    [
        (
            held(STICK),
            None,
            f"{NAME} (10c4:ea60) is not on this machine now; plug it in again",
        ),
        (
            held(GPU, "-display"),
            None,
            "pci-0000-03-00-0-display (1002:73e3) is not on this machine now; plug it in again",
        ),
        (
            held(STICK),
            replace(STICK, driver=None),
            f"{NAME} is there, but its driver is not bound or gives no device node",
        ),
        (
            held(GPU),
            detached(GPU),
            "pci-0000-03-00-0 is there, but its driver is not bound or gives no device node",
        ),
        (
            held(STICK),
            replace(STICK, vendor="0403"),
            f"{NAME} is another model now: 0403:ea60 instead of 10c4:ea60",
        ),
        # New numbers; of the old nodes some may be right still.
        (
            held(STICK),
            moved(STICK, 9, 4),
            (
                f"{BACK}/dev/bus/usb/001/009 /dev/ttyUSB4; "
                f"containers started before have /dev/bus/usb/001/007 /dev/ttyUSB0{DEAD}"
            ),
        ),
        (
            held(STICK),
            moved(STICK, 9),
            (
                f"{BACK}/dev/bus/usb/001/009 /dev/ttyUSB0; "
                f"containers started before have /dev/bus/usb/001/007{DEAD}"
            ),
        ),
        # One path, another number.
        (
            held(STICK),
            replace(STICK, nodes=(tty("ttyUSB0", 3),)),
            (
                f"{BACK}/dev/bus/usb/001/007 /dev/ttyUSB0; "
                f"containers started before have /dev/ttyUSB0{DEAD}"
            ),
        ),
        (
            held(STICK),
            replace(STICK, nodes=(replace(tty("ttyUSB0", 0), major=189),)),
            (
                f"{BACK}/dev/bus/usb/001/007 /dev/ttyUSB0; "
                f"containers started before have /dev/ttyUSB0{DEAD}"
            ),
        ),
        # One of two ports is missing.
        (
            held(PAIR),
            STICK,
            (
                f"{BACK}/dev/bus/usb/001/007 /dev/ttyUSB0; "
                f"containers started before have /dev/ttyUSB1{DEAD}"
            ),
        ),
        # Detached after it came back: the usbfs node is another.
        (
            held(STICK),
            detached(moved(STICK, 9)),
            (
                f"{BACK}/dev/bus/usb/001/009; "
                f"containers started before have /dev/bus/usb/001/007{DEAD}"
            ),
        ),
    ],
)
def test_what_is_wrong_is_said(mine: PreparedDevice, now: Device | None, message: str) -> None:
    assert fares(mine, now) == DeviceHealth(device=mine.name, is_healthy=False, message=message)


def test_a_block_device_is_no_character_device_of_the_same_number() -> None:
    given_node = tty("ttyUSB0", 0)
    mine = replace(held(STICK), given=(given_node,))
    now = Sight(presence=Presence.THERE, nodes=(replace(given_node, subsystem="block"),))
    assert not health(mine, now).is_healthy


def test_where_a_node_lies_below_its_device_does_not_matter() -> None:
    mine = held(STICK)
    nodes = tuple(replace(node, place=f"other/{node.place}") for node in mine.given)
    assert health(mine, Sight(presence=Presence.THERE, nodes=nodes)) == well(NAME)


def test_what_was_seen_last_does_not_count_but_what_was_given() -> None:
    """Containers that were started between two plugs keep what they were started with."""
    again = moved(STICK, 9, 4)
    mine = replace(held(STICK), nodes=held(again).nodes)
    assert not fares(mine, again).is_healthy
    assert fares(held(again), again) == well(NAME), "prepared again, for a new pod"


def test_each_device_is_told_once_in_order() -> None:
    found = [well("b"), well("a"), well("b")]
    assert merged(found) == (well("a"), well("b"))
    assert merged([]) == ()


def test_what_is_wrong_for_one_claim_is_told_and_the_first_of_several() -> None:
    bad = DeviceHealth(device="a", is_healthy=False, message="away")
    worse = replace(bad, message="another model")
    assert merged([well("a"), bad, well("a")]) == (bad,)
    assert merged([bad, worse]) == (bad,)
    assert merged([worse, well("b"), bad]) == (worse, well("b"))


@given(prepared_devices, sights())
def test_a_device_is_unhealthy_with_a_message_and_healthy_without(
    mine: PreparedDevice, seen: Sight
) -> None:
    found = health(mine, seen)
    assert found.device == mine.name
    assert found.is_healthy is (found.message == "")
    assert found.message == printable(found.message)
    if not seen.is_usable:
        assert not found.is_healthy
    if seen.presence is Presence.THERE:
        now = {(n.path, n.major, n.minor, n.block) for n in seen.nodes}
        given_nodes = {(n.path, n.major, n.minor, n.block) for n in mine.given}
        assert found.is_healthy is (given_nodes <= now)


items = st.builds(
    DeviceHealth,
    device=st.sampled_from("abc"),
    is_healthy=st.booleans(),
    message=generated.texts,
)


@given(st.lists(items, max_size=6))
def test_of_several_claims_the_unlucky_one_counts(found: list[DeviceHealth]) -> None:
    told = merged(found)
    assert [item.device for item in told] == sorted({item.device for item in found})
    for item in told:
        assert item in found
        mine = [other for other in found if other.device == item.device]
        assert item.is_healthy is all(other.is_healthy for other in mine)
    assert merged(told) == told
