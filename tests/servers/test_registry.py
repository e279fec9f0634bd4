import stat
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import pytest
import trio
from structlog.typing import EventDict

from liken_events._generated import pluginregistration_pb2 as messages
from liken_events.latest import Latest
from liken_events.servers import socket_life
from liken_events.servers.registry import KubeletPaths, serve
from liken_events.unix_socket import PathTooLong
from tests.fakes.claim_keeper import Keeper
from tests.fakes.grpc_calls import dial
from tests.fakes.kubelet import Kubelet, Release
from tests.fakes.registered import (
    answers,
    leave_stale,
    listening,
    living,
    make_directory,
    remove_file,
    serving,
    short_root,
    write_file,
)
from tests.fakes.waiting import until

CLAIM = ("default", "camera", "uid-1")


@pytest.fixture
def root() -> Iterator[Path]:
    with short_root() as directory:
        yield directory


@pytest.fixture
def kubelet(root: Path) -> Kubelet:
    made = Kubelet(root)
    made.make_directories()
    return made


def logged(logs: list[EventDict], event: str) -> list[EventDict]:
    return [line for line in logs if line["event"] == event]


async def test_a_driver_registers_and_is_called(kubelet: Kubelet, logs: list[EventDict]) -> None:
    async with living(kubelet), serving(kubelet.root) as keeper:
        plugin = await kubelet.plugin()
        assert plugin.info == messages.PluginInfo(
            type="DRAPlugin",
            name="liken.sh",
            endpoint=str(kubelet.service_socket),
            supported_versions=[
                "v1.DRAPlugin",
                "v1beta1.DRAPlugin",
                "v1.DRAResourceHealth",
                "v1alpha1.DRAResourceHealth",
            ],
        )
        answer = await plugin.prepare(CLAIM)
        assert answer["uid-1"].devices[0].device_name == "usb-uid-1"
        assert (await plugin.unprepare(CLAIM))["uid-1"].error == ""
        assert (keeper.prepared, keeper.unprepared) == ({"uid-1": 1}, {"uid-1": 1})
        await until(lambda: logged(logs, "kubelet.registered"))
    assert not logged(logs, "kubelet.registration_failed")


@pytest.mark.parametrize(
    ("knows", "taken"),
    [
        (("v1.DRAPlugin", "v1beta1.DRAPlugin"), "v1.DRAPlugin"),
        (("v1.DRAPlugin",), "v1.DRAPlugin"),
        (("v1beta1.DRAPlugin",), "v1beta1.DRAPlugin"),
    ],
)
async def test_kubelets_of_either_version_are_answered_alike(
    kubelet: Kubelet, knows: tuple[str, ...], taken: str
) -> None:
    kubelet.release = Release(versions=knows)
    async with living(kubelet), serving(kubelet.root):
        plugin = await kubelet.plugin()
        assert plugin.version == taken
        claims = [CLAIM, ("default", "refused", "uid-2"), ("default", "full", "uid-3")]
        prepared = await plugin.prepare(*claims)
        assert prepared["uid-1"].devices[0].cdi_device_ids == ["liken.sh/device=uid-1-usb-uid-1"]
        for answer in (prepared, await plugin.unprepare(*claims)):
            assert {uid: entry.error for uid, entry in answer.items()} == {
                "uid-1": "",
                "uid-2": "default/refused is not for us",
                "uid-3": "default/full: No space left on device",
            }
        assert await plugin.prepare() == {}


@pytest.mark.parametrize(
    "release",
    [Release(has_dra=False), Release(versions=("v2.DRAPlugin",))],
    ids=["off", "unknown version"],
)
async def test_a_kubelet_that_refuses_is_said_once_and_taken_later(
    kubelet: Kubelet, release: Release, logs: list[EventDict]
) -> None:
    kubelet.release = release
    async with living(kubelet), serving(kubelet.root):
        await until(lambda: len(kubelet.refusals) >= 3)
        (warning,) = [
            line
            for line in logged(logs, "kubelet.registration_failed")
            if line["log_level"] == "warning"
        ]
        assert warning["error"] == kubelet.refusals[0]
        assert "off in this kubelet, or it is older than 1.34" in warning["hint"]
        kubelet.release = Release()
        assert await (await kubelet.plugin()).prepare(CLAIM)


@pytest.mark.parametrize("error", ["", "broken\x1b[2J\npipe"])
async def test_a_refusal_of_another_kind_is_said_as_it_is(
    kubelet: Kubelet, error: str, logs: list[EventDict]
) -> None:
    async with serving(kubelet.root):
        await until(lambda: answers(kubelet.registration_socket))
        with dial(str(kubelet.registration_socket)) as channel:
            tell = channel.unary_unary(
                "/pluginregistration.Registration/NotifyRegistrationStatus",
                messages.RegistrationStatus.SerializeToString,
                messages.RegistrationStatusResponse.FromString,
            )
            for _ in range(2):
                call = tell.future(messages.RegistrationStatus(error=error), timeout=5)
                await until(call.done)
                assert call.exception() is None
    first = logged(logs, "kubelet.registration_failed")[0]
    assert first["error"] == error.replace("\x1b", "\\x1b").replace("\n", "\\x0a")
    assert "tries again by itself" in first["hint"]


async def test_the_service_answers_before_it_is_announced(kubelet: Kubelet) -> None:
    async with serving(kubelet.root):
        await until(kubelet.registration_socket.exists)
        assert answers(kubelet.service_socket)
        assert answers(kubelet.registration_socket)


async def test_who_we_are_is_said_while_the_trio_thread_is_busy(kubelet: Kubelet) -> None:
    async with serving(kubelet.root):
        await until(lambda: answers(kubelet.registration_socket))
        answered = threading.Event()
        took: list[float] = []

        def ask() -> None:
            with dial(str(kubelet.registration_socket)) as channel:
                call = channel.unary_unary(
                    "/pluginregistration.Registration/GetInfo",
                    messages.InfoRequest.SerializeToString,
                    messages.PluginInfo.FromString,
                )
                began = time.monotonic()
                assert call(messages.InfoRequest(), timeout=1).name == "liken.sh"
                took.append(time.monotonic() - began)
            answered.set()

        asking = threading.Thread(target=ask)
        asking.start()
        assert answered.wait(5)  # this thread is trio's: nothing else of it runs meanwhile
        asking.join()
        assert took[0] < 0.2


async def test_without_a_kubelet_it_waits_and_says_so_once(
    root: Path, logs: list[EventDict]
) -> None:
    kubelet = Kubelet(root)
    async with serving(root):
        await until(lambda: logged(logs, "kubelet.waiting"))
        make_directory(root.parent / "something")
        make_directory(root)
        await until(lambda: answers(kubelet.service_socket))
        await until(lambda: len(logged(logs, "kubelet.waiting")) == 2)
        async with living(kubelet):
            assert await (await kubelet.plugin()).prepare(CLAIM)
    missing = [line["missing"] for line in logged(logs, "kubelet.waiting")]
    assert missing == [str(root), str(kubelet.registry)]
    assert not logged(logs, "kubelet.cannot_serve")


async def test_a_kubelet_that_comes_late_is_served(kubelet: Kubelet) -> None:
    async with serving(kubelet.root):
        await until(lambda: answers(kubelet.registration_socket))
        async with living(kubelet):
            assert await (await kubelet.plugin()).prepare(CLAIM)


async def test_directories_are_made_as_the_kubelet_makes_them(root: Path) -> None:
    kubelet = Kubelet(root)
    kubelet.registry.mkdir(parents=True)
    async with serving(root):
        await until(lambda: answers(kubelet.registration_socket))
        for directory in (root / "plugins", root / "plugins" / "liken.sh"):
            assert stat.S_IMODE(directory.stat().st_mode) == 0o750


async def test_what_a_dead_instance_left_is_replaced(kubelet: Kubelet) -> None:
    foreign = kubelet.registry / "other.example.com-reg.sock"
    for path in (kubelet.service_socket, kubelet.registration_socket, foreign):
        leave_stale(path)
    async with living(kubelet), serving(kubelet.root):
        assert await (await kubelet.plugin()).prepare(CLAIM)
    assert foreign.exists()
    assert not kubelet.registration_socket.exists()


async def test_a_live_instance_is_left_alone_until_it_ends(
    kubelet: Kubelet, logs: list[EventDict]
) -> None:
    async with living(kubelet), serving(kubelet.root) as older:
        await kubelet.plugin()
        async with trio.open_nursery() as nursery:
            newer = Keeper()
            nursery.start_soon(
                partial(
                    serve,
                    paths=KubeletPaths.below(str(kubelet.root)),
                    node="node-1",
                    claims=newer,
                    health=Latest(),
                )
            )
            await until(lambda: logged(logs, "kubelet.cannot_serve"))
            await (await kubelet.plugin()).prepare(CLAIM)
            assert (older.prepared, newer.prepared) == ({"uid-1": 1}, {})
            older_ends = logged(logs, "kubelet.cannot_serve")[0]
            assert "another instance serves" in older_ends["reason"]
            nursery.cancel_scope.cancel()
        assert answers(kubelet.service_socket)


async def test_when_another_instance_was_killed_its_place_is_taken(
    kubelet: Kubelet, logs: list[EventDict], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(socket_life, "RETRY_SECONDS", 0.02)  # a death makes no event
    with ExitStack() as other:
        other.enter_context(listening(kubelet.service_socket))
        async with serving(kubelet.root):
            await until(lambda: logged(logs, "kubelet.cannot_serve"))
            assert not kubelet.registration_socket.exists()
            other.close()
            await until(lambda: answers(kubelet.registration_socket))
    (line,) = logged(logs, "kubelet.cannot_serve")
    assert line["reason"] == f"another instance serves {kubelet.service_socket}"


@pytest.mark.parametrize("name", ["service_socket", "registration_socket"])
async def test_what_is_no_socket_is_said_and_left_alone(
    kubelet: Kubelet, name: str, logs: list[EventDict]
) -> None:
    path: Path = getattr(kubelet, name)
    write_file(path)
    async with serving(kubelet.root):
        await until(lambda: logged(logs, "kubelet.cannot_serve"))
        remove_file(path)
        await until(lambda: answers(kubelet.registration_socket))
    (line,) = logged(logs, "kubelet.cannot_serve")
    assert (line["socket"], line["reason"]) == (
        str(path),
        f"{path} is no socket and is left alone: remove it",
    )


async def test_a_directory_that_cannot_be_made_is_said_and_tried_again(
    kubelet: Kubelet, logs: list[EventDict]
) -> None:
    plugins = kubelet.root / "plugins"
    plugins.rmdir()
    write_file(plugins)
    async with serving(kubelet.root):
        await until(lambda: logged(logs, "kubelet.cannot_serve"))
        remove_file(plugins)
        await until(lambda: answers(kubelet.registration_socket))
    (line,) = logged(logs, "kubelet.cannot_serve")
    assert line["reason"] == f"cannot make {plugins}/liken.sh: Not a directory"


LONGEST_ROOT = "/" + "r" * 71
"""The registration socket's path is 35 bytes longer."""


@pytest.mark.parametrize("root", ["/var/lib/kubelet", "/var/snap/k8s/common/var/lib/kubelet"])
def test_the_usual_directories_are_short_enough(root: str) -> None:
    paths = KubeletPaths.below(root)
    assert paths.service == f"{root}/plugins/liken.sh/dra.sock"
    assert paths.registration == f"{root}/plugins_registry/liken.sh-reg.sock"


def test_a_directory_that_is_too_long_is_refused_at_the_start() -> None:
    KubeletPaths.below(LONGEST_ROOT)
    too_long = LONGEST_ROOT + "r"
    with pytest.raises(PathTooLong) as caught:
        KubeletPaths.below(too_long)
    assert str(caught.value) == (
        f"--kubelet-dir: the socket path {too_long}/plugins_registry/liken.sh-reg.sock has "
        "108 bytes, and the kernel takes 107; name a shorter directory"
    )


def test_the_kubelet_is_told_an_absolute_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert KubeletPaths.below("kubelet").service == f"{tmp_path}/kubelet/plugins/liken.sh/dra.sock"
