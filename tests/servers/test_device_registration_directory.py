"""What is taken away is put back, and what happened while nobody could hear is found."""

import errno
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import trio
import trio.testing
from inotify_simple import INotify
from structlog.typing import EventDict

from liken_events import inotify
from tests.fakes.device_kubelet import DeviceKubelet
from tests.fakes.faults import no_descriptors
from tests.fakes.offered import FEW, all_there, offering, works, works_once
from tests.fakes.registered import answers, remove_file, short_root, write_file
from tests.fakes.waiting import until


@pytest.fixture
def kubelet() -> Iterator[DeviceKubelet]:
    with short_root() as root:
        yield DeviceKubelet(root)


def logged(logs: list[EventDict], event: str) -> list[EventDict]:
    return [line for line in logs if line["event"] == event]


def own(kubelet: DeviceKubelet) -> Path:
    return kubelet.directory / FEW.socket


def move_away_and_back(path: Path) -> None:
    away = path.with_name("away")
    path.rename(away)
    away.rename(path)


def remove_twice(path: Path) -> None:
    path.unlink()
    path.unlink(missing_ok=True)


@pytest.mark.parametrize(
    "lose",
    [
        pytest.param(lambda k: own(k).unlink(), id="removed"),
        pytest.param(lambda k: remove_twice(own(k)), id="removed twice"),
        pytest.param(lambda k: own(k).rename(k.directory / "x"), id="renamed"),
        pytest.param(lambda k: k.wipe(), id="with the kubelet's"),
    ],
)
async def test_our_socket_is_put_back_while_the_kubelet_lives(
    kubelet: DeviceKubelet, lose: Callable[[DeviceKubelet], None], logs: list[EventDict]
) -> None:
    async with kubelet.present(), offering(kubelet.root, all_there(FEW)):
        await kubelet.start()
        for count in range(1, 4):
            client = await works(kubelet)
            lose(kubelet)
            await until(lambda: not client.is_watching)  # noqa: B023
            await until(lambda: answers(own(kubelet)))
            if not kubelet.socket.exists():
                await kubelet.stop()
                await kubelet.start()
            assert await works(kubelet) is not client
            assert len(logged(logs, "kubelet.socket_lost")) >= count
            (kubelet.directory / "x").unlink(missing_ok=True)


async def test_the_socket_of_the_kubelet_may_be_touched_and_moved(kubelet: DeviceKubelet) -> None:
    """It is the same one, which knows us: to register again would do harm."""
    offered, spare = all_there(FEW), kubelet.root / "spare"
    async with kubelet.present(), offering(kubelet.root, offered):
        await kubelet.start()
        client = await works_once(kubelet, offered)
        kubelet.socket.chmod(0o600)
        os.utime(kubelet.socket)
        assert await works_once(kubelet, offered) is client
        kubelet.socket.rename(spare)
        assert await works_once(kubelet, offered) is client
        os.link(spare, kubelet.socket)
        assert await works_once(kubelet, offered) is client
        move_away_and_back(kubelet.socket)
        assert await works_once(kubelet, offered) is client


async def test_what_was_made_and_removed_and_made_before_anybody_looked_counts_once(
    kubelet: DeviceKubelet,
) -> None:
    offered = all_there(FEW)
    async with kubelet.present(), offering(kubelet.root, offered):
        for _ in range(3):
            await kubelet.start()  # nothing of ours runs between here and the last link
            spare = kubelet.root / "spare"
            os.link(kubelet.socket, spare)
            for _ in range(2):
                kubelet.socket.unlink()
                os.link(spare, kubelet.socket)
            spare.unlink()
            await works_once(kubelet, offered)
            await kubelet.stop()


async def test_a_directory_that_is_removed_and_made_again_is_followed(
    kubelet: DeviceKubelet,
) -> None:
    offered = all_there(FEW)
    async with kubelet.present(), offering(kubelet.root, offered):
        for number in range(4):
            await kubelet.start()
            await works_once(kubelet, offered)
            await kubelet.stop()
            shutil.rmtree(kubelet.root if number % 2 else kubelet.directory)
            if number > 1:
                await until(lambda: not own(kubelet).parent.exists())
                await trio.testing.wait_all_tasks_blocked()


async def test_a_directory_that_is_moved_away_and_back_is_followed(
    kubelet: DeviceKubelet,
) -> None:
    async with kubelet.present(), offering(kubelet.root, all_there(FEW)):
        await kubelet.start()
        for path in (kubelet.directory, kubelet.root) * 2:
            await works(kubelet)
            away = path.with_name("away")
            path.rename(away)
            await until(lambda: kubelet.life.clients == {})
            away.rename(path)
            await works(kubelet)
            move_away_and_back(path)
            await works(kubelet)
        await kubelet.stop()
        await kubelet.start()
        await works(kubelet)


async def test_an_overflow_does_not_hide_a_new_kubelet(
    kubelet: DeviceKubelet, queue_length: int
) -> None:
    offered = all_there(FEW)
    async with kubelet.present(), offering(kubelet.root, offered):
        await kubelet.start()
        await works_once(kubelet, offered)
        await kubelet.stop()
        with (
            (kubelet.directory / "a").open("wb", buffering=0) as first,
            (kubelet.directory / "b").open("wb", buffering=0) as second,
        ):
            await until(lambda: answers(own(kubelet)))
            for number in range(queue_length + 2):  # equal events in a row would be merged
                (second if number % 2 else first).write(b"x")
            await kubelet.start()
        await works_once(kubelet, offered)


@pytest.mark.parametrize(
    ("method", "number", "advice"),
    [
        ("__init__", errno.EMFILE, "fs.inotify.max_user_instances"),
        ("add_watch", errno.ENOSPC, "fs.inotify.max_user_watches"),
    ],
)
async def test_without_inotify_it_looks_from_time_to_time_until_there_is_one(
    kubelet: DeviceKubelet,
    logs: list[EventDict],
    monkeypatch: pytest.MonkeyPatch,
    method: str,
    number: int,
    advice: str,
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(number, os.strerror(number))

    offered = all_there(FEW)
    with monkeypatch.context() as patch:
        patch.setattr(INotify, method, refuse)
        patch.setattr(inotify, "FALLBACK_SECONDS", 0.02)
        async with kubelet.present(), offering(kubelet.root, offered):
            for _ in range(3):
                await kubelet.start()
                await works_once(kubelet, offered)
                await kubelet.kill()
            patch.undo()
            await until(lambda: len(logged(logs, "inotify.available")) == 2)
            await kubelet.start()
            await works_once(kubelet, offered)
    lines = logged(logs, "inotify.unavailable")
    assert {line["directory"] for line in lines} == {str(kubelet.root), str(kubelet.directory)}
    assert len(lines) == 2
    assert all(advice in line["reason"] for line in lines)


async def test_without_descriptors_it_is_tried_again(
    kubelet: DeviceKubelet, logs: list[EventDict], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("liken_events.servers.socket_life.RETRY_SECONDS", 0.05)
    offered = all_there(FEW)
    async with kubelet.present(), offering(kubelet.root, offered):
        await kubelet.start()
        await works_once(kubelet, offered)
        await kubelet.stop()
        await until(lambda: answers(own(kubelet)))
        with no_descriptors():
            own(kubelet).unlink()
            await until(lambda: logged(logs, "kubelet.cannot_serve"))
        await kubelet.start()
        await works_once(kubelet, offered)


async def test_what_is_no_socket_is_said_and_left_alone(
    kubelet: DeviceKubelet, logs: list[EventDict]
) -> None:
    offered = all_there(FEW)
    kubelet.directory.mkdir(parents=True)
    write_file(own(kubelet))
    async with kubelet.present(), offering(kubelet.root, offered):
        await kubelet.start()
        await until(lambda: logged(logs, "kubelet.cannot_serve"))
        remove_file(own(kubelet))
        await works_once(kubelet, offered)
    (line,) = logged(logs, "kubelet.cannot_serve")
    assert line["reason"] == f"{own(kubelet)} is no socket and is left alone: remove it"
