"""A program that works a USB device itself: `python -m tests.vm.inside.detach 1 5 0`.

It takes an interface, given as bus, device number and interface, from its driver, as programs do
that use libusb, and does not give it back.
"""

import sys

import usb.backend.libusb1
import usb.core

LIBRARY = "libusb-1.0.so.0"
"""By its name: to look for it takes programs that a container lacks."""


def main(bus: int, number: int, interface: int) -> None:
    """Detaches the driver."""
    backend = usb.backend.libusb1.get_backend(find_library=lambda _: LIBRARY)
    device = usb.core.find(bus=bus, address=number, backend=backend)
    device.detach_kernel_driver(interface)


main(*map(int, sys.argv[1:]))
