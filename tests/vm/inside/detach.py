"""A program that works a USB device itself: `python -m tests.vm.inside.detach 1 5 0`.

It takes an interface, given as bus, device number and interface, from its driver, as programs do
that use libusb, and does not give it back.
"""

import sys

import usb.core


def main(bus: int, number: int, interface: int) -> None:
    """Detaches the driver."""
    device = usb.core.find(bus=bus, address=number)
    device.detach_kernel_driver(interface)


main(*map(int, sys.argv[1:]))
