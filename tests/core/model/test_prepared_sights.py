"""How held devices are found to stand: what a look makes of them."""

from dataclasses import replace

import pytest

from liken_events.core.model.device import Reason
from liken_events.core.model.names import printable
from liken_events.core.model.prepared import (
    NO_ALIASES,
    Aliases,
    PreparedDevice,
    Presence,
    Sight,
    look_at,
    resolve,
)
from liken_events.core.model.snapshot import Device, Node
from tests.core.model.test_prepared import (
    AUX,
    BUS,
    BY_PROGRAM,
    CARD,
    DETACHED,
    GPU,
    LOADED,
    LOADER,
    NVME,
    OTHER,
    PORT,
    RADIO,
    RENDER,
    STICK,
    allocated,
    refusal,
    usbfs,
    withheld_by,
)
from tests.fakes.devices import tty, usb
from tests.fakes.held import held, judged


def sight(presence: Presence, nodes: tuple[Node, ...] = (), found: str = "10c4:ea60") -> Sight:
    return Sight(presence=presence, nodes=nodes, found=found)


MOVED = usb("1-2:1.0", "10c4:ea60", "ff0000", "cp210x", 9, nodes=[tty("ttyUSB4", 4)])
UNREADABLE = replace(STICK, vendor=None, product=None)
THERE, GONE = Presence.THERE, Presence.AWAY
OFF, SWAPPED = Presence.DETACHED, Presence.REPLACED
AMD = "1002:73e3"


@pytest.mark.parametrize(
    ("mine", "device", "expected"),
    [
        (held(STICK), None, sight(GONE, found="")),
        (held(GPU, "-display"), None, sight(GONE, found="")),
        # There: with the nodes of now.
        (held(STICK), STICK, sight(THERE, (usbfs(STICK), PORT))),
        (held(STICK), MOVED, sight(THERE, (usbfs(MOVED), tty("ttyUSB4", 4)))),
        (held(RADIO), RADIO, sight(THERE, (usbfs(RADIO),), "8087:0aaa")),
        (held(GPU), GPU, sight(THERE, (RENDER,), AMD)),
        (held(GPU, "-display"), GPU, sight(THERE, (CARD,), AMD)),
        (held(GPU, "-i2c-dev"), GPU, sight(THERE, (BUS,), AMD)),
        (held(GPU, "-drm-dp-aux-dev"), GPU, sight(THERE, (AUX,), AMD)),
        # Detached: a program works it through its usbfs node.
        (held(STICK), DETACHED, sight(OFF, (usbfs(STICK),))),
        (held(STICK), BY_PROGRAM, sight(OFF, (usbfs(STICK),))),
        (held(RADIO), replace(RADIO, driver=None), sight(OFF, (usbfs(RADIO),), "8087:0aaa")),
        (held(RADIO), replace(RADIO, driver="usbfs"), sight(OFF, (usbfs(RADIO),), "8087:0aaa")),
        # Without a driver, and nothing to work it through.
        (held(STICK), replace(DETACHED, bus_node=None), sight(GONE)),
        (held(STICK), replace(STICK, driver=None), sight(GONE)),
        (held(GPU), replace(GPU, driver=None, nodes=()), sight(GONE, found=AMD)),
        (held(GPU, "-display"), replace(GPU, driver=None), sight(GONE, found=AMD)),
        (held(GPU, "-display"), replace(GPU, nodes=(RENDER,)), sight(GONE, found=AMD)),
        # Another model, whatever nodes it has.
        (held(STICK), OTHER, sight(SWAPPED, found="0403:6010")),
        (held(STICK), replace(OTHER, driver=None, nodes=()), sight(SWAPPED, found="0403:6010")),
        (held(STICK), replace(STICK, product="ea61"), sight(SWAPPED, found="10c4:ea61")),
        (held(STICK), UNREADABLE, sight(SWAPPED, found="-:-")),
        (held(UNREADABLE), UNREADABLE, sight(THERE, (usbfs(STICK), PORT), "-:-")),
        (held(LOADER), LOADED, sight(SWAPPED, found="18d1:9302")),
    ],
)
def test_how_a_held_device_stands(
    mine: PreparedDevice, device: Device | None, expected: Sight
) -> None:
    found = look_at(mine, None if device is None else judged(device))
    assert found == expected
    assert found.is_usable is (expected.presence in (THERE, OFF))


def test_a_part_of_a_usb_gpu_does_not_stand_for_the_usbfs_node() -> None:
    """A DisplayLink adapter: its primary alone carries that node."""
    adapter = usb("1-3:1.0", "17e9:6006", "ff0000", "udl", 4, nodes=[CARD, RENDER])
    detached = judged(replace(adapter, driver=None, nodes=()))
    assert look_at(held(adapter), detached).presence is Presence.DETACHED
    assert look_at(held(adapter, "-display"), detached).presence is Presence.AWAY


@pytest.mark.parametrize("reason", [Reason.IN_USE, Reason.STORAGE_UNKNOWN])
def test_what_the_machine_does_with_a_held_disk_does_not_take_it_away(reason: Reason) -> None:
    assert look_at(held(NVME), withheld_by(reason)).nodes == held(NVME).nodes


@pytest.mark.parametrize("reason", [Reason.IGNORED, Reason.SAME_NAME, Reason.OVER_LIMIT])
def test_what_is_no_longer_offered_stays_with_who_holds_it(reason: Reason) -> None:
    judgement = withheld_by(reason)
    assert look_at(held(judgement.device), judgement).presence is Presence.THERE


def test_aliases_are_groups_and_nothing_beyond_them() -> None:
    chain = Aliases(groups=(frozenset({"a:1", "b:2"}), frozenset({"b:2", "c:3"})))
    assert chain.same("a:1", "b:2")
    assert chain.same("b:2", "a:1")
    assert chain.same("x:9", "x:9")
    assert not chain.same("a:1", "c:3")
    assert not chain.same("a:1", "x:9")
    assert not NO_ALIASES.same("a:1", "b:2")


def test_a_model_can_be_printed() -> None:
    odd = judged(replace(STICK, vendor="\x1b[31m", product="\u202e"))
    assert look_at(held(STICK), odd).found == "\\x1b[31m:\\u202e"
    said = refusal(resolve(allocated(STICK), odd, held(STICK)))
    assert said == printable(said)
