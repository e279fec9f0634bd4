"""Kubelets that end and start again, at any moment and in any order."""

import random
import threading
import time
from collections.abc import Iterator
from contextlib import suppress

import grpc
import pytest
import trio
import trio.testing
from structlog.typing import EventDict

from liken_events.core.model.host_devices import KVM
from tests.fakes.device_kubelet import DeviceKubelet, Way
from tests.fakes.device_kubelet_process import killed
from tests.fakes.offered import FEW, all_there, offering, works, works_once
from tests.fakes.registered import answers, short_root
from tests.fakes.waiting import until

WAYS: tuple[Way, ...] = ("bind", "link", "rename")
RESTARTS = 200
LONGEST_GAP = 0.3
"""Seconds between the end of a kubelet and the start of the next."""


@pytest.fixture
def kubelet() -> Iterator[DeviceKubelet]:
    with short_root() as root:
        yield DeviceKubelet(root)


@pytest.mark.timeout(180)
async def test_two_hundred_restarts_in_a_row_are_followed(kubelet: DeviceKubelet) -> None:
    seed = random.SystemRandom().randrange(2**32)
    print(f"seed {seed}")  # noqa: T201  # pytest shows it when the test fails
    chance = random.Random(seed)
    everything = {f"kvm-{index}": "Healthy" for index in range(4096)}
    orders: set[tuple[bool, str, bool]] = set()
    async with kubelet.present(), offering(kubelet.root, all_there(KVM)):
        for number in range(RESTARTS):
            wipes, way = chance.random() < 0.5, chance.choice(WAYS)
            life = await kubelet.start(wipes=wipes, way=way)
            client = await kubelet.client()
            assert client.lists == [everything]
            given = await client.allocate([f"kvm-{number}"])
            assert given == [[("/dev/kvm", "/dev/kvm", "rw")]]
            assert len(life.registrations) == 1, f"life {number}, {wipes=}, {way=}"
            is_killed = way != "bind" and chance.random() < 0.5
            orders.add((wipes, way, is_killed))
            await (kubelet.kill if is_killed else kubelet.stop)()
            await trio.sleep(chance.choice([0, 0.001, 0.01, LONGEST_GAP]) * chance.random())
    assert len(orders) == 10, "each order was tried"
    assert [len(life.registrations) for life in kubelet.lives] == [1] * RESTARTS


@pytest.mark.parametrize("way", WAYS)
async def test_a_kubelet_that_restarts_is_registered_with_once(
    kubelet: DeviceKubelet, way: Way
) -> None:
    offered = all_there(FEW)
    async with kubelet.present(), offering(kubelet.root, offered):
        for _ in range(3):
            await kubelet.start(way=way)
            await works_once(kubelet, offered)
            await kubelet.stop()


async def test_a_socket_that_is_put_back_before_the_kubelet_listens_is_registered_once(
    kubelet: DeviceKubelet,
) -> None:
    """The kubelet removes our socket some time before it makes its own."""
    offered, own = all_there(FEW), kubelet.directory / FEW.socket

    async def is_back() -> None:
        await until(lambda: answers(own))

    async with kubelet.present(), offering(kubelet.root, offered):
        for _ in range(3):
            await kubelet.start(between=is_back)
            await works_once(kubelet, offered)
            await kubelet.kill()


async def test_a_kubelet_that_is_replaced_while_it_lives_is_left_for_the_new_one(
    kubelet: DeviceKubelet,
) -> None:
    offered = all_there(FEW)
    async with kubelet.present(), offering(kubelet.root, offered):
        await kubelet.start()
        client = await works(kubelet)
        await kubelet.start(wipes=False, way="rename")
        await works_once(kubelet, offered)
        assert not client.is_watching, "its end would take the new stream along"


@pytest.mark.parametrize("wipes", [True, False])
async def test_a_kubelet_that_hangs_does_not_keep_us_from_the_next(
    kubelet: DeviceKubelet, wipes: bool
) -> None:
    offered = all_there(FEW)
    async with kubelet.present(), offering(kubelet.root, offered):
        kubelet.hangs = True
        hung = await kubelet.start()
        await until(lambda: hung.registrations)
        kubelet.hangs = False
        life = await kubelet.start(wipes=wipes, way="rename")
        await works_once(kubelet, offered)
        assert life.registrations[0].at - life.created < 2


@pytest.mark.parametrize("way", ["link", "rename"])
@pytest.mark.parametrize("wipes", [True, False])
async def test_a_kubelet_that_restarts_before_it_opened_the_stream_is_registered_with(
    kubelet: DeviceKubelet, way: Way, wipes: bool
) -> None:
    offered = all_there(FEW)
    async with kubelet.present(), offering(kubelet.root, offered):
        kubelet.delays = True
        before = await kubelet.start()
        await until(lambda: FEW.resource in before.clients)
        await kubelet.kill()
        kubelet.delays = False
        await kubelet.start(wipes=wipes, way=way)
        await works_once(kubelet, offered)


async def test_a_kubelet_that_restarts_before_it_answered_is_registered_with(
    kubelet: DeviceKubelet,
) -> None:
    offered = all_there(FEW)
    async with kubelet.present(), offering(kubelet.root, offered):
        kubelet.hangs = True
        hung = await kubelet.start()
        await until(lambda: hung.registrations)
        kubelet.hangs = False
        await kubelet.kill()
        await kubelet.start()
        await works_once(kubelet, offered)


async def test_a_kubelet_that_dies_amid_allocate_is_registered_with(
    kubelet: DeviceKubelet,
) -> None:
    offered = all_there(FEW)
    async with kubelet.present(), offering(kubelet.root, offered):
        await kubelet.start()
        client = await works(kubelet)

        async def ask() -> None:
            with suppress(grpc.RpcError, ValueError):  # it says so when its channel is closed
                while True:
                    await client.allocate(["kvm-0"])

        async with trio.open_nursery() as nursery:
            for _ in range(4):
                nursery.start_soon(ask)
            await trio.testing.wait_all_tasks_blocked()
            await kubelet.kill()
        await kubelet.start()
        await works_once(kubelet, offered)


async def test_a_kubelet_that_restarts_twice_at_once_is_registered_with(
    kubelet: DeviceKubelet,
) -> None:
    offered = all_there(FEW)
    async with kubelet.present(), offering(kubelet.root, offered):
        await kubelet.start()
        await works(kubelet)
        for _ in range(2):
            await kubelet.kill()
            await kubelet.start()
        await works_once(kubelet, offered)


async def test_a_kubelet_that_drops_us_and_removes_our_socket_at_once_is_asked_again(
    kubelet: DeviceKubelet,
) -> None:
    async with kubelet.present(), offering(kubelet.root, all_there(FEW)):
        life = await kubelet.start()
        for _ in range(10):
            client = await works(kubelet)
            life.drop(FEW.resource)
            (kubelet.directory / FEW.socket).unlink()
            await until(lambda: not client.is_watching)  # noqa: B023
        await works(kubelet)


async def test_two_instances_come_to_terms(kubelet: DeviceKubelet, logs: list[EventDict]) -> None:
    """The late end of the older one's stream takes the newer one's along."""
    older, offered = trio.CancelScope(), all_there(FEW)

    async def be_older() -> None:
        with older:
            async with offering(kubelet.root, all_there(FEW)):
                await trio.sleep_forever()

    async with kubelet.present(), trio.open_nursery() as nursery:
        await kubelet.start()
        nursery.start_soon(be_older)
        client = await works(kubelet)
        async with offering(kubelet.root, offered):
            await until(lambda: "kubelet.cannot_serve" in [line["event"] for line in logs])
            assert client.is_watching
            older.cancel()
            await until(lambda: not client.is_watching)
            newer = await works(kubelet)
            assert newer is not client
            assert answers(kubelet.directory / FEW.socket)


async def test_a_kubelet_that_is_killed_as_a_process_is_followed(kubelet: DeviceKubelet) -> None:
    async with offering(kubelet.root, all_there(FEW)):
        for _ in range(4):
            async with killed(kubelet.root) as registrations:
                assert registrations == 1
                assert rpc_threads() <= 3


async def test_fifty_kubelets_leave_no_thread(kubelet: DeviceKubelet) -> None:
    most = 0
    began = time.monotonic()
    async with kubelet.present(), offering(kubelet.root, all_there(FEW)):
        for number in range(50):
            await kubelet.start()
            client = await works(kubelet)
            await client.allocate(["kvm-0"])
            most = most or rpc_threads()
            await (kubelet.stop if number % 2 else kubelet.kill)()
        assert rpc_threads() <= most + 3
    await until(lambda: rpc_threads() == 0)
    assert time.monotonic() - began < 30


def rpc_threads() -> int:
    return sum(thread.name.startswith("rpc") for thread in threading.enumerate())
