"""The uevent socket: hardware changes as the kernel tells them.

Uevents are broadcast on a netlink socket: by the kernel to group 1 of every network namespace that
belongs to the initial user namespace, and again by udevd, after its rules have run, to group 2 of
the host's namespace alone. A reader that is too slow does not slow the kernel down: the socket's
buffer overruns, the next read says ENOBUFS, and until the buffer was empty once the kernel throws
away all that follows without another word.

This file opens the socket through pyudev (the one door to it), asks for a large buffer, lets the
kernel drop what cannot matter, and marks the inbox for the rest. It reads datagrams itself:
building a device object for each costs three times as much, and the device is read from sysfs
anyway. It never waits for anybody but the socket.

What a datagram means is said in `core.decode.uevent`.
"""

import errno
import os
import socket
import struct
from typing import Literal, TypeAlias

import pyudev
import structlog
import trio

from liken_events.core.backlog import Backlog
from liken_events.core.decode.uevent import decode, sequence_number
from liken_events.core.events import DeviceChanged, NodeAdded, Resync, Trigger
from liken_events.inbox import Inbox
from liken_events.sources import SourceLost
from liken_events.sources.uevent_filter import attach

Group: TypeAlias = Literal["udev", "kernel"]

BUFFER_BYTES = 16 * 1024 * 1024
"""Receive buffer to ask for. An event takes 1 to 2 KiB of it with the kernel's own book-keeping,
so it holds the burst of some thousand devices; it is memory only while events wait."""

DATAGRAM_BYTES = 16 * 1024
"""Longest datagram: the kernel builds an event in 2 KiB (`UEVENT_BUFFER_SIZE`), udevd adds
properties to 8 KiB."""

DRAIN_AT_ONCE = 256
"""Datagrams read before other tasks get a turn."""

FAILING_PAUSE = 0.1
"""Seconds between reads while the socket only says that it overran: at most ten wake-ups a
second."""

SO_RCVBUFFORCE = 33
"""From `asm-generic/socket.h`; the socket module does not name it."""

KERNEL_PORT = 0
"""Netlink port of the kernel. An unprivileged process may send to our socket, but not from this
port."""

CREDENTIALS = struct.Struct("iII")
"""`struct ucred`: pid, uid, gid."""

log = structlog.get_logger()


class UeventSource:
    """Marks the inbox for each uevent that may matter.

    Args:
        group: whose events.
        buffer_bytes: receive buffer to ask for.
        early_only: tell of what cannot wait for udevd, and of nothing else: beside a source of its
            events, which come only after its rules ran, tens to hundreds of milliseconds later.
        backlog: told of each event of a device; both sources have the same one.

    Attributes:
        name: `uevent`, or `early`.
        overruns: how often the kernel threw events away because the buffer was full.
    """

    def __init__(
        self,
        group: Group,
        *,
        buffer_bytes: int = BUFFER_BYTES,
        early_only: bool = False,
        backlog: Backlog | None = None,
    ) -> None:
        self.name = "early" if early_only else "uevent"
        self._overrun = Resync(source=self.name, reason="receive buffer overrun")
        self._group = group
        self._buffer_bytes = buffer_bytes
        self._early_only = early_only
        self._backlog = backlog
        self._is_losing = False
        self.overruns = 0

    async def run(
        self,
        inbox: Inbox,
        *,
        task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        """See `Source.run`. Everything is read again after an overrun, and again if reading what
        was left in the buffer took its time."""
        with self._open() as sock:
            task_status.started()
            while True:
                await trio.lowlevel.wait_readable(sock)
                if not self._drain(sock, inbox):
                    await trio.sleep(FAILING_PAUSE)

    def _open(self) -> socket.socket:
        try:
            context = pyudev.Context()
            monitor = pyudev.Monitor.from_netlink(context, source=self._group)
            monitor.start()
            # libudev owns and closes its own descriptor; this one lives as long as the reader.
            sock = socket.socket(fileno=os.dup(monitor.fileno()))
        except (OSError, ImportError) as error:
            raise SourceLost(f"cannot listen to {self._group} uevents: {error}") from error
        sock.setblocking(False)
        effective = enlarge_buffer(sock, self._buffer_bytes)
        filtered = attach(sock)
        log.info(
            "uevent.listening", group=self._group, buffer_bytes=effective, kernel_filter=filtered
        )
        return sock

    def _drain(self, sock: socket.socket, inbox: Inbox) -> bool:
        """Reads what waits, up to a limit. False if there was nothing but an overrun."""
        read = 0
        while read < DRAIN_AT_ONCE:
            try:
                data, ancillary, flags, address = sock.recvmsg(
                    DATAGRAM_BYTES, socket.CMSG_SPACE(CREDENTIALS.size)
                )
            except BlockingIOError:
                if self._is_losing:  # what was lost since the first report is reported by nobody
                    self._is_losing = False
                    self._tell_of_loss(inbox)
                return True
            except OSError as error:
                if error.errno == errno.EINTR:
                    continue
                if error.errno != errno.ENOBUFS:
                    raise SourceLost(f"reading uevents failed: {error}") from error
                self.overruns += 1
                self._is_losing = True
                self._tell_of_loss(inbox)
                if read == 0:
                    return False
                continue
            read += 1
            if not self._trusted(address, ancillary):
                continue
            trigger = decode(data, truncated=bool(flags & socket.MSG_TRUNC))
            if self._backlog is not None and isinstance(trigger, DeviceChanged):
                self._count(self._backlog, trigger.path, data)
            if self._early_only:
                trigger = _early(trigger)
            if trigger is not None:
                inbox.mark(trigger)
        return True

    def _tell_of_loss(self, inbox: Inbox) -> None:
        if self._backlog is not None:
            self._backlog.forget()
        inbox.mark(self._overrun)

    def _count(self, backlog: Backlog, path: str, data: bytes) -> None:
        number = sequence_number(data)
        if number is not None:
            tell = backlog.heard if self._group == "kernel" else backlog.told
            tell(path, number, trio.current_time())

    def _trusted(self, address: tuple[int, int], ancillary: list[tuple[int, int, bytes]]) -> bool:
        """Whether the sender is the kernel, or root for what udevd sends; libudev makes the same
        checks."""
        port, _ = address
        if self._group == "kernel":
            return port == KERNEL_PORT
        for level, kind, content in ancillary:
            if level == socket.SOL_SOCKET and kind == socket.SCM_CREDENTIALS:
                _, uid, _ = CREDENTIALS.unpack_from(content)
                return bool(uid == 0)
        return False


def _early(trigger: Trigger | None) -> Trigger | None:
    """What of an event cannot wait for udevd.

    A node that came may be opened by somebody before udevd tells of it. What was removed is gone.
    And udevd tells of a disk after it has loaded the driver, which takes seconds.
    """
    match trigger:
        case NodeAdded():
            return trigger
        case DeviceChanged() if trigger.action == "remove" or trigger.awaits_driver:
            return trigger
        case DeviceChanged() if trigger.node:
            return NodeAdded(path=trigger.path, node=trigger.node)
    return None


def enlarge_buffer(sock: socket.socket, wanted: int) -> int:
    """Asks for a larger receive buffer and returns the size in force, in bytes.

    The forced way needs CAP_NET_ADMIN; the plain one never fails and is cut to `net.core.rmem_max`
    without a word. The kernel doubles what is asked for and reports the double.
    """
    for option in (SO_RCVBUFFORCE, socket.SO_RCVBUF):
        try:
            sock.setsockopt(socket.SOL_SOCKET, option, wanted)
        except OSError:
            continue
        break
    return sock.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF)


def choose_group(*, run: str = "/run", proc: str = "/proc") -> tuple[Group, str]:
    """The group to listen to on this machine, and why, for `--uevents auto`.

    udevd's events come after its rules and are the better ones, but they reach the host's network
    namespace alone, and only where udevd runs.
    """
    if not os.path.exists(f"{run}/udev/control"):
        return "kernel", "udevd does not run here"
    try:
        own = os.readlink("/proc/self/ns/net")
        host = os.readlink(f"{proc}/1/ns/net")
    except OSError:
        return "udev", "udevd runs"
    if own != host:
        return "kernel", "this network namespace is not the host's, and udevd's events stay there"
    return "udev", "udevd runs"
