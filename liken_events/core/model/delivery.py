"""Which nodes a device delivers: the rules of the walk through its part of sysfs.

The kernel shows everything that a driver registered below the device's own directory, and nests
other devices there too: a USB controller's directory holds every device on its ports, a Bluetooth
radio's holds the gamepad that is connected to it. Those are somebody else's.

This file says where a walk stops and what a directory with a `dev` file stands for. The walk
itself, with its races against unplugging, is in `sources.sysfs`; how nodes are divided among
published devices, in `core.model.shapes`.
"""

import re

from liken_events.core.model.snapshot import Node

FOREIGN = frozenset({"pci", "usb", "bluetooth"})
"""Subsystems of nested directories that are devices of their own: the walk does not enter them."""

_USB_MAJOR = 189
"""Major number of usbfs nodes (`USB_DEVICE_MAJOR` in the kernel); minors count 128 devices to a
bus, from 0."""

_MULTIPATH = re.compile(r"nvme(\d+)c\d+(n\d+)")


def node(*, uevent: str, dev: str, subsystem: str | None, place: str) -> Node | None:
    """The node of a directory, from the texts of its `uevent` and `dev` files; None if they name
    none."""
    name = uevent_value(uevent, "DEVNAME")
    numbers = dev.strip().split(":")
    if not name or len(numbers) != 2 or not all(_is_number(number) for number in numbers):
        return None
    return Node(
        path="/dev/" + name.removeprefix("/dev/"),
        subsystem=subsystem,
        major=int(numbers[0]),
        minor=int(numbers[1]),
        place=place,
    )


def bus_node(busnum: str | None, devnum: str | None) -> Node | None:
    """The usbfs node `/dev/bus/usb/BBB/DDD` of a USB device, from its `busnum` and `devnum`
    files."""
    if busnum is None or devnum is None:
        return None
    bus, device = busnum.strip(), devnum.strip()
    if not _is_number(bus) or not _is_number(device):
        return None
    return Node(
        path=f"/dev/bus/usb/{int(bus):03d}/{int(device):03d}",
        subsystem="usb",
        major=_USB_MAJOR,
        minor=max(0, (int(bus) - 1) * 128 + int(device) - 1),
    )


def uevent_value(uevent: str, key: str) -> str | None:
    """The value of one line of a `uevent` file."""
    for line in uevent.splitlines():
        name, _, value = line.partition("=")
        if name == key:
            return value
    return None


def served_disk(hidden: str) -> str | None:
    """The disk that a hidden block device is one path to: `nvme0c1n2` serves `nvme0n2`."""
    match = _MULTIPATH.fullmatch(hidden)
    return f"nvme{match[1]}{match[2]}" if match else None


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) <= 9
