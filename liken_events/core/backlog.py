"""What the kernel has told of and udevd has not yet.

udevd tells of an event after its rules have run for it, one event of a device after the other.
Most take tens of milliseconds; one that loads a module takes seconds. Meanwhile sysfs shows what
the later events will be about: a driver that is bound, the first of its nodes, with the mode they
have before udevd gives them another. Who looks then sees half a device, and no event says so.

Both tell the same number for the same event. This file holds which paths are behind, as data: time
comes in as a number of seconds. Who hears events is `sources.uevent`; what waits for a device that
is behind, `reconcile`.
"""

from collections.abc import Iterator

LONGEST = 10.0
"""Seconds that a path may be behind before it counts no more. Seen: 2.5 s, for a module loaded on
an emulated CPU. An event that udevd never tells of (it was stopped, or its buffer overran) must
not keep a device from being looked at for good."""


class Backlog:
    """Paths of devices, and the events that one of the two has told of alone."""

    def __init__(self) -> None:
        self._heard: dict[str, tuple[int, float]] = {}
        self._told: dict[str, tuple[int, float]] = {}

    def heard(self, path: str, number: int, now: float) -> None:
        """The kernel told of an event: its device's path, and its number (`SEQNUM`)."""
        told, _ = self._told.get(path, (-1, now))
        if told >= number:
            return  # two sockets: the later of two events may be read first
        self._told.pop(path, None)
        _, since = self._heard.get(path, (number, now))
        self._heard[path] = (number, since)

    def told(self, path: str, number: int, now: float) -> None:
        """udevd told of an event."""
        heard, _ = self._heard.get(path, (-1, now))
        if heard < 0:
            _drop_old(self._told, now)
            self._told.pop(path, None)  # the oldest stands first
            self._told[path] = (number, now)
        elif number >= heard:
            del self._heard[path]

    def forget(self) -> None:
        """Events were lost: who is behind is not known any more."""
        self._heard.clear()
        self._told.clear()

    def paths(self, now: float) -> Iterator[str]:
        """The paths that are behind, and were not for too long."""
        _drop_old(self._heard, now)
        return iter(self._heard)


def _drop_old(entries: dict[str, tuple[int, float]], now: float) -> None:
    """Takes out what is too old; what came first stands first."""
    while entries:
        path = next(iter(entries))
        if entries[path][1] + LONGEST >= now:
            return
        del entries[path]
