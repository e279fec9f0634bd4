"""A file system in which something happens in the middle of a look, or nothing can be read."""

import os
import resource
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from liken_events.sources.attributes import Files


class CountingFiles(Files):
    """Counts the steps of a look, and does something before one of them.

    Attributes:
        steps: steps so far.
        at: number of the step, counted from 1, before which `happens` is called; 0 for never.
        fails: whether that step fails, as reading what is not there does.
        error: what that step raises, as on a machine that has run out of something.
    """

    def __init__(self) -> None:
        self.steps = 0
        self.at = 0
        self.fails = False
        self.error: OSError | None = None
        self.happens: Callable[[], object] = lambda: None

    def text(self, path: str) -> str | None:
        return None if self._step() else super().text(path)

    def whole(self, path: str) -> str:
        self._step_or_raise(path)
        return super().whole(path)

    def link(self, path: str) -> str | None:
        return None if self._step() else super().link(path)

    def target(self, path: str) -> str | None:
        return None if self._step() else super().target(path)

    def entries(self, path: str) -> list[os.DirEntry[str]] | None:
        return None if self._step() else super().entries(path)

    def names(self, path: str) -> list[str]:
        self._step_or_raise(path)
        return super().names(path)

    def inodes(self, path: str) -> dict[str, int]:
        self._step_or_raise(path)
        return super().inodes(path)

    def block_number(self, path: str) -> str | None:
        return None if self._step() else super().block_number(path)

    def _step(self) -> bool:
        """Whether this step fails."""
        self.steps += 1
        if self.steps != self.at:
            return False
        self.happens()
        if self.error is not None:
            raise self.error
        return self.fails

    def _step_or_raise(self, path: str) -> None:
        if self._step():
            raise OSError(5, os.strerror(5), path)


@contextmanager
def no_descriptors() -> Iterator[None]:
    """This process may open nothing more."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
