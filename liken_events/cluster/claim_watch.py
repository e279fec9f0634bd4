"""Following a tree of claim files: a directory, and one below it for each namespace.

inotify tells of one directory and not of those below, a directory made a moment ago may have
files already, and the whole tree may go and come back.

This file keeps one `DirectoryWatch` for the top and one for each namespace, and looks at all of
the tree once each of them watches and whenever one tells something: so nothing that happens before
a watch or between two is missed. Only while something cannot be read is looked again by time. How
a look is done is left to `cluster.claim_files`.
"""

import errno
import os
from collections.abc import Callable
from dataclasses import dataclass

import trio

from liken_events.cluster.claim_file import ClaimFile
from liken_events.inotify import DirectoryWatch
from liken_events.latest import Latest

RETRY_SECONDS = 5.0
"""When to look again after something could not be read: a lack of file descriptors, or of a right,
ends without an event."""

_CANNOT_FOLLOW = (errno.EACCES, errno.ELOOP)
"""Why a directory cannot be watched although it is there. What may run out is waited for by
`DirectoryWatch`."""

_TOP = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """What one look at the tree found.

    Attributes:
        files: all of it, in order.
        namespaces: directories that are to be followed.
        is_whole: whether everything could be read.
    """

    files: tuple[ClaimFile, ...]
    namespaces: frozenset[str]
    is_whole: bool


class Following:
    """The life of one `ClaimFiles.watch`."""

    def __init__(
        self, top: str, look: Callable[[], Look], claims: Latest[tuple[ClaimFile, ...]]
    ) -> None:
        self._top = top
        self._look = look
        self._claims = claims
        self._followed: dict[str, trio.CancelScope] = {}
        self._is_waiting = False

    async def run(self, task_status: trio.TaskStatus[None]) -> None:
        """Follows for ever; `started()` after the first look."""
        async with trio.open_nursery() as nursery:
            self._take(nursery)
            task_status.started()

    def _take(self, nursery: trio.Nursery) -> None:
        """Looks, tells what is new, and follows the directories that there are now."""
        look = self._look()
        if self._claims.number == 0 or look.files != self._claims.get():
            self._claims.set(look.files)
        wanted = {_TOP, *look.namespaces}
        for name in self._followed.keys() - wanted:
            self._followed.pop(name).cancel()
        for name in wanted - self._followed.keys():
            self._followed[name] = trio.CancelScope()
            nursery.start_soon(self._follow, nursery, name, self._followed[name])
        if not look.is_whole:
            self._take_later(nursery)

    async def _follow(self, nursery: trio.Nursery, name: str, scope: trio.CancelScope) -> None:
        directory = os.path.join(self._top, name) if name else self._top
        with scope:
            try:
                with DirectoryWatch(directory) as watch:
                    self._take(nursery)
                    while True:
                        await watch.changed()
                        self._take(nursery)
            except OSError as error:
                if error.errno not in _CANNOT_FOLLOW:
                    raise
            if self._followed.get(name) is scope:
                del self._followed[name]  # the next look follows it anew
            self._take_later(nursery)

    def _take_later(self, nursery: trio.Nursery) -> None:
        if not self._is_waiting:
            self._is_waiting = True
            nursery.start_soon(self._wait_and_take, nursery)

    async def _wait_and_take(self, nursery: trio.Nursery) -> None:
        await trio.sleep(RETRY_SECONDS)
        self._is_waiting = False
        self._take(nursery)
