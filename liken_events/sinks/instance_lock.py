"""Locks between instances: files and directories that one of them has locked.

While the agent is updated an old and a new one run side by side, and see the same a few
milliseconds apart; of another version, or with other settings, they may see it differently for as
long as both run. The kernel ends a lock (flock) with the process that has it, however that ends,
and knows no wait with a bound. A file that was removed can still be locked, by somebody whom
nobody else meets.

This file tries such a lock once, and waits for the turn to do what only one instance may do. What
that is is left to those who wait.
"""

import fcntl
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import ExitStack, asynccontextmanager, suppress

import structlog
import trio

from liken_events.sinks.whole_files import PRIVATE_MODE, make_directory

TURN_SECONDS = 0.1
"""How often it is looked whether the other instance has ended. This goes on for as long as an
update of one node takes."""

log = structlog.get_logger()


def try_lock(path: str, flags: int) -> int | None:
    """A descriptor that has the lock until it is closed; None if it may be had later.

    Args:
        path: a file or directory.
        flags: how to open it, beside that it is not inherited.

    Raises:
        OSError: it cannot be opened, or not be locked at all.
    """
    with ExitStack() as stack:
        descriptor = os.open(path, flags | os.O_CLOEXEC, 0o600)
        stack.callback(os.close, descriptor)
        with suppress(BlockingIOError, FileNotFoundError):
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.path.samestat(os.fstat(descriptor), os.stat(path)):
                stack.pop_all()
                return descriptor
    return None


@asynccontextmanager
async def turn(
    what: str, directory: str, end: Callable[[], Awaitable[None]]
) -> AsyncIterator[bool]:
    """Only one instance is inside: the next one when that has ended, or left. Gives whether it
    is this one's turn.

    Args:
        what: is done inside: for the log, and the name of the file that is locked.
        directory: where that is; both are made if they are not there. If they cannot be had one
            goes in all the same: better two instances do it than none.
        end: returns when it is no longer worth to wait.
    """
    lock: int | None = None
    is_waiting = has_ended = False
    try:
        make_directory(directory, PRIVATE_MODE)
        path = os.path.join(directory, f"{what}.lock")
        while not has_ended and (lock := try_lock(path, os.O_RDONLY | os.O_CREAT)) is None:
            if not is_waiting:
                log.info("instance.waiting", what=what)
            is_waiting = True
            with trio.move_on_after(TURN_SECONDS):
                await end()
                has_ended = True
    except OSError as error:
        log.warning("instance.no_turn", what=what, reason=str(error))
    try:
        yield not has_ended
    finally:
        if lock is not None:
            os.close(lock)
