import errno
import fcntl
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio
from structlog.typing import EventDict

from liken_events.sinks import instance_lock
from liken_events.sinks.instance_lock import try_lock, turn
from tests.fakes.waiting import until


@pytest.fixture
def directory(tmp_path: Path) -> str:
    return f"{tmp_path}/records"


@asynccontextmanager
async def inside(directory: str) -> AsyncIterator[trio.Event]:
    """An instance that has its turn until the end of the block; gives what is set then."""
    entered = trio.Event()
    leave = trio.Event()

    async def run() -> None:
        async with turn("slices", directory, trio.sleep_forever) as is_ours:
            assert is_ours
            entered.set()
            await leave.wait()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(run)
        yield entered
        leave.set()


def events(logs: list[EventDict]) -> list[str]:
    return [line["event"] for line in logs]


async def test_one_is_inside_after_the_other(
    directory: str, logs: list[EventDict], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(instance_lock, "TURN_SECONDS", 0.01)
    async with inside(directory) as second:
        await second.wait()
        async with trio.open_nursery() as nursery:
            third = trio.Event()

            async def run() -> None:
                async with turn("slices", directory, trio.sleep_forever) as is_ours:
                    assert is_ours
                    third.set()

            nursery.start_soon(run)
            await until(lambda: "instance.waiting" in events(logs))
            with trio.move_on_after(0.1):
                await third.wait()
            assert not third.is_set()
            nursery.cancel_scope.cancel()
    async with inside(directory) as next_one:
        await next_one.wait()
    assert events(logs) == ["instance.waiting"], "it is said once"


async def test_who_leaves_lets_the_next_one_in(
    directory: str, logs: list[EventDict], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(instance_lock, "TURN_SECONDS", 0.01)
    async with trio.open_nursery() as nursery:
        async with inside(directory) as first:
            await first.wait()
            second = trio.Event()

            async def run() -> None:
                async with turn("slices", directory, trio.sleep_forever):
                    second.set()

            nursery.start_soon(run)
            await until(lambda: events(logs) == ["instance.waiting"])
            assert not second.is_set()
        with trio.fail_after(5):
            await second.wait()


async def test_different_things_have_turns_of_their_own(directory: str) -> None:
    async with inside(directory) as first:
        await first.wait()
        async with turn("other", directory, trio.sleep_forever) as is_ours:
            assert is_ours


async def test_who_need_not_wait_any_longer_has_no_turn(directory: str) -> None:
    async with inside(directory) as first:
        await first.wait()
        ended = trio.Event()
        ended.set()
        async with turn("slices", directory, ended.wait) as is_ours:
            assert not is_ours
        before = len(os.listdir("/proc/self/fd"))
        async with turn("slices", directory, ended.wait) as is_ours:
            assert len(os.listdir("/proc/self/fd")) == before


async def test_better_two_than_none(directory: str, logs: list[EventDict]) -> None:
    Path(directory).write_text("no directory")
    async with turn("slices", directory, trio.sleep_forever) as is_ours:
        assert is_ours
    [line] = logs
    assert (line["event"], line["what"]) == ("instance.no_turn", "slices")
    assert "File exists" in line["reason"]


async def test_the_directory_is_for_the_agent_alone(directory: str) -> None:
    async with turn("slices", directory, trio.sleep_forever):
        assert os.listdir(directory) == ["slices.lock"]
    assert os.stat(directory).st_mode & 0o777 == 0o700
    assert os.stat(f"{directory}/slices.lock").st_mode & 0o777 == 0o600


def test_a_file_that_was_exchanged_meanwhile_is_not_the_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, real = tmp_path / "lock", fcntl.flock

    def exchange(descriptor: int, operation: int) -> None:
        path.unlink()
        path.touch()
        real(descriptor, operation)

    with monkeypatch.context() as patch:
        patch.setattr(fcntl, "flock", exchange)
        assert try_lock(str(path), os.O_RDONLY | os.O_CREAT) is None
    descriptor = try_lock(str(path), os.O_RDONLY)
    assert descriptor is not None
    assert try_lock(str(path), os.O_RDONLY) is None
    os.close(descriptor)


def test_a_lock_that_cannot_be_had_is_said_and_nothing_stays_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(descriptor: int, operation: int) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", refuse)
    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(OSError, match="No locks available"):
        try_lock(str(tmp_path), os.O_RDONLY | os.O_DIRECTORY)
    assert len(os.listdir("/proc/self/fd")) == before
