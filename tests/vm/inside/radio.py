"""A Bluetooth radio as a USB function: `python -m tests.vm.inside.radio DIRECTORY`.

FunctionFS makes a USB function of a program: it writes descriptors to `ep0` of a mounted
directory, and the function is there for as long as the file is open. One interface of class e0,
subclass 01, protocol 01 with an interrupt and two bulk endpoints is what `btusb` drives. The radio
never answers; for the kernel to make `hci0`, it need not.

Plugging it in is left to the tests.
"""

import os
import signal
import struct
import sys

DESCRIPTORS_MAGIC, STRINGS_MAGIC = 3, 2
HAS_FULL_SPEED, HAS_HIGH_SPEED = 1, 2

INTERFACE = struct.Struct("<9B")
ENDPOINT = struct.Struct("<4BHB")
INTERRUPT, BULK = 3, 2


def descriptors(bulk_bytes: int) -> bytes:
    """The interface and its endpoints: events, and data in and out."""
    return b"".join(
        [
            INTERFACE.pack(INTERFACE.size, 4, 0, 0, 3, 0xE0, 0x01, 0x01, 0),
            ENDPOINT.pack(ENDPOINT.size, 5, 0x81, INTERRUPT, 16, 4),
            ENDPOINT.pack(ENDPOINT.size, 5, 0x82, BULK, bulk_bytes, 0),
            ENDPOINT.pack(ENDPOINT.size, 5, 0x03, BULK, bulk_bytes, 0),
        ]
    )


def main(directory: str) -> None:
    """Is a radio until it is ended."""
    body = struct.pack("<2I", 4, 4) + descriptors(64) + descriptors(512)
    head = struct.pack("<3I", DESCRIPTORS_MAGIC, 12 + len(body), HAS_FULL_SPEED | HAS_HIGH_SPEED)
    control = os.open(os.path.join(directory, "ep0"), os.O_RDWR)
    os.write(control, head + body)
    os.write(control, struct.pack("<4I", STRINGS_MAGIC, 16, 0, 0))
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    signal.sigwait({signal.SIGTERM})


signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
main(sys.argv[1])
