"""Records of what the kernel, udevd and the agent do, with the moment of each.

The kernel multicasts a uevent to netlink group 1, udevd its own version of it to group 2. The
agent replaces whole files by rename, which inotify tells. Each recorder is a thread that tells
one record for each event.

Whether anything was missed is told by the sequence numbers of uevents and the generations of
slices, which whoever reads the records checks.
"""

import base64
import os
import socket
import struct
import threading
from typing import Any, Protocol

from inotify_simple import INotify, flags

GROUPS = {"kernel": 1, "udev": 2}
NETLINK_KOBJECT_UEVENT = 15
SO_RCVBUFFORCE = 33
BUFFER_BYTES = 64 << 20

UDEV_MAGIC = b"libudev\0"
UDEV_OFFSET = struct.Struct("=I")
"""Where the properties begin: at byte 16 of a message of udevd's."""


class Tell(Protocol):
    """Sends one record."""

    def __call__(self, **facts: Any) -> None: ...


def follow_uevents(tell: Tell) -> None:
    """Tells every uevent of both groups from now on."""
    for name, group in GROUPS.items():
        listener = socket.socket(
            socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, NETLINK_KOBJECT_UEVENT
        )
        listener.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, BUFFER_BYTES)
        listener.bind((0, group))
        threading.Thread(target=_hear, args=(tell, name, listener), daemon=True).start()


def _hear(tell: Tell, group: str, listener: socket.socket) -> None:
    while True:
        message = listener.recv(65536)
        fields = properties(message)
        tell(
            kind="uevent",
            group=group,
            properties=fields,
            raw=base64.b64encode(message).decode() if group == "kernel" else None,
        )


def properties(message: bytes) -> dict[str, str]:
    """What a message of either group says."""
    start = 0
    if message.startswith(UDEV_MAGIC):
        (start,) = UDEV_OFFSET.unpack_from(message, 16)
    parts = message[start:].decode(errors="replace").split("\0")
    return dict(part.split("=", 1) for part in parts if "=" in part)


def follow_files(tell: Tell, directory: str) -> None:
    """Tells each version of each file of a directory: its text, or None when it went."""
    os.makedirs(directory, exist_ok=True)
    watch = INotify()
    watch.add_watch(directory, flags.MOVED_TO | flags.DELETE)
    threading.Thread(target=_look, args=(tell, directory, watch), daemon=True).start()


def _look(tell: Tell, directory: str, watch: INotify) -> None:
    while True:
        for event in watch.read():
            text: str | None = None
            if event.mask & flags.MOVED_TO:
                try:
                    with open(os.path.join(directory, event.name), encoding="utf-8") as file:
                        text = file.read()
                except FileNotFoundError:
                    continue
            tell(kind="file", directory=directory, name=event.name, text=text)
