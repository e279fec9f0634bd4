"""Which device a kernel path belongs to.

A uevent names a directory: of a PCI function, of a USB device, of one of its interfaces, or of
something that a driver registered far below. What is published are PCI functions and USB
interfaces, so every path has to be brought to one of those.

This file reads paths. It needs no look at the machine for addresses of the usual form, and takes
the paths that were read before for anything else.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

from liken_events.core.model.snapshot import Key

_PCI = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
_USB_INTERFACE = re.compile(r"\d+-[\d.]+:\d+\.\d+")
_USB_DEVICE = re.compile(r"usb\d+|\d+-\d+(\.\d+)*")


@dataclass(frozen=True, slots=True)
class Own:
    """The path is the device's own directory."""

    key: Key


@dataclass(frozen=True, slots=True)
class Below:
    """The path lies below the device's directory, and below no nearer one."""

    key: Key


@dataclass(frozen=True, slots=True)
class UsbDevice:
    """The path is that of a USB device, whose interfaces (directories right below it) share its
    strings and node."""

    path: str


Subject: TypeAlias = Own | Below | UsbDevice


def subject(path: str, known: Mapping[str, Key]) -> Subject | None:
    """The nearest device at or above a kernel path; None if it lies below no bus that is
    published.

    Args:
        path: such as `/devices/pci0000:00/0000:00:14.0/usb1/1-2/1-2:1.0/ttyUSB0/tty/ttyUSB0`.
        known: paths of the devices that were read, to their keys.
    """
    here = path
    while here:
        above, _, name = here.rpartition("/")
        key = known.get(here) or _key(name)
        if key is not None:
            return Own(key) if here == path else Below(key)
        if _USB_DEVICE.fullmatch(name):
            # Something below a USB device and below none of its interfaces (an endpoint) matters
            # to nobody.
            return UsbDevice(here) if here == path else None
        here = above
    return None


def _key(name: str) -> Key | None:
    if _PCI.fullmatch(name):
        return Key(bus="pci", address=name)
    if _USB_INTERFACE.fullmatch(name):
        return Key(bus="usb", address=name)
    return None
