"""What goes over the wire between an agent and the API server, counted by a relay in between.

The relay opens nothing: it passes encrypted bytes on, and counts them as the network would, but
for the headers of TCP and IP. A connection that only receives is a watch.
"""

import contextlib
import socket
import threading
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from tests.cluster.real.control_plane import LOOPBACK

READ_BYTES = 64 << 10


@dataclass(slots=True)
class Counts:
    """Bytes of one connection: sent by the agent, and received by it."""

    sent: int = 0
    received: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Traffic:
    """Bytes of some time.

    Attributes:
        sent: by the agent.
        answered: on connections on which the agent sent something, too.
        told: on all others: watches.
    """

    sent: int
    answered: int
    told: int

    @property
    def called(self) -> int:
        """Of calls, both ways."""
        return self.sent + self.answered

    @property
    def total(self) -> int:
        """Of all."""
        return self.called + self.told


class Wire:
    """A relay to a port on loopback. Use as a context manager.

    Attributes:
        port: where it listens.
    """

    def __init__(self, port: int) -> None:
        self._target = port
        self._listener = socket.create_server((LOOPBACK, 0))
        self.port: int = self._listener.getsockname()[1]
        self._counts: list[Counts] = []
        self._seen: list[tuple[int, int]] = []
        self._ends: list[socket.socket] = []

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, name="wire", daemon=True).start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for each in [self._listener, *self._ends]:
            with contextlib.suppress(OSError):  # it is closed by the other side
                each.shutdown(socket.SHUT_RDWR)
            each.close()

    def take(self) -> Traffic:
        """The traffic since this was called last."""
        now = [(each.sent, each.received) for each in self._counts]
        before = [*self._seen, *[(0, 0)] * (len(now) - len(self._seen))]
        self._seen = now
        sent = answered = told = 0
        for (sent_now, received_now), (sent_before, received_before) in zip(
            now, before, strict=True
        ):
            received = received_now - received_before
            if sent_now > sent_before:
                sent += sent_now - sent_before
                answered += received
            else:
                told += received
        return Traffic(sent=sent, answered=answered, told=told)

    def _accept(self) -> None:
        with contextlib.suppress(OSError):  # closed: the end
            while True:
                near, _ = self._listener.accept()
                far = socket.create_connection((LOOPBACK, self._target))
                counts = Counts()
                self._counts.append(counts)
                for each in (near, far):
                    each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                    self._ends.append(each)
                for target in (self._send, self._receive):
                    threading.Thread(target=target, args=(near, far, counts), daemon=True).start()

    @staticmethod
    def _send(near: socket.socket, far: socket.socket, counts: Counts) -> None:
        with contextlib.suppress(OSError):
            while data := near.recv(READ_BYTES):
                counts.sent += len(data)
                far.sendall(data)
        with contextlib.suppress(OSError):
            far.shutdown(socket.SHUT_WR)

    @staticmethod
    def _receive(near: socket.socket, far: socket.socket, counts: Counts) -> None:
        with contextlib.suppress(OSError):
            while data := far.recv(READ_BYTES):
                counts.received += len(data)
                near.sendall(data)
        with contextlib.suppress(OSError):
            near.shutdown(socket.SHUT_WR)
