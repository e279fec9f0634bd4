"""A directory that is the `/dev` of a machine, with real nodes in it where this process may make
them, and the source that follows it."""

import os
import stat
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio

from liken_events.core.model.host_devices import HostDevice
from liken_events.latest import Latest
from liken_events.sources.host_nodes import HostNodes, HostNodesSource

NULL, ZERO, TUN = (1, 3), (1, 5), (10, 200)
"""Numbers of character devices, as the kernel assigns them
(`Documentation/admin-guide/devices.txt`)."""


def need_nodes(directory: Path) -> None:
    """Skips a test if this process may make no nodes. To be called in a fixture: the reason of a
    skip inside an asynchronous test is lost."""
    try:
        os.mknod(directory / "probe", stat.S_IFCHR | 0o600, os.makedev(*NULL))
    except PermissionError as error:
        pytest.skip(f"no device node can be made: {error}")
    (directory / "probe").unlink()


class HostDev:
    """The directory.

    Attributes:
        root: its path, for `--dev-root`.
    """

    def __init__(self, root: Path) -> None:
        root.mkdir()
        self.root = str(root)
        self._root = root

    def char(self, name: str, number: tuple[int, int] = NULL) -> None:
        """Makes a character device."""
        self._make(name, stat.S_IFCHR, number)

    def block(self, name: str) -> None:
        """Makes a block device."""
        self._make(name, stat.S_IFBLK, (8, 16))

    def directory(self, name: str) -> None:
        """Makes a directory."""
        (self._root / name).mkdir()

    def file(self, name: str) -> None:
        """Writes to a regular file."""
        (self._root / name).write_text("x")

    def link(self, name: str, target: str) -> None:
        """Makes a link that says `target`."""
        (self._root / name).symlink_to(target)

    def move(self, name: str, to: str) -> None:
        """Renames something, over what is there."""
        os.replace(self._root / name, self._root / to)

    def remove(self, name: str) -> None:
        """Removes a node, a file, a link or an empty directory."""
        path = self._root / name
        if path.is_dir() and not path.is_symlink():
            path.rmdir()
        else:
            path.unlink()

    def _make(self, name: str, kind: int, number: tuple[int, int]) -> None:
        os.mknod(self._root / name, kind | 0o600, os.makedev(*number))


@asynccontextmanager
async def following(dev: str, *resources: tuple[str, ...]) -> AsyncIterator[Latest[HostNodes]]:
    """Runs the source for resources of these paths."""
    nodes: Latest[HostNodes] = Latest()
    devices = [
        HostDevice(resource=f"a.b/c{number}", paths=paths)
        for number, paths in enumerate(resources)
    ]
    async with trio.open_nursery() as nursery:
        await nursery.start(HostNodesSource(dev, devices).run, nodes)
        assert nodes.number == 1, "the first look is there when it has started"
        yield nodes
        nursery.cancel_scope.cancel()


async def sees(
    nodes: Latest[HostNodes],
    present: Mapping[str, tuple[int, int]] | None = None,
    strange: dict[str, str] | None = None,
) -> None:
    """Waits until exactly this is there."""
    wanted = HostNodes(present=present or {}, strange=strange or {})
    with trio.move_on_after(5):
        while nodes.get() != wanted:
            await nodes.wait_newer(nodes.number)
    assert nodes.get() == wanted


async def first_look(dev: HostDev, *paths: str) -> HostNodes:
    """What is there at the start."""
    async with following(dev.root, paths) as nodes:
        return nodes.get()
