"""A lock between processes: a file that one of them has locked.

The kernel ends a lock (flock) with the process that has it, however that ends, and knows no wait
with a bound. A file that was removed can still be locked, by somebody whom nobody else meets.

This file waits for such a lock for some seconds and says who is in the way. What it protects is
left to those who take it.
"""

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager

from liken_events.cluster import Unavailable
from liken_events.core.model.names import printable

STEP_SECONDS = 0.02
"""How often it is tried again."""


@contextmanager
def locked(path: str, seconds: float) -> Iterator[None]:
    """Has the lock while inside. The thread blocks until then.

    Args:
        path: the file, which is made with its directories if it is not there, and stays.
        seconds: how long to wait for others.

    Raises:
        Unavailable: another process has it for longer, or it cannot be had at all.
    """
    until = time.monotonic() + seconds
    try:
        while (descriptor := _try(path)) is None:
            if time.monotonic() >= until:
                raise Unavailable(
                    f"{printable(path)} has been locked by another command for {seconds:g} s:"
                    " try again when that has ended"
                )
            time.sleep(STEP_SECONDS)
    except OSError as error:
        raise Unavailable(f"cannot lock {printable(path)}: {error.strerror}") from None
    try:
        yield
    finally:
        os.close(descriptor)


def _try(path: str) -> int | None:
    """An open file that has the lock, which goes when it is closed; None if that may work
    later."""
    os.makedirs(os.path.dirname(path), mode=0o755, exist_ok=True)
    try:
        # Not open for writing: who follows the directory would be told of each end of it.
        descriptor = os.open(path, os.O_RDONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.path.samestat(os.fstat(descriptor), os.stat(path)):
            return descriptor
    except (BlockingIOError, FileNotFoundError):
        pass
    except OSError:
        os.close(descriptor)
        raise
    os.close(descriptor)
    return None
