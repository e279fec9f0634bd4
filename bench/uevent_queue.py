"""What waits for a process in the kernel's uevent sockets, and what was thrown away.

`/proc/net/netlink` has a line for each netlink socket of the network namespace: protocol, groups,
bytes that wait to be received, datagrams that were dropped because the buffer was full, and the
inode by which the owner is found.

This file reads the lines of one process. Nothing of it disturbs that process.
"""

import os
import time
from dataclasses import dataclass

from liken_events.simulate.uevents import NETLINK_KOBJECT_UEVENT

_POLL_SECONDS = 0.0002

_PROTOCOL, _WAITING, _DROPS, _INODE = 1, 4, 8, 9
"""Columns of the table: `Eth`, `Rmem`, `Drops`, `Inode`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Queued:
    """Bytes that wait in a process's uevent sockets, and datagrams that were dropped so far."""

    waiting: int
    dropped: int


class UeventQueue:
    """The uevent sockets that a process has open when this is made."""

    def __init__(self, pid: int) -> None:
        own = _sockets(pid)
        self._inodes = {row[_INODE] for row in _rows() if row[_INODE] in own}
        if not self._inodes:
            raise LookupError(f"process {pid} listens to no uevents")

    def read(self) -> Queued:
        """The state now."""
        rows = [row for row in _rows() if row[_INODE] in self._inodes]
        return Queued(
            waiting=sum(int(row[_WAITING]) for row in rows),
            dropped=sum(int(row[_DROPS]) for row in rows),
        )

    def drain(self, *, seconds: float = 30.0) -> float:
        """Waits until nothing waits; returns for how long.

        Raises:
            TimeoutError: the process does not read.
        """
        began = time.monotonic()
        while self.read().waiting:
            if time.monotonic() - began > seconds:
                raise TimeoutError(f"uevents waited for {seconds:g} s and were not read")
            time.sleep(_POLL_SECONDS)
        return time.monotonic() - began


def _rows() -> list[list[str]]:
    with open("/proc/net/netlink", encoding="ascii") as file:
        rows = [line.split() for line in file.readlines()[1:]]
    return [row for row in rows if int(row[_PROTOCOL]) == NETLINK_KOBJECT_UEVENT]


def _sockets(pid: int) -> set[str]:
    """Inodes of the sockets that a process has open."""
    found = set()
    for entry in os.listdir(f"/proc/{pid}/fd"):
        target = os.readlink(f"/proc/{pid}/fd/{entry}")
        if target.startswith("socket:["):
            found.add(target[len("socket:[") : -1])
    return found
