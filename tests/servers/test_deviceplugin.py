import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc
import pytest
import trio

from liken_events._generated import deviceplugin_pb2 as messages
from liken_events.core.model.host_devices import KVM, HostDevice
from liken_events.rpc import Server
from liken_events.servers.deviceplugin import DevicePlugin
from tests.fakes.device_client import DeviceClient
from tests.fakes.offered import FEW, appear, presence_of
from tests.fakes.registered import short_root
from tests.fakes.waiting import until

TUN = HostDevice(resource="example.com/net", paths=("/dev/net/tun", "/dev/vhost-net"), count=2)
VIDEO = HostDevice(resource="example.com/video", paths=("/dev/video*",))
HEALTHY = {"kvm-0": "Healthy", "kvm-1": "Healthy", "kvm-2": "Healthy"}
UNHEALTHY = dict.fromkeys(HEALTHY, "Unhealthy")


@pytest.fixture
def path() -> Iterator[Path]:
    with short_root() as root:
        root.mkdir()
        yield root / "plugin.sock"


@asynccontextmanager
async def served(path: Path, plugin: DevicePlugin) -> AsyncIterator[DeviceClient]:
    """Serves a plugin; a kubelet's connection to it, without a stream."""
    async with Server(str(path), (plugin.service(),)).serving():
        client = DeviceClient(str(path))
        try:
            yield client
        finally:
            client.close()


@asynccontextmanager
async def watched(path: Path, plugin: DevicePlugin) -> AsyncIterator[DeviceClient]:
    """As `served`, with a stream that has told its first list."""
    async with served(path, plugin) as client, trio.open_nursery() as nursery:
        nursery.start_soon(trio.to_thread.run_sync, client.watch)
        try:
            await until(lambda: client.is_watching)
            yield client
        finally:
            client.cancel()


async def refusal(client: DeviceClient, *containers: list[str]) -> tuple[str, str]:
    with pytest.raises(grpc.RpcError) as caught:
        await client.allocate(*containers)
    error: Any = caught.value
    return error.code().name, error.details()


async def test_all_units_are_listed_once_and_not_again(path: Path) -> None:
    async with watched(path, DevicePlugin(KVM, presence_of(KVM))) as client:
        for _ in range(5):
            await client.allocate(["kvm-17"])
        (listed,) = client.lists
    assert list(listed) == [f"kvm-{index}" for index in range(4096)]
    assert set(listed.values()) == {"Healthy"}


async def test_a_node_that_goes_and_comes_is_told_on_the_stream(path: Path) -> None:
    presence = presence_of(FEW)
    plugin = DevicePlugin(FEW, presence)
    async with watched(path, plugin) as client:
        for there in ([], ["/dev/kvm"], [], ["/dev/kvm"]):
            seen = len(client.lists)
            appear(presence, *there)
            await until(lambda: len(client.lists) == seen + 1)  # noqa: B023
        assert client.lists == [HEALTHY, UNHEALTHY, HEALTHY, UNHEALTHY, HEALTHY]
        assert plugin.opened == 1


async def test_a_list_that_stays_as_it_is_is_not_sent_again(path: Path) -> None:
    presence = presence_of(TUN)
    async with watched(path, DevicePlugin(TUN, presence)) as client:
        for there in (["/dev/vhost-net"], [], ["/dev/net/tun"], [*TUN.paths]):
            appear(presence, *there)
            for _ in range(3):  # time enough for another list
                await client.allocate(["tun-0"])
        await until(lambda: len(client.lists) == 3)
    states = [set(listed.values()) for listed in client.lists]
    assert states == [{"Healthy"}, {"Unhealthy"}, {"Healthy"}]


async def test_a_stream_that_begins_later_is_told_what_is_then(path: Path) -> None:
    presence = presence_of(FEW)
    plugin = DevicePlugin(FEW, presence)
    async with watched(path, plugin) as client:
        appear(presence)
        await until(lambda: len(client.lists) == 2)
        other = DeviceClient(str(path))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(trio.to_thread.run_sync, other.watch)
            await until(lambda: other.lists == [UNHEALTHY])
            assert plugin.opened == 2
            other.cancel()
        other.close()
        await until(lambda: plugin.ended == 1)
        assert plugin.is_watched


async def test_units_of_a_pattern_stay_in_the_list_once_they_were_there(path: Path) -> None:
    presence = presence_of(VIDEO)
    appear(presence, "/dev/video0", "/dev/video1")
    async with watched(path, DevicePlugin(VIDEO, presence)) as client:
        appear(presence, "/dev/video1", "/dev/video10")
        await until(lambda: len(client.lists) == 2)
    assert client.lists == [
        {"video0": "Healthy", "video1": "Healthy"},
        {"video0": "Unhealthy", "video1": "Healthy", "video10": "Healthy"},
    ]


async def test_options_are_the_default_also_while_the_trio_thread_is_busy(path: Path) -> None:
    async with served(path, DevicePlugin(KVM, presence_of(KVM))) as client:
        asking = threading.Thread(target=client.ask_options)
        asking.start()
        asking.join(5)  # this thread is trio's: nothing else of it runs meanwhile
        assert client.options == messages.DevicePluginOptions()


@pytest.mark.parametrize("authority", ["localhost", "/run/x.sock", "%2Frun%2Fx.sock", "a.b:1"])
async def test_whatever_a_kubelet_calls_us_it_is_answered(path: Path, authority: str) -> None:
    async with served(path, DevicePlugin(KVM, presence_of(KVM))):
        client = DeviceClient(str(path), authority=authority)
        assert await client.allocate(["kvm-0"]) == [[("/dev/kvm", "/dev/kvm", "rw")]]
        client.close()


async def test_each_container_is_given_the_nodes_of_its_units_each_once(path: Path) -> None:
    device = replace(TUN, permissions="r")
    async with served(path, DevicePlugin(device, presence_of(device))) as client:
        given = await client.allocate(["tun-0"], ["tun-1", "tun-0"], [])
    both = [(path, path, "r") for path in ("/dev/net/tun", "/dev/vhost-net")]
    assert given == [both, both, []]


async def test_of_a_pattern_a_container_is_given_what_was_asked_for(path: Path) -> None:
    presence = presence_of(VIDEO)
    appear(presence, "/dev/video0", "/dev/video1", "/dev/video2")
    async with served(path, DevicePlugin(VIDEO, presence)) as client:
        given = await client.allocate(["video2"], ["video1", "video0"])
        assert [[spec[0] for spec in specs] for specs in given] == [
            ["/dev/video2"],
            ["/dev/video1", "/dev/video0"],
        ]
        code, text = await refusal(client, ["video3"])
    assert (code, text) == ("INVALID_ARGUMENT", "example.com/video has no unit 'video3'")


async def test_a_unit_may_be_asked_for_again_and_by_many_at_a_time(path: Path) -> None:
    given: list[object] = []
    async with served(path, DevicePlugin(KVM, presence_of(KVM))) as client:

        async def ask(*containers: list[str]) -> None:
            given.append(await client.allocate(*containers))

        async with trio.open_nursery() as nursery:
            for number in range(40):
                nursery.start_soon(ask, ["kvm-3"] if number % 2 else [f"kvm-{number}"])
        await ask(["kvm-3"])
    assert given == [[[("/dev/kvm", "/dev/kvm", "rw")]]] * 41


@pytest.mark.parametrize(
    "name", ["", "kvm", "kvm-", "kvm-4096", "kvm-01", "kvm--1", "kvm-٣", "KVM-1", "tun-1", "-1"]
)
async def test_a_unit_that_was_never_listed_is_refused(path: Path, name: str) -> None:
    async with served(path, DevicePlugin(KVM, presence_of(KVM))) as client:
        code, text = await refusal(client, ["kvm-1"], ["kvm-2", name])
        assert code == "INVALID_ARGUMENT"
        assert text == f"ate.dev/kvm has no unit '{name}'"
        assert await client.allocate(["kvm-1"])


async def test_what_is_refused_is_said_without_control_characters(path: Path) -> None:
    async with served(path, DevicePlugin(KVM, presence_of(KVM))) as client:
        _, text = await refusal(client, ["\x1b[2J\n"])
    assert text == "ate.dev/kvm has no unit '\\x1b[2J\\x0a'"


async def test_a_node_that_is_away_just_now_is_given_all_the_same(path: Path) -> None:
    presence = presence_of(FEW)
    appear(presence)
    async with served(path, DevicePlugin(FEW, presence)) as client:
        assert await client.allocate(["kvm-0"]) == [[("/dev/kvm", "/dev/kvm", "rw")]]


async def test_streams_end_when_there_will_be_no_news(path: Path) -> None:
    presence = presence_of(FEW)
    plugin = DevicePlugin(FEW, presence)
    async with watched(path, plugin) as client:
        presence.close()
        await until(lambda: not client.is_watching)
        assert not plugin.is_watched
        assert await client.allocate(["kvm-0"])


async def test_it_is_told_when_a_stream_opens_and_ends(path: Path) -> None:
    told: list[bool] = []
    plugin = DevicePlugin(FEW, presence_of(FEW), lambda: told.append(plugin.is_watched))
    async with watched(path, plugin):
        assert told == [True]
    assert told == [True, False]
    assert (plugin.opened, plugin.ended) == (1, 1)


async def test_what_a_kubelet_does_not_need_is_not_there(path: Path) -> None:
    async with served(path, DevicePlugin(KVM, presence_of(KVM))) as client:
        with pytest.raises(grpc.RpcError) as caught:
            await client.ask("PreStartContainer", messages.PreStartContainerRequest())
        error: Any = caught.value
        assert error.code() is grpc.StatusCode.UNIMPLEMENTED
