import time
from collections.abc import AsyncGenerator
from contextlib import aclosing
from types import ModuleType
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from liken_events._generated import dra_health_v1_pb2, dra_health_v1alpha1_pb2
from liken_events.core.model.claims import DeviceHealth
from liken_events.latest import Latest
from liken_events.rpc import Stream
from liken_events.servers.health import (
    MOST_MESSAGE,
    REPEAT_SECONDS,
    health_services,
)

CAMERA = DeviceHealth(device="usb-1-1", is_healthy=True)
LOST = DeviceHealth(device="usb-1-2", is_healthy=False, message="it was unplugged")

Health = Latest[tuple[DeviceHealth, ...]]


@pytest.fixture
def health() -> Health:
    return Latest()


@pytest.fixture(params=[0, 1], ids=["v1", "v1alpha1"])
def version(request: pytest.FixtureRequest) -> int:
    return int(request.param)


def follow(health: Health, version: int = 0) -> AsyncGenerator[Any, None]:
    """One stream, without a socket."""
    (method,) = health_services(health, "node-1")[version].methods
    assert isinstance(method, Stream)
    return method.open(method.request())


async def names(stream: AsyncGenerator[Any, None]) -> list[str]:
    """The devices of the next message."""
    return [device.device.device_name for device in (await anext(stream)).devices]


async def expect(stream: AsyncGenerator[Any, None], expected: list[str]) -> None:
    assert await names(stream) == expected


async def expect_end(stream: AsyncGenerator[Any, None]) -> None:
    assert await anext(stream, None) is None


async def test_a_stream_begins_with_all_devices(
    health: Health, version: int, clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(time, "time", lambda: 1_700_000_000.9)
    health.set((CAMERA, LOST))
    async with aclosing(follow(health, version)) as stream:
        message = await anext(stream)
    good, bad = message.devices
    assert (good.device.pool_name, good.device.device_name) == ("node-1", "usb-1-1")
    assert (bad.device.pool_name, bad.device.device_name) == ("node-1", "usb-1-2")
    assert (good.health, bad.health) == (1, 2)
    assert (good.message, bad.message) == ("", "it was unplugged")
    for device in (good, bad):
        assert device.last_updated_time == 1_700_000_000
        assert device.health_check_timeout_seconds == 30


async def test_a_change_is_sent_at_once(health: Health, clock: MockClock) -> None:
    health.set((CAMERA,))
    async with aclosing(follow(health)) as stream:
        assert await names(stream) == ["usb-1-1"]
        for devices in ((CAMERA, LOST), (), (LOST,)):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(expect, stream, [item.device for item in devices])
                await trio.testing.wait_all_tasks_blocked()
                health.set(devices)
        assert trio.current_time() == pytest.approx(0)


async def test_a_change_between_two_messages_is_not_lost(health: Health, clock: MockClock) -> None:
    health.set((CAMERA,))
    async with aclosing(follow(health)) as stream:
        assert await names(stream) == ["usb-1-1"]
        health.set(())
        health.set((LOST,))
        assert await names(stream) == ["usb-1-2"]
        assert trio.current_time() == 0


async def test_the_list_is_said_again_before_it_is_forgotten(
    health: Health, clock: MockClock
) -> None:
    health.set((CAMERA,))
    async with aclosing(follow(health)) as stream:
        for number in range(5):
            assert await names(stream) == ["usb-1-1"]
            assert trio.current_time() == pytest.approx(number * REPEAT_SECONDS)
    assert dra_health_timeout() > 2 * REPEAT_SECONDS


def dra_health_timeout() -> float:
    """The kubelet forgets a device after 30 s without news; one message may be lost."""
    return 30.0


async def test_an_empty_list_is_said_once(health: Health, clock: MockClock) -> None:
    health.set(())
    async with aclosing(follow(health)) as stream:
        assert await names(stream) == []
        with trio.move_on_after(3600) as bound:
            await anext(stream)
        assert bound.cancelled_caught


async def test_before_anything_is_known_nothing_is_said(health: Health, clock: MockClock) -> None:
    async with aclosing(follow(health)) as stream, trio.open_nursery() as nursery:
        nursery.start_soon(expect, stream, ["usb-1-1"])
        await trio.sleep(3600)
        health.set((CAMERA,))


@pytest.mark.parametrize("known", [None, (), (CAMERA,)], ids=["nothing", "empty", "one"])
async def test_a_stream_ends_when_nothing_newer_will_come(
    health: Health, clock: MockClock, known: tuple[DeviceHealth, ...] | None
) -> None:
    if known is not None:
        health.set(known)
    async with aclosing(follow(health)) as stream, trio.open_nursery() as nursery:
        if known is not None:
            await anext(stream)
        nursery.start_soon(expect_end, stream)
        await trio.testing.wait_all_tasks_blocked()
        health.close()
        await trio.testing.wait_all_tasks_blocked()
    assert trio.current_time() == pytest.approx(0)


async def test_a_long_message_is_cut_where_the_kubelet_cuts_it(
    health: Health, version: int, clock: MockClock
) -> None:
    health.set((DeviceHealth(device="usb-1-1", is_healthy=False, message="ü" * 2000),))
    async with aclosing(follow(health, version)) as stream:
        (device,) = (await anext(stream)).devices
    assert device.message == "ü" * MOST_MESSAGE


def test_the_services_are_called_what_the_kubelet_calls_them(health: Health) -> None:
    assert [service.name for service in health_services(health, "node-1")] == [
        "v1.DRAResourceHealth",
        "v1alpha1.DRAResourceHealth",
    ]


def field(number: int, value: bytes) -> bytes:
    """One field as it goes over the wire: its number, the type for text, a length."""
    return bytes((number << 3 | 2, len(value))) + value


@pytest.mark.parametrize("messages", [dra_health_v1_pb2, dra_health_v1alpha1_pb2])
def test_messages_are_what_goes_over_the_wire(messages: ModuleType) -> None:
    made = messages.NodeWatchResourcesResponse(
        devices=[
            messages.DeviceHealth(
                device=messages.DeviceIdentifier(pool_name="p", device_name="d"),
                health=messages.UNHEALTHY,
                last_updated_time=5,
                health_check_timeout_seconds=30,
                message="m",
            )
        ]
    )
    numbers = bytes((2 << 3, 2, 3 << 3, 5, 4 << 3, 30))
    device = field(1, field(1, b"p") + field(2, b"d")) + numbers + field(5, b"m")
    assert made.SerializeToString() == field(1, device)
    assert (messages.UNKNOWN, messages.HEALTHY) == (0, 1)
