"""How prepared devices fare: a stream for as long as the kubelet listens.

The kubelet opens it after registration, and again 5 s after it ends. Each message is a list; it
stamps the devices with its own clock and forgets one of which it hears nothing for as long as the
message says. What it knows it writes into the pod's status. Up to 1.36 it speaks v1alpha1, from
1.37 on v1, which is the same.

This file sends the whole list when the stream opens, at once when it changes, and again before the
kubelet forgets it. How a device fares is decided in `core.model.health`.
"""

import math
import time
from collections.abc import AsyncGenerator
from functools import partial
from types import ModuleType
from typing import Any

import trio

from liken_events._generated import dra_health_v1_pb2, dra_health_v1alpha1_pb2
from liken_events.core.model.claims import DeviceHealth
from liken_events.latest import Latest
from liken_events.rpc import Service, Stream

TIMEOUT_SECONDS = 30
"""After how long the kubelet is to forget a device of which it hears nothing: its own default."""

REPEAT_SECONDS = 10.0
"""How often the list is sent again: one message may be lost or late, and a second one."""

MOST_MESSAGE = 1021
"""Characters of a message. The kubelet cuts at 1024, of which three are dots."""


def health_services(health: Latest[tuple[DeviceHealth, ...]], pool: str) -> tuple[Service, ...]:
    """`DRAResourceHealth` in both versions.

    Args:
        health: the prepared devices and how they fare; closing it ends the streams.
        pool: the devices' pool, which is the node's name.
    """
    return (
        _service("v1", dra_health_v1_pb2, health, pool),
        _service("v1alpha1", dra_health_v1alpha1_pb2, health, pool),
    )


def _service(
    package: str, messages: ModuleType, health: Latest[tuple[DeviceHealth, ...]], pool: str
) -> Service:
    """`DRAResourceHealth` in the version whose messages these are."""
    return Service(
        name=f"{package}.DRAResourceHealth",
        methods=(
            Stream(
                name="NodeWatchResources",
                request=messages.NodeWatchResourcesRequest,
                open=partial(_follow, messages, health, pool),
            ),
        ),
    )


async def _follow(
    messages: ModuleType,
    health: Latest[tuple[DeviceHealth, ...]],
    pool: str,
    _request: object,
) -> AsyncGenerator[Any, None]:
    """The messages of one stream."""
    number = await health.wait_newer(0)
    while not health.closed:
        devices = health.get()
        yield messages.NodeWatchResourcesResponse(
            devices=[_entry(messages, device, pool) for device in devices]
        )
        with trio.move_on_after(REPEAT_SECONDS if devices else math.inf):
            await health.wait_newer(number)
        number = health.number


def _entry(messages: ModuleType, device: DeviceHealth, pool: str) -> Any:  # noqa: ANN401
    """One device's `DeviceHealth` message."""
    return messages.DeviceHealth(
        device=messages.DeviceIdentifier(pool_name=pool, device_name=device.device),
        health=messages.HEALTHY if device.is_healthy else messages.UNHEALTHY,
        last_updated_time=int(time.time()),
        health_check_timeout_seconds=TIMEOUT_SECONDS,
        message=device.message[:MOST_MESSAGE],
    )
