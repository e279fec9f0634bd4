"""Mounting and swapping: changes that no uevent tells of.

`/proc/<pid>/mountinfo` and `/proc/swaps` are files that can be polled: the kernel reports POLLPRI
when they change. They are always readable, so waiting for that would return at once, for ever.

This file waits through an epoll set that asks for POLLPRI alone, and whose own descriptor trio can
wait for. In a made-up tree the tables are ordinary files, which cannot be polled; there it follows
their directory by inotify. Reading the tables is left to `sources.storage`.
"""

import errno
import os
import select
from collections.abc import Iterator
from contextlib import ExitStack

import structlog
import trio

from liken_events.core.events import MountsChanged
from liken_events.inbox import Inbox
from liken_events.inotify import DirectoryWatch
from liken_events.sources import SourceLost

log = structlog.get_logger()


class MountsSource:
    """Marks the inbox when the host's mounts or swap areas change.

    Attributes:
        name: `mounts`.
    """

    name = "mounts"

    def __init__(self, proc: str = "/proc") -> None:
        self._proc = proc

    async def run(
        self,
        inbox: Inbox,
        *,
        task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        """See `Source.run`. A table that does not exist is a kernel without it, and not
        watched."""
        with ExitStack() as stack, select.epoll() as poll:
            files: list[str] = []
            for path, handle in _open_tables(self._proc):
                stack.callback(os.close, handle)
                try:
                    poll.register(handle, select.EPOLLPRI)
                except OSError as error:
                    if error.errno != errno.EPERM:  # an ordinary file cannot be polled
                        raise SourceLost(f"cannot watch {path}: {error}") from error
                    files.append(path)
            log.info("mounts.watching", proc=self._proc, by="inotify" if files else "poll")
            async with trio.open_nursery() as nursery:
                for path in files:
                    await nursery.start(self._follow_file, path, inbox)
                task_status.started()
                await self._follow_poll(poll, inbox)

    async def _follow_poll(self, poll: select.epoll, inbox: Inbox) -> None:
        while True:
            # Asking the outer set whether the inner one is ready is what reads, and so ends, the
            # condition.
            await trio.lowlevel.wait_readable(poll.fileno())
            inbox.mark(MountsChanged(source=self.name))
            poll.poll(0)

    async def _follow_file(
        self, path: str, inbox: Inbox, *, task_status: trio.TaskStatus[None]
    ) -> None:
        directory, name = os.path.split(path)
        with DirectoryWatch(directory) as watch:
            task_status.started()
            while True:
                if await watch.changed(name):
                    inbox.mark(MountsChanged(source=self.name))


def _open_tables(proc: str) -> Iterator[tuple[str, int]]:
    """Path and descriptor of the mount table and of the list of swap areas, as far as there are
    any.

    Process 1 may be out of sight (`hidepid`); `sources.storage` reads the same tables then.
    """
    for names in (("1/mountinfo", "self/mountinfo"), ("swaps",)):
        for name in names:
            try:
                yield f"{proc}/{name}", os.open(f"{proc}/{name}", os.O_RDONLY | os.O_CLOEXEC)
            except OSError:
                continue
            break
