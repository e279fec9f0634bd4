"""Clutter: what a walk has to pass by. That it changes nothing that a scan finds is tested in
`test_tree.py`."""

import pytest

from liken_events.simulate import clutter
from liken_events.simulate.hardware import children, own, usb_device
from liken_events.simulate.kobjects import Kobject
from tests.fakes.devices import pci, root_hub, scsi_disk, tty, usb

STICK = usb("1-1:1.0", "10c4:ea60", "ff0000", "cp210x", 4, nodes=[tty("ttyUSB0", 0)])
DISK = usb("1-2:1.0", "0781:5581", "080650", "usb-storage", 5, nodes=scsi_disk("", 6, 1, 1))
RADIO = usb("1-3:1.0", "8087:0aaa", "e00101", "btusb", 6)
GPU = pci("0000:00:02.0", "8086:3e92", "030000", "i915")


def named(objects: list[Kobject], name: str) -> Kobject:
    return next(item for item in objects if item.name == name and item.subsystem != "usb-serial")


@pytest.mark.parametrize("item", [own(GPU), own(STICK), usb_device([STICK]), *children(DISK)])
def test_every_directory_has_power_and_nothing_that_tells_what_a_device_is(item: Kobject) -> None:
    files = clutter.files(item)

    assert "power/control" in files
    assert not {"dev", "uevent", "subsystem", "driver", "modalias", *dict(item.attributes)} & {
        *files
    }


def test_usb_devices_and_interfaces_have_endpoints_that_look_like_objects() -> None:
    assert clutter.files(own(STICK))["ep_81/uevent"] == "DEVTYPE=usb_endpoint"
    assert "ep_00/uevent" in clutter.files(usb_device([STICK]))
    assert "ep_81/dev" not in clutter.files(own(STICK))


def test_the_directory_of_a_node_links_back_to_its_parent() -> None:
    found = named(children(STICK), "ttyUSB0")
    disk = named(children(DISK), "sdb")

    assert clutter.links(found) == {"device": f"{STICK.path}/ttyUSB0"}
    assert clutter.links(disk) == {"device": disk.path.removesuffix("/block/sdb")}


def test_partitions_and_bus_devices_have_no_such_link() -> None:
    assert clutter.links(named(children(DISK), "sdb1")) == {}
    assert clutter.links(own(GPU)) == {}
    assert clutter.links(Kobject(path="/devices/virtual/block/dm-0", subsystem="block")) == {}


def test_a_radio_has_nodes_below_it_that_are_somebody_elses() -> None:
    below = list(clutter.below(RADIO))

    assert {item.subsystem for item in below} >= {"bluetooth", "input", "hidraw"}
    assert all(item.path.startswith(f"{RADIO.path}/bluetooth/hci0") for item in below)


def test_only_the_first_interface_of_a_radio_has_them() -> None:
    second = usb("1-3:1.1", "8087:0aaa", "e00101", "btusb", 6)

    assert not [*clutter.below(second), *clutter.below(STICK), *clutter.below(root_hub(1, 2))]
