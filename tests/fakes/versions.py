"""Every version of a slice file that was ever there."""

import os
import threading
from functools import lru_cache
from types import TracebackType
from typing import Any, Self

from inotify_simple import INotify, flags

from liken_events.cluster.slice_file import load_slice

LOOK_MILLISECONDS = 20
"""How soon the end of the test is noticed."""


class Versions:
    """Reads a file each time somebody renames one to its place. Use as a context manager."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._texts: list[str] = []
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._follow, daemon=True)
        self._inotify = INotify()
        self._inotify.add_watch(os.path.dirname(path), flags.MOVED_TO | flags.DELETE)
        self._read()

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._ended.set()
        self._thread.join()
        self._inotify.close()

    @property
    def newest(self) -> dict[str, Any] | None:
        """The newest version; None before the first. A deleted file is no version."""
        return parsed(self._texts[-1]) if self._texts else None

    @property
    def all(self) -> list[dict[str, Any]]:
        """All versions, oldest first.

        The writer counts the pool's generation up by one each time, which tells that none was
        missed.
        """
        found = [parsed(text) for text in list(self._texts)]
        seen = [generation(body) for body in found]
        assert seen == list(range(seen[0], seen[0] + len(seen)) if seen else []), seen
        return found

    def _follow(self) -> None:
        while not self._ended.is_set():
            if self._inotify.read(timeout=LOOK_MILLISECONDS):
                self._read()

    def _read(self) -> None:
        try:
            with open(self._path, encoding="utf-8") as file:
                text = file.read()
        except FileNotFoundError:
            return
        if not self._texts or self._texts[-1] != text:
            self._texts.append(text)


@lru_cache
def parsed(text: str) -> dict[str, Any]:
    """A slice file's object."""
    body = load_slice(text)
    assert body is not None, text
    return body


def generation(body: dict[str, Any]) -> int:
    """The pool's generation."""
    number: int = body["spec"]["pool"]["generation"]
    return number
