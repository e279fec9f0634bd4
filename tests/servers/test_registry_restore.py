"""What is taken away from the servers is put back, and at the end nothing is left."""

import errno
import os
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import grpc
import pytest
import trio
from inotify_simple import INotify, flags
from structlog.typing import EventDict

from liken_events import inotify
from liken_events.core.model.claims import DeviceHealth
from liken_events.latest import Latest
from liken_events.servers import registry
from tests.fakes.kubelet import Kubelet, Release
from tests.fakes.registered import NODE, Health, answers, living, serving, short_root
from tests.fakes.waiting import until

CLAIM = ("default", "camera", "uid-1")
CAMERA = DeviceHealth(device="usb-1-1", is_healthy=True)
LOST = DeviceHealth(device="usb-1-1", is_healthy=False, message="it was unplugged")

Loss = Callable[[Kubelet], None]


@pytest.fixture
def kubelet() -> Iterator[Kubelet]:
    with short_root() as root:
        made = Kubelet(root)
        made.make_directories()
        yield made


def identity(path: Path) -> tuple[int, int]:
    status = path.stat()
    return status.st_ino, status.st_ctime_ns


def missing(logs: list[EventDict]) -> list[str]:
    """What was said to be waited for."""
    return [line["missing"] for line in logs if line["event"] == "kubelet.waiting"]


def is_lost(logs: list[EventDict], path: Path) -> bool:
    """Whether it was said that a socket is gone."""
    lost = [line["socket"] for line in logs if line["event"] == "kubelet.socket_lost"]
    return str(path) in lost


async def are_up(kubelet: Kubelet) -> None:
    """Waits until both sockets answer."""
    await until(lambda: answers(kubelet.service_socket) and answers(kubelet.registration_socket))


def replace(path: Path) -> None:
    """Deletes a directory and makes it anew at once, as the kubelet does at its start."""
    shutil.rmtree(path)
    path.mkdir()


def move_away_and_back(path: Path) -> None:
    away = path.with_name("away")
    path.rename(away)
    away.rename(path)


def exchange(path: Path) -> None:
    """Puts an empty directory in a directory's place."""
    path.rename(path.with_name("away"))
    path.mkdir()


def anew(kubelet: Kubelet, lose: Callable[[Path], None]) -> None:
    """Takes everything away and makes the kubelet's directories again."""
    lose(kubelet.root)
    kubelet.make_directories()


def remove_twice(path: Path) -> None:
    """Removes a socket, and whatever comes in its place right away."""
    path.unlink()
    path.unlink(missing_ok=True)


@pytest.mark.parametrize(
    "lose",
    [
        pytest.param(lambda k: k.service_socket.unlink(), id="service"),
        pytest.param(lambda k: k.registration_socket.unlink(), id="registration"),
        pytest.param(lambda k: k.registration_socket.rename(k.registry / "x"), id="renamed"),
        pytest.param(lambda k: shutil.rmtree(k.service_socket.parent), id="our directory"),
        pytest.param(lambda k: replace(k.service_socket.parent), id="our directory anew"),
        pytest.param(lambda k: shutil.rmtree(k.root / "plugins"), id="plugins"),
        pytest.param(lambda k: replace(k.root / "plugins"), id="plugins anew"),
        pytest.param(lambda k: exchange(k.root / "plugins"), id="plugins exchanged"),
        pytest.param(lambda k: replace(k.registry), id="registry anew"),
        pytest.param(lambda k: exchange(k.registry), id="registry exchanged"),
        pytest.param(lambda k: move_away_and_back(k.registry), id="registry away and back"),
        pytest.param(lambda k: move_away_and_back(k.root / "plugins"), id="plugins away and back"),
        pytest.param(lambda k: move_away_and_back(k.root), id="root away and back"),
        pytest.param(lambda k: anew(k, exchange), id="root exchanged"),
        pytest.param(lambda k: anew(k, shutil.rmtree), id="root anew"),
    ],
)
async def test_what_is_lost_is_put_back(
    kubelet: Kubelet, lose: Loss, logs: list[EventDict]
) -> None:
    async with serving(kubelet.root):
        await are_up(kubelet)
        for _ in range(2):
            lose(kubelet)
            await are_up(kubelet)
            shutil.rmtree(kubelet.root.with_name("away"), ignore_errors=True)
            shutil.rmtree(kubelet.root / "away", ignore_errors=True)
            (kubelet.registry / "x").unlink(missing_ok=True)
            async with living(kubelet):
                assert await (await kubelet.plugin()).prepare(CLAIM)
    assert [line for line in logs if line["event"] == "kubelet.cannot_serve"] == []


async def test_the_kubelets_own_directory_is_waited_for(
    kubelet: Kubelet, logs: list[EventDict]
) -> None:
    async with serving(kubelet.root):
        await are_up(kubelet)
        shutil.rmtree(kubelet.registry)
        await until(lambda: missing(logs) == [str(kubelet.registry)])
        assert not kubelet.registry.exists()
        kubelet.make_directories()
        await are_up(kubelet)
        shutil.rmtree(kubelet.root)
        await until(
            lambda: len([line for line in logs if line["event"] == "kubelet.waiting"]) == 2
        )
        assert not kubelet.root.exists()
        kubelet.make_directories()
        await are_up(kubelet)
    assert len(missing(logs)) == 2


async def test_a_service_that_is_put_back_needs_no_registration(kubelet: Kubelet) -> None:
    async with living(kubelet), serving(kubelet.root):
        plugin = await kubelet.plugin()
        announced = identity(kubelet.registration_socket)
        kubelet.service_socket.unlink()
        await until(lambda: plugin.disconnects == 1 and plugin.is_connected)
        assert await plugin.prepare(CLAIM)
        assert identity(kubelet.registration_socket) == announced
        assert kubelet.events == [("registered", "liken.sh-reg.sock")]


async def test_a_registration_that_is_put_back_is_seen_as_a_new_one(kubelet: Kubelet) -> None:
    async with living(kubelet), serving(kubelet.root):
        plugin = await kubelet.plugin()
        served = identity(kubelet.service_socket)
        remove_twice(kubelet.registration_socket)
        await until(lambda: len(kubelet.events) == 3)
        assert [kind for kind, _ in kubelet.events] == ["registered", "deregistered", "registered"]
        assert await kubelet.plugin() is not plugin
        assert identity(kubelet.service_socket) == served
        assert plugin.disconnects == 0


async def test_between_two_registrations_there_is_none_for_a_while(
    kubelet: Kubelet, logs: list[EventDict], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry, "SEEN_SECONDS", 3600)
    async with serving(kubelet.root):
        await are_up(kubelet)
        for path in (kubelet.registration_socket, kubelet.service_socket):
            path.unlink()
            await until(partial(is_lost, logs, path))
        await until(lambda: answers(kubelet.service_socket))
        assert not kubelet.registration_socket.exists()


@pytest.mark.parametrize("wipe", [False, True], ids=["", "wiped"])
async def test_a_kubelet_that_restarts_knows_us_again(kubelet: Kubelet, wipe: bool) -> None:
    async with living(kubelet), serving(kubelet.root):
        for restarts in range(3):
            plugin = await kubelet.plugin()
            assert await plugin.prepare(CLAIM)
            assert len(kubelet.infos) == restarts + 1
            await kubelet.restart(wipe=wipe)


async def test_at_the_end_both_sockets_go_the_service_first(kubelet: Kubelet) -> None:
    with INotify(nonblocking=True) as watch:
        async with living(kubelet):
            async with serving(kubelet.root):
                await kubelet.plugin()
                for path in (kubelet.service_socket, kubelet.registration_socket):
                    watch.add_watch(str(path.parent), flags.DELETE)
                began = time.monotonic()
            assert time.monotonic() - began < 0.5
            await until(lambda: not kubelet.plugins)
        gone = [event.name for event in watch.read(timeout=0)]
    assert gone == ["dra.sock", "liken.sh-reg.sock"]
    assert not kubelet.service_socket.exists()
    assert os.listdir(kubelet.registry) == []


async def test_a_kubelet_that_calls_again_is_answered_for_the_second_call(
    kubelet: Kubelet,
) -> None:
    slow = ("default", "slow-camera", "uid-1")
    async with living(kubelet), serving(kubelet.root) as keeper:
        plugin = await kubelet.plugin()
        with pytest.raises(grpc.RpcError):
            await plugin.prepare(slow, timeout=0.1)
        await until(lambda: keeper.cancelled == ["uid-1"])
        keeper.released.set()
        assert (await plugin.prepare(slow))["uid-1"].devices
        assert keeper.prepared == {"uid-1": 2}


async def test_many_pods_are_prepared_at_a_time(kubelet: Kubelet) -> None:
    async with living(kubelet), serving(kubelet.root) as keeper:
        plugin = await kubelet.plugin()
        async with trio.open_nursery() as nursery:
            for number in range(32):
                nursery.start_soon(plugin.prepare, ("default", "slow", f"uid-{number}"))
            await until(lambda: len(keeper.running) == 32)
            keeper.released.set()
    assert len(keeper.prepared) == 32


@pytest.mark.parametrize(
    ("release", "service"),
    [
        (Release(), "v1"),
        (Release(health="1.36"), "v1alpha1"),
    ],
)
async def test_the_kubelet_hears_how_devices_fare(
    kubelet: Kubelet, release: Release, service: str
) -> None:
    kubelet.release = release
    health: Health = Latest()
    health.set((CAMERA,))
    async with living(kubelet), serving(kubelet.root, health):
        plugin = await kubelet.plugin()
        await until(lambda: plugin.health)
        assert plugin.health["usb-1-1"].device.pool_name == NODE
        assert plugin.health["usb-1-1"].health == 1
        health.set((LOST,))
        await until(lambda: plugin.health["usb-1-1"].health == 2)
        assert plugin.health["usb-1-1"].message == "it was unplugged"
        assert plugin.messages[0].DESCRIPTOR.full_name == f"{service}.NodeWatchResourcesResponse"
        assert plugin.streams == 1


async def test_when_nothing_newer_will_come_streams_end_and_calls_go_on(
    kubelet: Kubelet,
) -> None:
    health: Health = Latest()
    health.set((CAMERA,))
    async with living(kubelet), serving(kubelet.root, health):
        plugin = await kubelet.plugin()
        await until(lambda: plugin.health)
        health.close()
        await until(lambda: plugin.streams == 2)
        assert await plugin.prepare(CLAIM)


async def test_kubelets_that_come_again_and_again_leave_no_thread(kubelet: Kubelet) -> None:
    health: Health = Latest()
    health.set((CAMERA,))
    most = 0
    async with living(kubelet), serving(kubelet.root, health):
        for number in range(10):
            plugin = await kubelet.plugin()
            await until(partial(bool, plugin.health))
            assert await plugin.prepare(CLAIM, timeout=1)
            most = most or rpc_threads()
            await kubelet.restart(wipe=number % 2 == 0)
        assert rpc_threads() <= most + 3
    await until(lambda: rpc_threads() == 0)


def rpc_threads() -> int:
    return sum(thread.name.startswith("rpc") for thread in threading.enumerate())


async def test_without_inotify_the_sockets_are_put_back_all_the_same(
    kubelet: Kubelet, logs: list[EventDict], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    monkeypatch.setattr(inotify, "INotify", refuse)
    monkeypatch.setattr(inotify, "FALLBACK_SECONDS", 0.02)
    async with serving(kubelet.root):
        await are_up(kubelet)
        kubelet.service_socket.unlink()
        kubelet.registration_socket.unlink()
        await are_up(kubelet)
    assert {line["event"] for line in logs} >= {"inotify.unavailable", "kubelet.socket_lost"}
