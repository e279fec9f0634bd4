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
        self._something = trio.Event()

    @property
    def announced(self) -> Mapping[str, str]:
        """Path of each node that was announced, to the kernel path of the device that has it, or
        had it since."""
        return self._announced

    def watch(self, paths: Iterable[str]) -> None:
        """Says which paths matter from now on. What was announced with others is forgotten."""
        self._paths = frozenset(paths)
        self._announced = {p: d for p, d in self._announced.items() if p in self._paths}

    def announce(self, path: str, devpath: str) -> None:
        """Says that a device came with this node. Cheap if the path is not watched."""
        if path not in self._paths:
            return
        self._announced.pop(path, None)
        self._announced[path] = devpath
        while len(self._announced) > MOST_ANNOUNCED:
            del self._announced[next(iter(self._announced))]
        self._something.set()

    async def wait(self) -> None:
        """Waits until something was announced since the last wait ended."""
        await self._something.wait()
        self._something = trio.Event()
