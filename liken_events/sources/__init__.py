"""What reads the world: each source turns one of the kernel's ways of telling into triggers for
the inbox."""

from typing import Protocol

import trio

from liken_events.core.model.snapshot import Device, Key, Snapshot, Storage
from liken_events.inbox import Inbox


class SourceLost(Exception):
    """A source ended in a way that is known to happen: a socket was closed, a watch could not be
    had.

    It is logged with the reason, everything is read again, and the source is started anew with
    growing pauses.
    """


class ScanFailed(Exception):
    """The list of a bus could not be read, or the machine has run out of what reading takes. That
    is not the same as an empty bus: what was known stays."""


class Reader(Protocol):
    """What the loop asks of a scanner. Every method but `present` blocks and runs in a worker
    thread."""

    def scan(self) -> Snapshot:
        """The whole machine. Raises ScanFailed."""
        ...

    def device(self, key: Key) -> Device | None:
        """One device; None if it is gone or no candidate. Raises ScanFailed."""
        ...

    def storage(self) -> Storage:
        """Mounts, swap areas and block devices."""
        ...

    def uses_changed(self, storage: Storage) -> bool:
        """Whether mounts or swap areas on block devices differ from those of `storage`."""
        ...

    def present(self, key: Key) -> bool:
        """Whether the bus lists the device."""
        ...


class Source(Protocol):
    """Something that watches."""

    @property
    def name(self) -> str:
        """For logs: `uevent`, `mounts`."""
        ...

    async def run(self, inbox: Inbox, *, task_status: trio.TaskStatus[None]) -> None:
        """Calls `task_status.started()` once it is watching, then marks the inbox for ever.

        Raises:
            SourceLost: one of the endings that are known to happen. Anything else is a bug.
        """
        ...
