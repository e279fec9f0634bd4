import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
import trio
import trio.testing
from structlog.typing import EventDict

from liken_events.rpc import Server
from liken_events.servers import socket_life
from liken_events.servers.socket_life import SocketLife
from liken_events.unix_socket import CannotServe
from tests.fakes.registered import answers, short_root
from tests.fakes.waiting import until


@pytest.fixture
def path(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setattr(socket_life, "SEEN_SECONDS", 0.001)
    monkeypatch.setattr(socket_life, "RETRY_SECONDS", 0.02)
    with short_root() as root:
        root.mkdir()
        yield root / "it.sock"


def events(logs: list[EventDict]) -> list[str]:
    return [line["event"] for line in logs]


async def test_a_socket_is_held_until_it_is_lost(path: Path, logs: list[EventDict]) -> None:
    life = SocketLife()
    held = trio.Event()

    async def hold() -> None:
        await life.hold(Server(str(path), ()), str(path))
        held.set()

    async with trio.open_nursery() as nursery:
        await nursery.start(life.watch, str(path.parent), (path.name,))
        nursery.start_soon(hold)
        await until(lambda: answers(path))
        path.unlink()
        with trio.fail_after(5):
            await held.wait()
        nursery.cancel_scope.cancel()
    assert events(logs) == ["kubelet.listening", "kubelet.socket_lost"]


async def test_what_is_done_inside_ends_the_socket(path: Path, logs: list[EventDict]) -> None:
    life = SocketLife()
    seen = []

    async def inside() -> None:
        seen.append(await trio.to_thread.run_sync(answers, path))

    await life.hold(Server(str(path), ()), str(path), inside=inside)
    assert seen == [True]
    assert not path.exists()
    assert events(logs) == ["kubelet.listening"]


async def test_what_is_in_the_way_is_told_once_and_tried_again(
    path: Path, logs: list[EventDict]
) -> None:
    life = SocketLife()
    path.write_text("somebody's")
    for _ in range(3):
        await life.hold(Server(str(path), ()), str(path))
    assert path.read_text() == "somebody's"
    (line,) = logs
    assert line["event"] == "kubelet.cannot_serve"
    assert "is no socket and is left alone" in line["reason"]


async def test_another_reason_is_told_too(path: Path, logs: list[EventDict]) -> None:
    life = SocketLife()
    path.write_text("somebody's")
    await life.hold(Server(str(path), ()), str(path))
    path.unlink()

    def refuse() -> None:
        raise CannotServe("no directory for it")

    await life.hold(Server(str(path), ()), str(path), prepare=refuse)
    assert [line["reason"] for line in logs][1] == "no directory for it"


async def test_a_socket_that_a_dead_process_left_is_taken(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(path))
    life = SocketLife()
    found = []

    async def inside() -> None:
        found.append(path.is_socket())

    await life.hold(Server(str(path), ()), str(path), inside=inside)
    assert found == [True]


async def test_a_condition_is_looked_at_again_after_each_change() -> None:
    life = SocketLife()
    looks = []

    def holds() -> bool:
        looks.append(life.changes.number)
        return len(looks) == 3

    async with trio.open_nursery() as nursery:
        nursery.start_soon(life.wait_until, holds)
        for _ in range(2):
            await trio.testing.wait_all_tasks_blocked()
            life.changes.set(None)
    assert looks == [0, 1, 2]
