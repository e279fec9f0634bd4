"""Our servers beside a kubelet, in one process."""

import os
import socket
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import trio

from liken_events.core.model.claims import DeviceHealth
from liken_events.latest import Latest
from liken_events.servers.registry import KubeletPaths, serve
from tests.fakes.claim_keeper import Keeper
from tests.fakes.kubelet import Kubelet

NODE = "node-1"

Health = Latest[tuple[DeviceHealth, ...]]


@asynccontextmanager
async def serving(
    root: Path, health: Health | None = None, *, instance: str = ""
) -> AsyncIterator[Keeper]:
    """Our servers, for the kubelet whose directory is `root`; stopped at the end of the block."""
    keeper = Keeper()
    newest: Health = Latest() if health is None else health

    async def run(*, task_status: trio.TaskStatus[None]) -> None:
        await serve(
            paths=KubeletPaths.below(str(root), instance),
            node=NODE,
            claims=keeper,
            health=newest,
            task_status=task_status,
        )

    async with trio.open_nursery() as nursery:
        await nursery.start(run)
        yield keeper
        nursery.cancel_scope.cancel()


@asynccontextmanager
async def living(kubelet: Kubelet) -> AsyncIterator[Kubelet]:
    """A kubelet that runs until the end of the block."""
    async with trio.open_nursery() as nursery:
        await nursery.start(kubelet.run)
        yield kubelet
        nursery.cancel_scope.cancel()


@contextmanager
def short_root() -> Iterator[Path]:
    """A directory for a kubelet's: those that pytest makes are too long for sockets."""
    with tempfile.TemporaryDirectory(prefix="kubelet-") as directory:
        yield Path(directory, "root")


def answers(path: Path) -> bool:
    """Whether somebody accepts connections there."""
    with socket.socket(socket.AF_UNIX) as client:
        return client.connect_ex(str(path)) == 0


@contextmanager
def listening(path: Path) -> Iterator[None]:
    """Somebody else who serves there; what he leaves is a socket that refuses."""
    os.makedirs(path.parent, exist_ok=True)
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(str(path))
        made.listen(8)
        yield


def write_file(path: Path) -> None:
    """Something that is no socket."""
    path.parent.mkdir(exist_ok=True)
    path.write_text("mine")


def remove_file(path: Path) -> None:
    """Removes it; it must be as it was."""
    assert path.read_text() == "mine"
    path.unlink()


def make_directory(path: Path) -> None:
    path.mkdir()


def leave_stale(path: Path) -> None:
    """What a process leaves at a path that was killed."""
    with listening(path):
        pass
