"""The end of a process in the middle of its work on files."""

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any
from unittest import mock

CHANGING = ("makedirs", "chmod", "open", "fchmod", "fsync", "replace", "unlink")
"""What changes files; `open` only where it may make one."""


class Killed(BaseException):
    """The process ended here."""


@dataclass
class Steps:
    """How many steps were taken, and before which the process ends; 0 for none."""

    last: int
    taken: int = 0


@contextmanager
def killed_before(step: int) -> Iterator[Steps]:
    """Ends with `Killed` before the given change of a file, counted from 1. What is done about it
    afterwards changes nothing any more, as after a real end."""
    steps = Steps(step)

    def counted(real: Callable[..., Any], name: str) -> Callable[..., Any]:
        def call(*args: Any, **more: Any) -> Any:
            if name != "open" or args[1] & os.O_CREAT:
                steps.taken += 1
                if steps.last and steps.taken >= steps.last:
                    raise Killed
            return real(*args, **more)

        return call

    with ExitStack() as stack:
        for name in CHANGING:
            real = getattr(os, name)
            stack.enter_context(mock.patch.object(os, name, counted(real, name)))
        yield steps


@contextmanager
def failing(name: str, error: int, *, below: str = "") -> Iterator[None]:
    """A function of `os` fails for paths below a directory with this errno, as on a disk that is
    full or read-only."""
    real = getattr(os, name)

    def call(*args: Any, **more: Any) -> Any:
        concerned = not below or (isinstance(args[0], str) and args[0].startswith(below))
        if concerned and (name != "open" or args[1] & os.O_CREAT):
            raise OSError(error, os.strerror(error), *args[:1])
        return real(*args, **more)

    with mock.patch.object(os, name, call):
        yield
