import time
from collections.abc import Iterator
from itertools import pairwise

import pytest
from structlog.typing import EventDict

from liken_events._generated import deviceplugin_pb2 as messages
from liken_events.core.model.host_devices import KVM, HostDevice
from liken_events.servers import device_registration
from liken_events.servers.device_registration import AGAIN_SECONDS, RETRY, check_paths
from liken_events.unix_socket import MOST_PATH_BYTES, PathTooLong
from tests.fakes.device_kubelet import DeviceKubelet
from tests.fakes.offered import FEW, all_there, appear, offering, presence_of, works, works_once
from tests.fakes.registered import answers, leave_stale, short_root
from tests.fakes.waiting import until

ZERO = HostDevice(resource="example.com/zero", paths=("/dev/zero",), count=1)
NONE = HostDevice(resource="example.com/none", paths=("/dev/none",), count=1)
LONG = HostDevice(resource=f"{'d' * 22}.io/{'n' * 63}a"[:90], paths=("/dev/kvm",), count=1)


@pytest.fixture
def kubelet() -> Iterator[DeviceKubelet]:
    with short_root() as root:
        yield DeviceKubelet(root)


def logged(logs: list[EventDict], event: str) -> list[EventDict]:
    return [line for line in logs if line["event"] == event]


async def test_a_resource_is_registered_and_usable(kubelet: DeviceKubelet) -> None:
    offered = all_there(FEW)
    async with kubelet.present(), offering(kubelet.root, offered):
        life = await kubelet.start()
        client = await works(kubelet)
        (registered,) = life.registrations
        assert registered.request == messages.RegisterRequest(
            version="v1beta1", endpoint="ate.dev-kvm.sock", resource_name="ate.dev/kvm"
        )
        assert client.options == messages.DevicePluginOptions()
        assert client.lists == [dict.fromkeys(("kvm-0", "kvm-1", "kvm-2"), "Healthy")]
        assert await works_once(kubelet, offered) is client


async def test_a_kubelet_that_is_there_first_is_registered_with(kubelet: DeviceKubelet) -> None:
    offered = all_there(FEW)
    async with kubelet.present():
        await kubelet.start()
        async with offering(kubelet.root, offered):
            await works_once(kubelet, offered)


async def test_it_answers_before_it_registers(kubelet: DeviceKubelet) -> None:
    """The kubelet dials back inside `Register`, which is over in less than a second."""
    kubelet.directory.mkdir(parents=True)
    async with kubelet.present(), offering(kubelet.root, all_there(FEW)):
        await until(lambda: answers(kubelet.directory / FEW.socket))
        began = time.monotonic()
        await kubelet.start(wipes=False)
        await works(kubelet)
        assert time.monotonic() - began < 1


async def test_a_kubelet_that_ends_the_stream_is_asked_again(kubelet: DeviceKubelet) -> None:
    async with kubelet.present(), offering(kubelet.root, all_there(FEW)):
        life = await kubelet.start()
        for count in range(1, 11):
            await works(kubelet)
            assert len(life.registrations) == count
            life.drop(FEW.resource)
            await until(lambda: len(life.registrations) == count + 1)  # noqa: B023
        await works(kubelet)
    pauses = [after.at - before.at for before, after in pairwise(life.registrations)]
    assert min(pauses) > 0.9 * AGAIN_SECONDS


async def test_a_kubelet_that_took_us_and_opens_no_stream_is_asked_again_in_a_while(
    kubelet: DeviceKubelet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(device_registration, "STREAM_SECONDS", 0.1)
    async with kubelet.present(), offering(kubelet.root, all_there(FEW)):
        kubelet.delays = True
        life = await kubelet.start()
        await until(lambda: len(life.registrations) == 3)
        kubelet.delays = False
        await works(kubelet)
    assert life.registrations[1].at - life.registrations[0].at > 0.09


async def test_a_kubelet_that_is_stuck_with_a_socket_gets_another(kubelet: DeviceKubelet) -> None:
    async with kubelet.present(), offering(kubelet.root, all_there(FEW)):
        life = await kubelet.start()
        names = []
        for _ in range(3):
            await works(kubelet)
            names.append(life.registrations[-1].request.endpoint)
            kubelet.stuck.add(names[-1])
            life.drop(FEW.resource)
            await until(lambda: life.registrations[-1].request.endpoint not in kubelet.stuck)
        client = await works(kubelet)
        name = life.registrations[-1].request.endpoint
        sockets = {path.name for path in kubelet.directory.iterdir()} - {kubelet.socket.name}
        assert sockets == {name}, "those that nobody takes are gone"
        assert {len(name) for name in names} == {len(FEW.socket)}
        kubelet.stuck.clear()
        (kubelet.directory / name).unlink()
        await until(lambda: not client.is_watching)
        assert await works(kubelet) is not client, "it is watched, and put back"


async def test_a_kubelet_that_refuses_for_a_while_is_told_of_once(
    kubelet: DeviceKubelet, logs: list[EventDict]
) -> None:
    offered = all_there(FEW)
    async with kubelet.present(), offering(kubelet.root, offered):
        kubelet.refusal = "not yet\x1b[2J"
        life = await kubelet.start()
        await until(lambda: len(life.registrations) >= 4)
        kubelet.refusal = ""
        await works(kubelet)
    lines = logged(logs, "host_device.registration_failed")
    (warning,) = [line for line in lines if line["log_level"] == "warning"]
    assert (warning["resource"], warning["failures"]) == ("ate.dev/kvm", 1)
    assert warning["reason"] == "UNKNOWN: not yet\\x1b[2J"
    pauses = [after.at - before.at for before, after in pairwise(life.registrations)]
    assert pauses[2] > pauses[0]


async def test_a_kubelet_that_answers_a_while_after_it_is_seen_is_asked_again(
    kubelet: DeviceKubelet, logs: list[EventDict]
) -> None:
    """Between making the socket and listening on it nothing happens that could be heard."""

    async def is_tried() -> None:
        await until(lambda: logged(logs, "host_device.registration_failed"))

    offered = all_there(FEW)
    async with kubelet.present(), offering(kubelet.root, offered):
        await kubelet.start(way="late", between=is_tried)
        await works_once(kubelet, offered)
    reason = logged(logs, "host_device.registration_failed")[0]["reason"]
    assert reason.startswith("UNAVAILABLE: ")
    assert str(kubelet.socket) in reason
    assert "/proc" not in reason


def test_a_failed_registration_is_repeated_soon_and_within_five_seconds_in_the_end() -> None:
    assert RETRY.delay(1, 1.0) <= 0.05
    assert RETRY.delay(6, 0.0) > 0.5
    assert RETRY.delay(100, 0.0) >= 2.5
    assert RETRY.delay(100, 1.0) == 5.0


async def test_of_several_resources_each_has_its_socket_and_what_is_missing_has_none(
    kubelet: DeviceKubelet,
) -> None:
    offered = all_there(FEW, ZERO)
    offered[NONE] = presence_of(HostDevice(resource="x.io/x", paths=("/dev/none*",)))
    async with kubelet.present(), offering(kubelet.root, offered):
        life = await kubelet.start()
        await works_once(kubelet, offered)
        await kubelet.client(ZERO)
        assert {item.request.endpoint for item in life.registrations} == {
            "ate.dev-kvm.sock",
            "example.com-zero.sock",
        }
        assert not (kubelet.directory / NONE.socket).exists()
        appear(offered[NONE], "/dev/none")
        client = await kubelet.client(NONE)
        appear(offered[NONE])
        await until(lambda: len(client.lists) == 2)
        assert client.lists == [{"none-0": "Healthy"}, {"none-0": "Unhealthy"}]
        assert len(life.registrations) == 3


async def test_at_the_end_our_sockets_go_and_streams_end(kubelet: DeviceKubelet) -> None:
    async with kubelet.present():
        await kubelet.start()
        leave_stale(kubelet.directory / "other.sock")
        async with offering(kubelet.root, all_there(FEW, ZERO)):
            clients = [await works(kubelet), await kubelet.client(ZERO)]
            began = time.monotonic()
        assert time.monotonic() - began < 0.5
        await until(lambda: not any(client.is_watching for client in clients))
        left = sorted(path.name for path in kubelet.directory.iterdir())
        assert left == ["kubelet.sock", "other.sock"]


async def test_what_a_dead_instance_left_is_replaced(kubelet: DeviceKubelet) -> None:
    offered = all_there(FEW)
    async with kubelet.present():
        await kubelet.start()
        leave_stale(kubelet.directory / FEW.socket)
        async with offering(kubelet.root, offered):
            await works_once(kubelet, offered)


async def test_the_directory_may_come_later_with_all_that_is_above_it(
    kubelet: DeviceKubelet, logs: list[EventDict]
) -> None:
    offered = all_there(FEW, ZERO)
    async with kubelet.present(), offering(kubelet.root, offered):
        await until(lambda: logged(logs, "kubelet.waiting"))
        kubelet.root.mkdir()
        await kubelet.start()
        await works_once(kubelet, offered)
    (line,) = logged(logs, "kubelet.waiting")
    assert line["missing"] == str(kubelet.directory)
    assert not logged(logs, "kubelet.cannot_serve")


@pytest.mark.parametrize("name", ["ku be", "%41#?", "ü", "a/b/../c"])
async def test_the_kubelets_directory_may_be_another(name: str) -> None:
    offered = all_there(FEW)
    with short_root() as root:
        (root / "a" / "b").mkdir(parents=True)
        kubelet = DeviceKubelet(root / name)
        async with kubelet.present(), offering(kubelet.root, offered):
            await kubelet.start()
            await works_once(kubelet, offered)


async def test_a_long_resource_name_has_a_short_socket(kubelet: DeviceKubelet) -> None:
    assert len(LONG.resource) == 90
    async with kubelet.present(), offering(kubelet.root, all_there(LONG)):
        life = await kubelet.start()
        await kubelet.client(LONG)
        request = life.registrations[0].request
    assert request.resource_name == LONG.resource
    usual = f"/var/lib/kubelet/device-plugins/{request.endpoint}"
    assert len(usual) <= MOST_PATH_BYTES


def test_a_directory_that_is_too_long_is_refused_at_the_start() -> None:
    check_paths("/var/lib/kubelet/device-plugins", [KVM, LONG])
    longest = "/" + "r" * 89
    check_paths(longest, [KVM])
    with pytest.raises(PathTooLong) as caught:
        check_paths(longest + "r", [ZERO, KVM])
    assert str(caught.value) == (
        f"--device-plugin-dir: the socket path {longest}r/example.com-zero.sock has "
        "113 bytes, and the kernel takes 107; name a shorter directory"
    )
