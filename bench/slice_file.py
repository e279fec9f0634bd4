"""The slice that an agent writes to a directory, and the moment it does.

An agent replaces the file by a rename, which inotify reports within some 20 µs. Polling for it
would add its own interval to every latency.

This file waits for a slice that fulfils a condition and tells when it came.
"""

import os
import time
from collections.abc import Callable
from types import TracebackType
from typing import Self

from inotify_simple import INotify, flags

from liken_events.cluster.directory import ENDING, SLICES
from liken_events.cluster.slice_file import load_slice
from liken_events.core.model.json import Json


class SliceFile:
    """The slice of one node in one directory. Use as a context manager.

    Args:
        directory: the agent's `--cluster-dir`.
        name: of the slice.
    """

    def __init__(self, directory: str, name: str) -> None:
        above = os.path.join(directory, SLICES)
        os.makedirs(above, exist_ok=True)
        self._path = os.path.join(above, name + ENDING)
        self._inotify = INotify()
        self._inotify.add_watch(above, flags.MOVED_TO | flags.DELETE)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._inotify.close()

    def fileno(self) -> int:
        """For `select`: readable once something happened to the file."""
        return int(self._inotify.fileno())

    def forget(self) -> None:
        """Forgets what happened to the file so far."""
        self._inotify.read(timeout=0)

    def text(self) -> str:
        """The file's content; empty if there is none."""
        try:
            with open(self._path, encoding="utf-8") as file:
                return file.read()
        except FileNotFoundError:
            return ""

    def devices(self) -> list[Json]:
        """The devices in the slice."""
        spec = (load_slice(self.text()) or {}).get("spec")
        devices = spec.get("devices") if isinstance(spec, dict) else None
        return devices if isinstance(devices, list) else []

    def wait(self, condition: Callable[[str], bool], *, seconds: float = 30.0) -> float:
        """Waits until the file's text fulfils the condition.

        Returns:
            When it was seen to do so, in seconds of the monotonic clock.

        Raises:
            TimeoutError: it did not.
        """
        until = time.monotonic() + seconds
        while True:
            now = time.monotonic()
            if condition(self.text()):
                return now
            if now > until:
                raise TimeoutError(f"{self._path} is not as expected after {seconds:g} s")
            self._inotify.read(timeout=max(1, int((until - now) * 1000)))


def has(device: str) -> Callable[[str], bool]:
    """Whether a slice's text has this device."""
    return lambda text: f"- name: {device}\n" in text


def lacks(device: str) -> Callable[[str], bool]:
    """Whether there is a slice, and without this device."""
    return lambda text: bool(text) and f"- name: {device}\n" not in text
