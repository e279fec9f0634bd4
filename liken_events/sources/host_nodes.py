"""Which host devices are there: nodes of the machine's `/dev`, followed by name.

A node comes with a module that is loaded late or a rule of udev's, and goes with the module. In a
container the host's `/dev` is mounted somewhere else, and a link in it still says `/dev/…`. A file
of the right name may be anything: somebody may have written to `/dev/kvm` before there was one.

This file follows the directories by inotify and tells which paths are character devices, and what
else stands in their place. It opens nothing. What is offered of it is decided in
`core.model.host_devices`.
"""

import os
import stat
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import trio

from liken_events.core.model.host_devices import HostDevice, is_wild, matches
from liken_events.core.model.names import printable
from liken_events.inotify import DirectoryWatch
from liken_events.latest import Latest

MOST_LINKS = 8
"""Links that are followed one after the other; udev's lead to the node itself."""

OUTSIDE = "a link that leads out of /dev"
ENDLESS = "a link that leads to no end"
DIRECTORY = "a directory"


@dataclass(frozen=True, slots=True, kw_only=True)
class HostNodes:
    """What is there of the nodes that are configured.

    Attributes:
        present: paths of character devices, as on the host, each with its major and minor number.
        strange: paths at which something else is, and what: `a regular file`.
    """

    present: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    strange: Mapping[str, str] = field(default_factory=dict)


class HostNodesSource:
    """Follows the nodes of some host devices.

    Args:
        dev: what is `/dev` on the machine that is looked at.
        devices: the host devices.
    """

    def __init__(self, dev: str, devices: Iterable[HostDevice]) -> None:
        self._dev = dev
        self._paths = frozenset(path for item in devices for path in item.paths)
        self._changes: Latest[None] = Latest()

    async def run(
        self,
        nodes: Latest[HostNodes],
        *,
        task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        """Keeps `nodes` at what is there, for ever; `started()` after the first look."""
        followed: dict[str, trio.CancelScope] = {}
        is_started = False
        async with trio.open_nursery() as nursery:
            while True:
                seen = self._changes.number
                look = _Look(self._dev)
                found = look.at_all(self._paths)
                for place in followed.keys() - look.places:
                    followed.pop(place).cancel()
                new = look.places - followed.keys()
                for place in sorted(new):
                    followed[place] = await nursery.start(self._follow, place)
                if new:
                    continue  # something may have come before it was followed
                if nodes.number == 0 or nodes.get() != found:
                    nodes.set(found)
                if not is_started:
                    is_started = True
                    task_status.started()
                await self._changes.wait_newer(seen)

    async def _follow(
        self, directory: str, *, task_status: trio.TaskStatus[trio.CancelScope]
    ) -> None:
        with trio.CancelScope() as scope, DirectoryWatch(directory, names_only=True) as watch:
            task_status.started(scope)
            while True:
                await watch.changed()
                self._changes.set(None)


class _Look:
    """One look at the nodes.

    Attributes:
        places: the directories whose entries decided what was found.
    """

    def __init__(self, dev: str) -> None:
        self.places: set[str] = set()
        self._dev = dev.rstrip("/")

    def at_all(self, paths: Iterable[str]) -> HostNodes:
        """What is at these paths and patterns."""
        present: dict[str, tuple[int, int]] = {}
        strange: dict[str, str] = {}
        for meant in paths:
            for path in self._entries(meant) if is_wild(meant) else (meant,):
                _, status = self._walk(path)
                found = _judged(path, status) if isinstance(status, os.stat_result) else status
                if isinstance(found, tuple):
                    present[path] = found
                elif found is not None and not (found == DIRECTORY and is_wild(meant)):
                    strange[path] = found
        return HostNodes(present=present, strange=strange)

    def _entries(self, pattern: str) -> tuple[str, ...]:
        """The paths that match a pattern; none if its directory is missing, or none of `/dev`."""
        directory = os.path.dirname(pattern)
        where, found = self._walk(directory)
        if not isinstance(found, os.stat_result):
            return ()
        self.places.add(self._here(where))
        try:
            paths = [f"{directory}/{name}" for name in os.listdir(self._here(where))]
        except OSError:
            return ()
        return tuple(path for path in paths if matches(path, pattern))

    def _walk(self, path: str) -> tuple[str, os.stat_result | str | None]:
        """Follows a path step by step, as the host would: where a link says `/dev/…`, that is not
        the `/dev` of this process.

        Returns:
            How far it leads, as a path without links, and what is there: None for nothing, a text
            if a link leads nowhere that counts.
        """
        here, links = "/dev", 0
        ahead = path.split("/")[:1:-1]
        try:
            while ahead:
                part = ahead.pop()
                if part in ("", "."):
                    continue
                if part == "..":
                    here = os.path.dirname(here)
                    continue
                below = os.path.join(here, part)
                if below == "/dev":
                    here = below
                    continue
                if here == "/":
                    return here, OUTSIDE
                self.places.add(self._here(here))
                if not stat.S_ISLNK(os.lstat(self._here(below)).st_mode):
                    here = below
                    continue
                links += 1
                if links > MOST_LINKS:
                    return here, ENDLESS
                target = os.readlink(self._here(below))
                here = "/" if target.startswith("/") else here
                ahead += target.split("/")[::-1]
            return (here, OUTSIDE) if here == "/" else (here, os.stat(self._here(here)))
        except OSError:
            return here, None

    def _here(self, path: str) -> str:
        """Where a path of the host's `/dev` is seen from here."""
        return self._dev + path.removeprefix("/dev")


def _judged(path: str, found: os.stat_result) -> tuple[int, int] | str:
    """The number of a character device that can be given away, or what else it is."""
    mode = found.st_mode
    if stat.S_ISCHR(mode):
        if printable(path) != path:
            return "a node with a name that cannot be shown"
        return os.major(found.st_rdev), os.minor(found.st_rdev)
    if stat.S_ISBLK(mode):
        return "a block device"
    if stat.S_ISDIR(mode):
        return DIRECTORY
    return "a regular file" if stat.S_ISREG(mode) else "neither a device nor a regular file"
