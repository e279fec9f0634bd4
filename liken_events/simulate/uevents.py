r"""Uevents, as the kernel sends them: made from values and sent for real.

The kernel tells of devices on the netlink protocol `NETLINK_KOBJECT_UEVENT`. A message is
`add@/devices/…`, a NUL, and `KEY=value` texts with a NUL after each, a sequence number last. Since
Linux 4.18 a process with `CAP_SYS_ADMIN` over the owner of a network namespace may send such a
message itself: the kernel adds the sequence number and broadcasts it to everybody in that network
namespace who listens to its group. libudev cannot tell it from the kernel's own.

This file writes messages and sends them, by netlink or into a function of this process. It never
checks whether the namespace is a private one: sending in the machine's own namespace would make
its udevd act on a made-up device.

Getting into a private namespace is left to `simulate.namespace`; which messages a change of
hardware causes, to `simulate.tree`.
"""

import errno
import itertools
import os
import socket
import struct
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from types import TracebackType
from typing import Protocol, Self

NETLINK_KOBJECT_UEVENT = 15
"""The netlink protocol of uevents (`linux/netlink.h`)."""

MAX_BYTES = 2048
"""What a message, its netlink header and the kernel's sequence number may have together:
`UEVENT_BUFFER_SIZE`."""

_HEADER = struct.Struct("=IHHII")
"""`nlmsghdr`: length with this header, type, flags, sequence number, port; all in the machine's
own byte order."""

_ERROR = struct.Struct("=i")
"""The first field of `nlmsgerr`: 0 or a negative errno."""

_TYPE = 0x10
"""`NLMSG_MIN_TYPE`: smaller types are netlink's own control messages, which uevents do not
reach."""

_NLMSG_ERROR = 2
_FLAG_REQUEST = 1
_FLAG_ACK = 4

_ACK_TIMEOUT = 5.0
"""Seconds to wait for an acknowledgement. The kernel answers before `send` returns, so none is a
broken kernel."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Uevent:
    """One message of the kernel about one device.

    Attributes:
        action: `add`, `remove`, `change`, `bind`, `unbind`, …
        devpath: kernel path, such as `/devices/pci0000:00/0000:00:14.0/usb1/1-2`.
        properties: name and value in the kernel's order, without `ACTION`, `DEVPATH` and `SEQNUM`.
    """

    action: str
    devpath: str
    properties: tuple[tuple[str, str], ...] = ()

    def to_bytes(self, seqnum: int | None = None) -> bytes:
        """The message as the kernel writes it.

        Args:
            seqnum: the sequence number, or None where the kernel adds it.
        """
        texts = [
            f"{self.action}@{self.devpath}",
            f"ACTION={self.action}",
            f"DEVPATH={self.devpath}",
        ]
        texts += [f"{name}={value}" for name, value in self.properties]
        if seqnum is not None:
            texts.append(f"SEQNUM={seqnum}")
        return "".join(f"{text}\0" for text in texts).encode("utf-8", "surrogateescape")


class Feed(Protocol):
    """A way for uevents to reach the agent."""

    def send(self, uevents: Iterable[Uevent]) -> None:
        """Sends the messages in order; each has arrived, or waits in the listener's buffer, on
        return.

        Raises:
            OSError: the kernel refused one.
        """
        ...

    def close(self) -> None:
        """Ends the way."""
        ...


class InProcessFeed:
    """Hands the bytes of each message to a function, for machines on which no namespace can be
    had.

    Args:
        take: gets the datagram that a netlink socket would have received.
    """

    def __init__(self, take: Callable[[bytes], None]) -> None:
        self._take = take
        self._numbers = itertools.count(1)

    def send(self, uevents: Iterable[Uevent]) -> None:
        """Hands over each message, with a sequence number as the kernel adds it."""
        for uevent in uevents:
            self._take(uevent.to_bytes(next(self._numbers)))

    def close(self) -> None:
        """There is nothing to end."""


class UeventSender:
    """A netlink socket that has the kernel broadcast uevents in the network namespace of this
    process.

    Raises:
        OSError: no such socket can be made (a kernel without netlink, a filter on system calls).
    """

    def __init__(self) -> None:
        self._socket = _open_socket()
        self._sequence = itertools.count(1)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Closes the socket."""
        self._socket.close()

    def send(self, uevents: Iterable[Uevent]) -> None:
        """Has the kernel broadcast each message.

        Raises:
            OSError: the kernel refused one: `EPERM` without the privilege, `EINVAL` for more than
                `MAX_BYTES`. Those before it were sent.
        """
        for uevent in uevents:
            self._send_acknowledged(uevent.to_bytes())

    def send_many(self, payloads: Iterable[bytes]) -> int:
        """Has the kernel broadcast messages as fast as it can, for floods. Returns how many.

        Only the last one is acknowledged. Should the kernel refuse one, all the others are sent
        all the same.

        Args:
            payloads: messages as `Uevent.to_bytes` writes them, without a sequence number.

        Raises:
            OSError: the first refusal.
        """
        count = 0
        previous: bytes | None = None
        for payload in payloads:
            if previous is not None:
                self._socket.send(_message(previous, _FLAG_REQUEST, next(self._sequence)))
            previous = payload
            count += 1
        if previous is not None:
            self._send_acknowledged(previous)
        return count

    def _send_acknowledged(self, payload: bytes) -> None:
        """Sends a message and reads answers up to its own.

        The kernel answers a refused message even if nobody asked, so refusals of earlier messages
        come first.
        """
        number = next(self._sequence)
        self._socket.send(_message(payload, _FLAG_REQUEST | _FLAG_ACK, number))
        refusal = 0
        answered = 0
        while answered != number:
            answered, code = self._receive_answer()
            refusal = refusal or code
        if refusal:
            raise OSError(refusal, f"uevent refused: {os.strerror(refusal)}")

    def _receive_answer(self) -> tuple[int, int]:
        """Sequence number and errno (0 for success) of the next answer."""
        while True:
            answer = self._socket.recv(65536)
            if len(answer) < _HEADER.size + _ERROR.size:
                continue
            _, kind, _, number, _ = _HEADER.unpack_from(answer)
            if kind == _NLMSG_ERROR:
                (code,) = _ERROR.unpack_from(answer, _HEADER.size)
                return number, -code


def can_send() -> bool:
    """Whether this process may send uevents in its network namespace. Nothing is broadcast to find
    out.

    The kernel looks at the privilege first and at the length second, so a message that is too long
    is refused with `EINVAL` exactly where a good one would be sent.
    """
    try:
        with UeventSender() as sender:
            sender.send([Uevent(action="change", devpath="/" + "x" * MAX_BYTES)])
    except OSError as error:
        return error.errno == errno.EINVAL
    return False


def _open_socket() -> socket.socket:
    made = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, NETLINK_KOBJECT_UEVENT)
    try:
        made.settimeout(_ACK_TIMEOUT)
        made.bind((0, 0))
        made.connect((0, 0))
    except OSError:
        made.close()
        raise
    return made


def _message(payload: bytes, flags: int, number: int) -> bytes:
    """The payload behind a netlink header. Not padded: the kernel would broadcast the padding."""
    return _HEADER.pack(_HEADER.size + len(payload), _TYPE, flags, number, 0) + payload
