"""A netlink socket that says what a test wrote down for it."""

import os
import socket
from collections.abc import Iterable
from typing import Any

from liken_events.core.backlog import Backlog
from liken_events.sources.uevent import CREDENTIALS, KERNEL_PORT, UeventSource


class ScriptedSocket(socket.socket):
    """Readable until its script is at its end.

    Attributes:
        reads: how often it was read.
    """

    def __init__(self, script: Iterable[Any]) -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            theirs.send(b"x")
            super().__init__(fileno=ours.detach())
            self._open_end = theirs.detach()
        self.reads = 0
        self._script = iter(script)

    def recvmsg(self, *_: Any) -> Any:
        """Gives the next item: an errno to fail with, the bytes of a datagram of the kernel, or a
        whole answer."""
        self.reads += 1
        item = next(self._script, None)
        if item is None:
            self.setblocking(False)
            self.recv(1)  # it is not readable any more
            raise BlockingIOError
        if isinstance(item, int):
            raise OSError(item, os.strerror(item))
        return (item, [], 0, (KERNEL_PORT, 1)) if isinstance(item, bytes) else item

    def close(self) -> None:
        os.close(self._open_end)
        super().close()


class SourceOn(UeventSource):
    """The uevent source on given sockets, one after the other."""

    def __init__(
        self,
        *sockets: socket.socket,
        group: Any = "kernel",
        early_only: bool = False,
        backlog: Backlog | None = None,
    ) -> None:
        super().__init__(group, early_only=early_only, backlog=backlog)
        self._sockets = list(sockets)

    def _open(self) -> socket.socket:
        return self._sockets.pop(0)


def from_uid(data: bytes, uid: int, *, port: int = 4711) -> Any:
    """A datagram with the credentials of its sender."""
    credentials = (socket.SOL_SOCKET, socket.SCM_CREDENTIALS, CREDENTIALS.pack(1, uid, 0))
    return data, [credentials], 0, (port, 2)
