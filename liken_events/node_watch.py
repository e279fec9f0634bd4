"""Paths of device nodes that must not be handed out again unseen.

A prepared claim whose device is away keeps the paths of its nodes. The kernel gives a path like
`/dev/ttyUSB0` to the next device that comes, at the moment that it comes; a container that is
restarted just then would get a stranger's hardware. So the first event about such a path counts,
long before its device has settled.

This file holds the paths that are watched, and what was announced with one of them. Who watches is
`sinks.cdi`; who hears of devices is `reconcile`.
"""

from collections.abc import Iterable, Mapping

import trio

MOST_ANNOUNCED = 1024
"""Announcements that are kept at most, the newest; each is checked when it counts."""


class NodeWatch:
    """The paths that are watched, and who was announced with them. On the trio thread."""

    def __init__(self) -> None:
        self._paths: frozenset[str] = frozenset()
        self._announced: dict[str, str] = {}
        self._numbers: dict[str, int] = {}
        self._number = 0
        self._something = trio.Event()

    @property
    def announced(self) -> Mapping[str, str]:
        """Path of each node that was announced, to the kernel path of the device that has it, or
        had it since."""
        return self._announced

    @property
    def number(self) -> int:
        """How many announcements there were so far."""
        return self._number

    def forget(self, paths: Iterable[str], number: int) -> None:
        """Forgets what was announced with these paths up to the announcement of this number: it
        was looked at, and the node is the held device's own."""
        for path in paths:
            if self._numbers.get(path, number + 1) <= number:
                del self._announced[path], self._numbers[path]

    def watch(self, paths: Iterable[str]) -> None:
        """Says which paths matter from now on. What was announced with others is forgotten."""
        self._paths = frozenset(paths)
        for path in self._announced.keys() - self._paths:
            del self._announced[path], self._numbers[path]

    def announce(self, path: str, devpath: str) -> None:
        """Says that a device came with this node. Cheap if the path is not watched."""
        if path not in self._paths:
            return
        self._announced.pop(path, None)
        self._announced[path] = devpath
        self._number += 1
        self._numbers[path] = self._number
        while len(self._announced) > MOST_ANNOUNCED:
            oldest = next(iter(self._announced))
            del self._announced[oldest], self._numbers[oldest]
        self._something.set()

    async def wait(self) -> None:
        """Waits until something was announced since the last wait ended."""
        await self._something.wait()
        self._something = trio.Event()
