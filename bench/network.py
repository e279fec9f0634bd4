"""A network namespace for each of several agents, so that they do not hear each other's events.

A process lives in one network namespace at a time, a socket stays in that in which it was opened,
and a child begins in that of its parent. So the program steps into a new one, opens and starts
what belongs there, and steps back. It may do so because it is in a namespace of its own already.
"""

import contextlib
import ctypes
import os
from collections.abc import Iterator

_CLONE_NEWNET = 0x40000000

_libc = ctypes.CDLL(None, use_errno=True)


@contextlib.contextmanager
def another_network() -> Iterator[None]:
    """In this block the program is in a network namespace with nobody else in it.

    Raises:
        OSError: the kernel does not allow it.
    """
    with open("/proc/thread-self/ns/net", "rb") as home:
        _check(_libc.unshare(_CLONE_NEWNET))
        try:
            yield
        finally:
            _check(_libc.setns(home.fileno(), _CLONE_NEWNET))


def _check(outcome: int) -> None:
    if outcome != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
