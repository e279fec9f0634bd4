"""A program that takes a Bluetooth radio for itself: `python -m tests.vm.inside.hci 0`.

It binds a socket to the user channel of `hci0`, as a Bluetooth stack in a container does that
wants no daemon on the host. The kernel asks for CAP_NET_ADMIN, and for the host's network
namespace: in others there is no AF_BLUETOOTH.
"""

import ctypes
import os
import socket
import struct
import sys

AF_BLUETOOTH = 31
"""Not every Python was built with it."""

BTPROTO_HCI = 1
HCI_CHANNEL_USER = 1

ADDRESS = struct.Struct("=3H")
"""`struct sockaddr_hci`: family, radio, channel. Python's own bind knows no channel."""


def main(number: int) -> None:
    """Says whether it has the radio, or the name of the error."""
    libc = ctypes.CDLL(None, use_errno=True)
    with socket.socket(AF_BLUETOOTH, socket.SOCK_RAW, BTPROTO_HCI) as sock:
        address = ADDRESS.pack(AF_BLUETOOTH, number, HCI_CHANNEL_USER)
        status = libc.bind(sock.fileno(), address, len(address))
        said = "bound" if status == 0 else os.strerror(ctypes.get_errno())
    sys.stdout.write(f"hci{number}: {said}\n")


main(int(sys.argv[1]))
