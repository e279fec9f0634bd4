"""The one door to inotify: following a directory through its own deletion.

A watch belongs to an inode. When the directory is deleted, or renamed away, the watch dies with
it, and a new directory of the same name is never seen. The queue may overflow, and the number of
instances and watches per user is limited:
all processes of root share them.

This file follows one directory by name. While it does not exist, its nearest existing parent is
watched instead. After an overflow, and where no watch can be had, it says that anything may have
changed: then the reader looks for itself. What the records say is decoded in
`core.decode.inotify`.
"""

import errno
import os
from types import TracebackType
from typing import Self

import structlog
import trio
from inotify_simple import INotify, flags

from liken_events.core.decode.inotify import Record, decode

FALLBACK_SECONDS = 5.0
"""How often to say 'anything may have changed' while the kernel gives no watch. It is tried again
each time."""

LIMITS = {
    errno.EMFILE: "no inotify instance left: raise the sysctl fs.inotify.max_user_instances",
    errno.ENFILE: "the system has no file descriptor left",
    errno.ENOSPC: "no inotify watch left (not disk space): raise fs.inotify.max_user_watches",
    errno.ENOMEM: "the kernel has no memory for a watch",
}
"""What the kernel says when it gives no watch, and what to do. Anything else is a bug."""

_NAMES = flags.CREATE | flags.MOVED_TO | flags.MOVED_FROM | flags.DELETE
_CONTENT = flags.CLOSE_WRITE | flags.MODIFY
_ITSELF = flags.DELETE_SELF | flags.MOVE_SELF
_READ_BYTES = 64 * 1024

log = structlog.get_logger()


class DirectoryWatch:
    """Tells when something in a directory changed. Use as a context manager, from one task.

    Entering never fails: without inotify it falls back to looking every few seconds, and says so
    once.

    Args:
        directory: its path; it need not exist.
        names_only: what is written into its files does not matter. Some kernels tell of each write
            to a device node, and of those to `/dev/null` there are many.
    """

    def __init__(self, directory: str, *, names_only: bool = False) -> None:
        self._directory = directory
        self._mask = _NAMES | _ITSELF | (0 if names_only else _CONTENT)
        self._inotify: INotify | None = None
        self._watched = ""
        self._complained = False

    def __enter__(self) -> Self:
        self._arm()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._disarm()

    async def changed(self, *names: str) -> bool:
        """Waits for the next batch of changes.

        Returns:
            Whether one of `names` (or, without names, anything) may have changed in the directory.
        """
        if self._inotify is None:
            await trio.sleep(FALLBACK_SECONDS)
            self._arm()
            return True
        await trio.lowlevel.wait_readable(self._inotify.fileno())
        records = decode(os.read(self._inotify.fileno(), _READ_BYTES))
        if self._is_elsewhere(records):
            self._disarm()
            self._arm()
            return True
        return any(not names or record.name in names for record in records)

    def _is_elsewhere(self, records: tuple[Record, ...]) -> bool:
        """Whether these records tell of the wrong directory, or not of all that happened."""
        ended = flags.Q_OVERFLOW | flags.IGNORED | flags.UNMOUNT | _ITSELF
        return self._watched != self._directory or any(r.mask & ended for r in records)

    def _arm(self) -> None:
        try:
            self._inotify = self._inotify or INotify(nonblocking=True)
            self._add_watch(self._inotify)
        except OSError as error:
            self._disarm()
            if error.errno not in LIMITS:
                raise
            if not self._complained:
                log.warning(
                    "inotify.unavailable",
                    directory=self._directory,
                    reason=LIMITS[error.errno],
                    looking_every_seconds=FALLBACK_SECONDS,
                )
            self._complained = True
            return
        if self._complained:
            log.info("inotify.available", directory=self._directory)
            self._complained = False

    def _add_watch(self, inotify: INotify) -> None:
        """Watches the directory, or the nearest parent that exists; looks again until nothing
        moved in between."""
        while True:
            here = self._directory
            while True:
                try:
                    watch = inotify.add_watch(here, self._mask | flags.ONLYDIR)
                except (FileNotFoundError, NotADirectoryError):
                    here = os.path.dirname(here) or "/"
                    continue
                break
            if here == self._directory or not os.path.isdir(_next_below(here, self._directory)):
                self._watched = here
                return
            # The child came to be after it was tried and before the watch on its parent: try
            # again.
            inotify.rm_watch(watch)

    def _disarm(self) -> None:
        if self._inotify is not None:
            self._inotify.close()
        self._inotify = None


def _next_below(parent: str, directory: str) -> str:
    """The path one step from `parent` towards `directory`."""
    rest = os.path.relpath(directory, parent)
    return os.path.join(parent, rest.split(os.sep, 1)[0])
