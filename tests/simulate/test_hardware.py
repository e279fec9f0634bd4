"""Devices as kernel objects: what is known of the levels between them, and what a USB device tells
of itself."""

from dataclasses import replace

import pytest

from liken_events.core.model.snapshot import Disk, Node
from liken_events.simulate.hardware import (
    children,
    hubs_above,
    is_partition,
    own,
    usb_device,
    virtual_disk,
)
from tests.fakes import machines
from tests.fakes.devices import dp_aux, drm, event, hidraw, pci, scsi_disk, snd, tty, usb

STICK = usb(
    "1-1.2:1.0",
    "10c4:ea60",
    "ff0000",
    "cp210x",
    4,
    words=("ITead", "Sonoff"),
    serial="abc",
    nodes=[tty("ttyUSB0", 0)],
)
GPU = pci("0000:00:02.0", "8086:3e92", "030000", "i915")


def levels(device_nodes: list[Node]) -> list[tuple[str, str | None, str | None]]:
    """Name, subsystem and driver of all objects below a device with these nodes."""
    device = replace(GPU, nodes=tuple(device_nodes))
    return [(item.name, item.subsystem, item.driver) for item in children(device)]


def test_a_pci_function_says_what_its_bus_says() -> None:
    made = own(GPU)

    assert dict(made.attributes) == {
        "vendor": "0x8086",
        "device": "0x3e92",
        "class": "0x030000",
        "modalias": GPU.modalias,
    }
    assert made.lines() == (
        ("DRIVER", "i915"),
        ("PCI_CLASS", "30000"),
        ("PCI_ID", "8086:3E92"),
        ("PCI_SLOT_NAME", "0000:00:02.0"),
        ("MODALIAS", GPU.modalias),
    )


def test_a_usb_interface_says_what_its_bus_says() -> None:
    assert own(STICK).lines() == (
        ("DEVTYPE", "usb_interface"),
        ("DRIVER", "cp210x"),
        ("PRODUCT", "10c4/ea60/100"),
        ("TYPE", "0/0/0"),
        ("INTERFACE", "255/0/0"),
        ("MODALIAS", STICK.modalias),
    )


def test_a_usb_device_says_what_its_bus_says() -> None:
    made = usb_device([STICK])

    assert made.path == STICK.path.rpartition("/")[0]
    assert made.lines() == (
        ("MAJOR", "189"),
        ("MINOR", "3"),
        ("DEVNAME", "bus/usb/001/004"),
        ("DEVTYPE", "usb_device"),
        ("DRIVER", "usb"),
        ("PRODUCT", "10c4/ea60/100"),
        ("TYPE", "0/0/0"),
        ("BUSNUM", "001"),
        ("DEVNUM", "004"),
    )
    assert dict(made.attributes) == {
        "idVendor": "10c4",
        "idProduct": "ea60",
        "manufacturer": "ITead",
        "product": "Sonoff",
        "serial": "abc",
        "busnum": "1",
        "devnum": "4",
    }


def test_what_one_interface_could_not_read_another_may_know() -> None:
    blind = replace(STICK, serial=None, bus_node=None)

    made = usb_device([blind, STICK])

    assert dict(made.attributes)["serial"] == "abc"
    assert made.number == "189:3"


@pytest.mark.parametrize("modalias", [None, "", "usb:vZZZZ", "of:Nfoo"])
def test_a_modalias_that_says_nothing_leaves_out_what_it_would_have_said(
    modalias: str | None,
) -> None:
    names = {name for name, _ in own(replace(STICK, modalias=modalias)).lines()}

    assert not names & {"PRODUCT", "TYPE", "INTERFACE"}


def test_hubs_are_known_from_the_path_of_what_hangs_on_them() -> None:
    root, hub = hubs_above(usb_device([STICK]).path)

    assert (root.name, root.devname, root.number) == ("usb1", "bus/usb/001/001", "189:0")
    assert (hub.name, hub.devname) == ("1-1", None)
    assert {item.subsystem for item in (root, hub)} == {"usb"}


def test_a_serial_port_hangs_on_its_own_bus() -> None:
    assert [(item.name, item.subsystem, item.driver) for item in children(STICK)] == [
        ("ttyUSB0", "usb-serial", "cp210x"),
        ("ttyUSB0", "tty", None),
    ]


def test_hid_and_input_levels_are_objects_and_class_directories_are_not() -> None:
    hid = "0003:051D:0002.0001"

    assert levels([hidraw(hid, 0), event(f"{hid}/input", 3, 2)]) == [
        (hid, "hid", "hid-generic"),
        ("hidraw0", "hidraw", None),
        ("input3", "input", None),
        ("event2", "input", None),
    ]


def test_scsi_levels_are_objects() -> None:
    named = [(name, subsystem) for name, subsystem, _ in levels(scsi_disk("ata1/", 0, 0, 1))]

    assert named[:3] == [("host0", "scsi"), ("target0:0:0", "scsi"), ("0:0:0:0", "scsi")]
    assert ("sda1", "block") in named
    assert "ata1" not in dict(named)


def test_a_card_is_sound_or_drm_by_what_it_has() -> None:
    assert ("card0", "sound", None) in levels([snd(0, "controlC0", 2)])
    assert levels([drm("card0", 0), dp_aux(0, "card0-DP-1")]) == [
        ("card0", "drm", None),
        ("card0-DP-1", "drm", None),
        ("drm_dp_aux0", "drm_dp_aux_dev", None),
    ]


@pytest.mark.parametrize(
    ("disk", "name", "partition"),
    [
        ("sda", "sda1", True),
        ("nvme0n1", "nvme0n1p2", True),
        ("mmcblk0", "mmcblk0boot0", False),
        ("mmcblk0", "mmcblk0p1", True),
        ("loop1", "loop12", False),
    ],
)
def test_a_partition_is_named_for_its_disk(disk: str, name: str, partition: bool) -> None:
    whole = Node(path=f"/dev/{disk}", subsystem="block", place=f"block/{disk}")
    part = Node(path=f"/dev/{name}", subsystem="block", place=f"block/{disk}/{name}")

    assert is_partition(part, [whole, part]) is partition
    assert not is_partition(whole, [whole, part])
    assert not is_partition(part, [part])


def test_a_path_of_a_multipath_disk_has_no_number() -> None:
    hidden = [
        item
        for device in machines.server().devices
        for item in children(device)
        if item.name == "nvme0c0n1"
    ]

    assert [(item.subsystem, item.number) for item in hidden] == [("block", None)]
    assert hidden[0].path.endswith("/nvme/nvme0/nvme0c0n1")


def test_a_virtual_disk_is_a_block_device() -> None:
    made = virtual_disk(Disk(name="cciss!c0d0", number="104:0"), "/devices/virtual/block/x")

    assert (made.devname, made.devtype, made.number) == ("cciss/c0d0", "disk", "104:0")
