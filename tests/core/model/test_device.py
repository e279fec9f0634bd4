from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from liken_events.core.model.device import (
    Cause,
    Difference,
    Inventory,
    Judgement,
    PublishedDevice,
    Reason,
    difference,
)
from liken_events.core.model.publish import inventory
from liken_events.core.model.snapshot import Device, Key, Node
from tests.fakes.machines import homelab


def offer(name: str, *paths: str) -> PublishedDevice:
    return PublishedDevice(
        name=name,
        key=Key(bus="usb", address=name),
        nodes=tuple(Node(path=path) for path in paths),
    )


A, B, C = offer("a"), offer("b"), offer("c")


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ((), (), Difference()),
        ((A, B), (B, A), Difference()),
        ((), (B, A), Difference(added=(A, B))),
        ((B, A), (), Difference(removed=(A, B))),
        ((A,), (offer("a", "/dev/x"),), Difference(changed=((A, offer("a", "/dev/x")),))),
        (
            (B, A),
            (C, offer("b", "/dev/x")),
            Difference(added=(C,), changed=((B, offer("b", "/dev/x")),), removed=(A,)),
        ),
    ],
)
def test_the_difference_between_two_offers_goes_by_name(
    before: tuple[PublishedDevice, ...],
    after: tuple[PublishedDevice, ...],
    expected: Difference,
) -> None:
    found = difference(before, after)
    assert found == expected
    assert bool(found) == (expected != Difference())


offers = st.lists(
    st.builds(offer, st.sampled_from("abcdef"), st.sampled_from(["/dev/x", "/dev/y"])),
    unique_by=lambda device: device.name,
)


@given(offers, offers)
def test_who_knows_the_old_offer_and_is_told_the_difference_knows_the_new_one(
    before: list[PublishedDevice], after: list[PublishedDevice]
) -> None:
    told = difference(before, after)
    known = {device.name: device for device in before}
    for gone in told.removed:
        assert known.pop(gone.name) == gone
    for old, new in told.changed:
        assert known[old.name] == old != new
        known[new.name] = new
    for device in told.added:
        assert device.name not in known
        known[device.name] = device
    assert known == {device.name: device for device in after}


def test_an_inventory_finds_a_device_by_name_and_a_judgement_by_key() -> None:
    found = inventory(homelab())
    assert sorted(found.by_name()) == [device.name for device in found.offered]
    assert all(found.by_name()[device.name] is device for device in found.offered)
    for judgement in found.judgements:
        assert found.judgement(judgement.device.key) is judgement
    for key in (
        Key(bus="pci", address="0"),
        Key(bus="usb", address="1-2"),
        Key(bus="usb", address="9"),
    ):
        assert found.judgement(key) is None
    assert Inventory().judgement(Key(bus="pci", address="0")) is None


def test_how_an_inventory_came_about_makes_no_difference() -> None:
    key = Key(bus="usb", address="1-2:1.0")
    plain = Inventory(
        offered=(A,), judgements=(Judgement(device=Device(key=key, path="/devices/x")),)
    )
    told = replace(plain, causes={key: Cause(text="bind 1-2:1.0", at=2.0)})
    assert plain == told
    assert plain != replace(plain, offered=())
    assert plain != replace(plain, judgements=())


def test_equal_devices_are_one_in_a_set_and_different_ones_are_not() -> None:
    assert {A, offer("a"), B, offer("a", "/dev/x")} == {A, B, offer("a", "/dev/x")}
    assert hash(A) == hash(offer("a"))


def test_reasons_are_words_for_commands() -> None:
    assert {reason.value for reason in Reason} == {
        "no-driver",
        "bus-structure",
        "no-nodes",
        "in-use",
        "storage-unknown",
        "ignored",
        "same-name",
        "over-limit",
    }
