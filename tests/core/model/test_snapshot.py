from dataclasses import FrozenInstanceError

import pytest
from hypothesis import given
from hypothesis import strategies as st

from liken_events.core.model.snapshot import (
    Device,
    Disk,
    Key,
    Node,
    Snapshot,
    Use,
    sort_devices,
    sort_disks,
    sort_nodes,
    sort_uses,
)
from tests.core import generated
from tests.fakes.devices import usb
from tests.fakes.machines import homelab


def stick(address: str, serial: str | None, *words: str | None) -> Device:
    return usb(
        address, "10c4:ea60", "ff0000", "cp210x", 2, serial=serial, words=(words[0], words[1])
    )


def test_devices_are_in_the_order_of_bus_and_address() -> None:
    keys = [
        Key(bus="usb", address="1-1:1.0"),
        Key(bus="pci", address="0000:00:1f.0"),
        Key(bus="pci", address="0000:00:02.0"),
    ]
    found = [Device(key=key, path="/devices/x") for key in keys]
    assert sort_devices(found) == (found[2], found[1], found[0])


def test_nodes_are_in_the_order_of_path_and_place() -> None:
    found = [Node(path="/dev/b"), Node(path="/dev/a", place="y"), Node(path="/dev/a", place="x")]
    assert sort_nodes(found) == (found[2], found[1], found[0])


def test_disks_are_in_the_order_of_their_names() -> None:
    found = [Disk(name="sdb", number="8:16"), Disk(name="sda", number="8:0")]
    assert sort_disks(found) == (found[1], found[0])


def test_uses_are_in_order_and_each_is_there_once() -> None:
    home = Use(what="/home", fstype="ext4", source="/dev/sda1", number="8:1")
    over = Use(what="/home", fstype="ext4", source="/dev/sda2", number="8:2")
    lost = Use(what="/home", fstype="ext4", source="/dev/sda2")
    root = Use(what="/", fstype="ext4", source="/dev/sdb1", number="8:17")
    assert sort_uses([over, home, lost, root, home]) == (root, home, lost, over)


@given(
    st.lists(generated.uses, max_size=5).flatmap(
        lambda found: st.tuples(st.just(found), st.permutations(found))
    )
)
def test_the_order_of_uses_does_not_depend_on_the_order_of_reading(
    found: tuple[list[Use], list[Use]],
) -> None:
    assert sort_uses(found[0]) == sort_uses(found[1])


def test_the_kernel_puts_all_block_devices_in_one_subsystem() -> None:
    assert Node(path="/dev/sda", subsystem="block").block
    assert not Node(path="/dev/sg0", subsystem="scsi_generic").block
    assert not Node(path="/dev/sda").block


def test_a_snapshot_cannot_be_changed() -> None:
    with pytest.raises(FrozenInstanceError):
        homelab().devices[0].driver = "other"  # type: ignore[misc]


def test_without_serials_twins_stay_twins_and_others_stay_apart() -> None:
    machine = Snapshot(
        devices=(
            stick("1-1:1.0", "0001", "Silicon Labs", None),
            stick("1-2:1.0", "0001", "Silicon Labs", None),
            stick("1-3:1.0", "A1B2", "Silicon Labs", None),
            stick("1-4:1.0", None, "Silicon Labs", None),
        )
    )
    serials = [device.serial for device in machine.without_serials().devices]
    assert serials == ["serial-1", "serial-1", "serial-2", None]


def test_a_serial_number_is_replaced_in_words_too_unless_it_is_a_common_one() -> None:
    machine = Snapshot(
        devices=(
            stick("1-1:1.0", "A1B2", "Maker A1B2", "A1B2 and 123"),
            stick("1-2:1.0", "123", "Other A1B2", None),
        )
    )
    first, second = machine.without_serials().devices
    assert (first.maker, first.model) == ("Maker serial-1", "serial-1 and 123")
    assert (second.maker, second.model) == ("Other serial-1", None)


def test_without_serials_nothing_else_is_changed() -> None:
    machine, scrubbed = homelab(), homelab().without_serials()
    assert scrubbed.storage == machine.storage
    for old, new in zip(machine.devices, scrubbed.devices, strict=True):
        assert (old.key, old.path, old.nodes, old.bus_node) == (
            new.key,
            new.path,
            new.nodes,
            new.bus_node,
        )
    assert scrubbed.without_serials() == scrubbed


serials = st.text(st.sampled_from("ABCDEF0123"), min_size=4, max_size=6)


@given(st.lists(st.tuples(serials, serials, serials), min_size=1, max_size=4))
def test_no_serial_number_is_left_anywhere(found: list[tuple[str, str, str]]) -> None:
    machine = Snapshot(
        devices=tuple(
            stick(f"1-{index + 1}:1.0", serial, f"Maker {one}{two}", f"{two} {one}")
            for index, (serial, one, two) in enumerate(found)
        )
    )
    for device in machine.without_serials().devices:
        for text in (device.serial, device.maker, device.model):
            assert text is not None
            assert not any(serial in text for serial, _, _ in found)
