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
import time
from collections.abc import Callable, Mapping
from queue import SimpleQueue
from typing import Any, Protocol, TypeAlias

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


Look: TypeAlias = Callable[[Mapping[str, str]], None]
"""Takes the properties of an event."""


def follow_uevents(tell: Tell, look: Look | None = None) -> None:
    """Tells every uevent of both groups from now on; `look` is called with each of the kernel's,
    at once, by a thread that nothing else keeps waiting."""
    for name, group in GROUPS.items():
        listener = socket.socket(
            socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, NETLINK_KOBJECT_UEVENT
        )
        listener.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, BUFFER_BYTES)
        listener.bind((0, group))
        heard: SimpleQueue[tuple[float, bytes]] = SimpleQueue()
        urgent = look is not None
        arguments = tell, name, heard, look if name == "kernel" else None
        threading.Thread(target=_hear, args=(listener, heard, urgent), daemon=True).start()
        threading.Thread(target=_tell, args=arguments, daemon=True).start()


def _hear(listener: socket.socket, heard: SimpleQueue[tuple[float, bytes]], urgent: bool) -> None:
    if urgent:
        run_first(2)
    while True:
        message = listener.recv(65536)
        heard.put((time.monotonic(), message))


def _tell(
    tell: Tell, group: str, heard: SimpleQueue[tuple[float, bytes]], look: Look | None
) -> None:
    if look is not None:
        run_first(1)
    while True:
        moment, message = heard.get()
        fields = properties(message)
        if look is not None:
            look(fields)
        raw = base64.b64encode(message).decode()
        tell(kind="uevent", time=moment, group=group, properties=fields, raw=raw)


def queued(tell: Tell) -> Tell:
    """The same, told later by a thread of its own: sending a record takes longer than making it.
    The moment is that of the call."""
    waiting: SimpleQueue[dict[str, Any]] = SimpleQueue()

    def put(**facts: Any) -> None:
        waiting.put({"time": time.monotonic(), **facts})

    def send() -> None:
        while True:
            tell(**waiting.get())

    threading.Thread(target=send, daemon=True).start()
    return put


def run_first(priority: int) -> None:
    """Has this thread run before all that have no such priority."""
    os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(priority))


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
