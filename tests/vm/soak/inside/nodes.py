"""Whose each device node is, as the kernel tells: `python -m tests.vm.soak.inside.nodes`.

One line for each node that comes or goes. Changes are dropped by a filter in the kernel: a flood
of them must not delay what counts here, since moments are compared.
"""

import ctypes
import json
import os
import re
import socket
import struct
import sys
import time

from tests.vm.inside.recorders import (
    BUFFER_BYTES,
    GROUPS,
    NETLINK_KOBJECT_UEVENT,
    SO_RCVBUFFORCE,
    properties,
)

SO_ATTACH_FILTER = 26
INSTRUCTION = struct.Struct("=HBBI")
NO_CHANGES = b"".join(
    (
        INSTRUCTION.pack(0x30, 0, 0, 0),  # load the first byte
        INSTRUCTION.pack(0x15, 0, 1, ord("c")),  # `change@…`; no other action begins so
        INSTRUCTION.pack(0x06, 0, 0, 0),
        INSTRUCTION.pack(0x06, 0, 0, 0xFFFFFFFF),
    )
)
FIRST = -10
"""The priority (nice): what is late here would be held against the agent."""

USB_DEVICE = re.compile(r"/usb\d+/([^/]+)")


def main() -> None:
    """Tells until it is ended. An overrun ends it, too: what was lost cannot be made up for."""
    os.nice(FIRST)
    listener = socket.socket(
        socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, NETLINK_KOBJECT_UEVENT
    )
    listener.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, BUFFER_BYTES)
    code = ctypes.create_string_buffer(NO_CHANGES, len(NO_CHANGES))
    program = struct.pack("@HP", len(NO_CHANGES) // INSTRUCTION.size, ctypes.addressof(code))
    listener.setsockopt(socket.SOL_SOCKET, SO_ATTACH_FILTER, program)
    listener.bind((0, GROUPS["kernel"]))
    tell({"ready": True})
    while True:
        fields = properties(listener.recv(65536))
        if fields.get("ACTION") in {"add", "remove"} and "DEVNAME" in fields:
            device = USB_DEVICE.search(fields["DEVPATH"])
            tell(
                {
                    "time": time.monotonic(),
                    "came": fields["ACTION"] == "add",
                    "path": f"/dev/{fields['DEVNAME']}",
                    "numbers": [int(fields["MAJOR"]), int(fields["MINOR"])],
                    "owner": device[1] if device else fields["DEVPATH"],
                }
            )


def tell(facts: dict[str, object]) -> None:
    sys.stdout.write(json.dumps(facts) + "\n")
    sys.stdout.flush()


main()
