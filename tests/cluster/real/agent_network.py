"""A network namespace for agents: made-up uevents reach nobody else, the API server is there.

A uevent that is sent in the machine's own namespace reaches the machine's udevd and all who listen
there. So agents that are to hear some are in a namespace of their own. The API server is on the
loopback of the machine's; here the same port of the other loopback leads to it.
"""

import ctypes
import fcntl
import os
import socket
import struct
import threading
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import Self, TypeVar

from liken_events.simulate.uevents import UeventSender
from tests.cluster.real.control_plane import LOOPBACK
from tests.cluster.real.processes import Process
from tests.cluster.real.programs import Programs

CLONE_NEWNET = 0x40000000
"""From `linux/sched.h`."""

SIOCGIFFLAGS, SIOCSIFFLAGS = 0x8913, 0x8914
"""From `linux/sockios.h`."""

IFF_UP = 1
"""From `linux/if.h`."""

FLAGS = struct.Struct("16sh14x")
"""`struct ifreq` with a name and flags."""

START_SECONDS = 10.0

CHUNK_BYTES = 65536

T = TypeVar("T")


class AgentNetwork:
    """The namespace. Use as a context manager, as root and in the main thread.

    Args:
        programs: of which `pause` keeps it.
        directory: for that program's log.
        port: on loopback, which leads to the same one of the machine's.

    Attributes:
        path: by which others enter it.
        sender: sends uevents in it.

    Raises:
        ProgramFailed: on entering, if the namespace cannot be made.
    """

    def __init__(self, programs: Programs, directory: str, port: int) -> None:
        self._programs = programs
        self._directory = directory
        self._port = port

    def __enter__(self) -> Self:
        line = ["unshare", "--net", self._programs.pause]
        self._keeper = Process("network", line, self._directory)
        self.path = f"/proc/{self._keeper.pid}/ns/net"
        try:
            self._keeper.until(self._is_made, "making it", seconds=START_SECONDS)
            self._listener, self.sender = self._inside(self._open)
        except BaseException:
            self._keeper.kill()
            raise
        self._acceptor = threading.Thread(target=self._accept, daemon=True)
        self._acceptor.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.sender.close()
        self._listener.shutdown(socket.SHUT_RDWR)  # wakes who accepts
        self._acceptor.join()
        self._keeper.kill()

    def _is_made(self) -> bool:
        try:
            return os.readlink(self.path) != os.readlink("/proc/self/ns/net")
        except OSError:
            return False  # it ended

    def _inside(self, make: Callable[[], T]) -> T:
        """Runs a function in the namespace; sockets that it makes stay there. A namespace belongs
        to a thread, so it is one that ends after this."""
        made: list[T] = []
        failed: list[BaseException] = []

        def run() -> None:
            try:
                with open(self.path, "rb") as file:
                    libc = ctypes.CDLL(None, use_errno=True)
                    if libc.setns(file.fileno(), CLONE_NEWNET) != 0:
                        raise OSError(ctypes.get_errno(), "setns")
                made.append(make())
            except BaseException as error:  # noqa: BLE001  # raised by who waits
                failed.append(error)

        thread = threading.Thread(target=run)
        thread.start()
        thread.join()
        for error in failed:
            raise error
        return made[0]

    def _open(self) -> tuple[socket.socket, UeventSender]:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            asked = fcntl.ioctl(probe, SIOCGIFFLAGS, FLAGS.pack(b"lo", 0))
            up = FLAGS.pack(b"lo", FLAGS.unpack(asked)[1] | IFF_UP)
            fcntl.ioctl(probe, SIOCSIFFLAGS, up)
        return socket.create_server((LOOPBACK, self._port)), UeventSender()

    def _accept(self) -> None:
        with self._listener:
            while True:
                try:
                    inner, _ = self._listener.accept()
                except OSError:
                    return  # it was shut down
                try:
                    outer = socket.create_connection((LOOPBACK, self._port))
                except OSError:
                    inner.close()  # as if the server had ended
                    continue
                threading.Thread(target=_join, args=(inner, outer), daemon=True).start()


def _join(inner: socket.socket, outer: socket.socket) -> None:
    """Passes on what comes from either end, until one is gone."""
    with inner, outer:
        answers = threading.Thread(target=_copy, args=(outer, inner), daemon=True)
        answers.start()
        _copy(inner, outer)
        answers.join()


def _copy(source: socket.socket, target: socket.socket) -> None:
    """Passes on what comes, until either end is gone; the other direction ends with it."""
    with suppress(OSError):
        while data := source.recv(CHUNK_BYTES):
            target.sendall(data)
    for end in (source, target):
        with suppress(OSError):  # the other direction was first
            end.shutdown(socket.SHUT_RDWR)
