"""Device numbers of USB buses, given out as the kernel does.

A USB device gets a number when it is enumerated, and another one each time it comes back: the
kernel counts on, and begins again at the lowest free number after 127, which is all that the seven
bits on the wire hold. So a device that is pulled out and plugged in at once has a new usbfs node.

This file counts. Who has which number is told by the usbfs nodes of a snapshot.
"""

from collections.abc import Iterable
from itertools import chain

from liken_events.core.model.delivery import bus_node
from liken_events.core.model.snapshot import Device, Node

LAST = 127


class UsbNumbers:
    """The numbers of all buses of a machine."""

    def __init__(self) -> None:
        self._last: dict[int, int] = {}

    def learn(self, devices: Iterable[Device]) -> None:
        """Notes numbers that were given; of several at once, the highest was the last."""
        self._last |= dict(sorted(_numbers(devices)))

    def give(self, bus: int, devices: Iterable[Device]) -> int:
        """The next number on a bus.

        Args:
            bus: number of the bus, from 1.
            devices: what is on the machine now.

        Raises:
            LookupError: the bus has no free number.
        """
        taken = {number for on, number in _numbers(devices) if on == bus}
        after = self._last.get(bus, 0) + 1
        for number in chain(range(after, LAST + 1), range(1, after)):
            if number not in taken:
                return number
        raise LookupError(f"USB bus {bus} has no free number")


def bus_of(address: str) -> int:
    """The bus in a USB address such as `1-2` or `1-2:1.0`."""
    return int(address.partition("-")[0])


def renumbered(node: Node | None, number: int) -> Node | None:
    """The usbfs node of a device that got another number; None stays None."""
    return None if node is None else bus_node(node.path.split("/")[-2], str(number))


def _numbers(devices: Iterable[Device]) -> Iterable[tuple[int, int]]:
    for device in devices:
        if device.bus_node is not None:
            bus, number = device.bus_node.path.split("/")[-2:]
            yield int(bus), int(number)
