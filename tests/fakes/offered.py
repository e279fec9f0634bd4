"""Host devices that are offered to a kubelet in the same process, and whether it has them."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import trio

from liken_events.core.model.host_devices import KVM, HostDevice, Presence
from liken_events.latest import Latest
from liken_events.servers.device_registration import DeviceRegistration
from tests.fakes.device_client import DeviceClient
from tests.fakes.device_kubelet import DeviceKubelet
from tests.fakes.waiting import until

FEW = replace(KVM, count=3)
"""The usual resource, with a list that can be read."""

Offered = dict[HostDevice, Latest[Presence]]


def presence_of(device: HostDevice) -> Latest[Presence]:
    """All nodes of it are there; of a pattern, none."""
    presence: Latest[Presence] = Latest()
    paths: frozenset[str] = frozenset() if device.is_pattern else frozenset(device.paths)
    presence.set(Presence(present=paths, known=paths))
    return presence


def all_there(*devices: HostDevice) -> Offered:
    """All nodes of these are there."""
    return {device: presence_of(device) for device in devices}


def appear(presence: Latest[Presence], *paths: str) -> None:
    """Has just these be there, besides what was known before."""
    known = presence.get().known if presence.number else frozenset()
    presence.set(Presence(present=frozenset(paths), known=known | set(paths)))


@asynccontextmanager
async def offering(root: Path, offered: Offered) -> AsyncIterator[None]:
    """Offers these to the kubelet whose directory is `root`, until the end of the block."""

    async def run(*, task_status: trio.TaskStatus[None]) -> None:
        await DeviceRegistration(str(root / "device-plugins")).run(
            offered, task_status=task_status
        )

    async with trio.open_nursery() as nursery:
        await nursery.start(run)
        yield
        nursery.cancel_scope.cancel()


async def works(kubelet: DeviceKubelet) -> DeviceClient:
    """Waits until `FEW` is usable; what the kubelet has of it."""
    client = await kubelet.client(FEW)
    assert set(client.lists[-1].values()) == {"Healthy"}
    assert await client.allocate(["kvm-1"]) == [[("/dev/kvm", "/dev/kvm", "rw")]]
    return client


async def works_once(kubelet: DeviceKubelet, offered: Offered) -> DeviceClient:
    """As `works`; it was registered once in this life and does not come to be so again, also after
    everything was looked at once more, as it is when a node goes and comes."""
    client = await works(kubelet)
    seen = len(client.lists)
    for there in ((), FEW.paths):
        seen += 1
        appear(offered[FEW], *there)
        await until(lambda: len(client.lists) == seen)  # noqa: B023
    assert await works(kubelet) is client
    assert len(kubelet.life.registered(FEW.resource)) == 1
    return client
