"""What host devices cost: from a kubelet that is there again to the plugin that it knows, and the
memory of long lists.

Until a resource is registered anew every pod that asks for it is turned away, and those that the
kubelet admits again at its start fail for good. A list of 4096 units is nothing that anybody needs
in memory all the time.

This file restarts a kubelet over and over beside an agent and takes the time from its socket to
the registration; then it does so beside two agents, of which one looks at the socket every second
and tries again after five. At last it leaves agents with five resources and with none alone for a
while.
"""

import os
import random
from collections.abc import Iterator, Sequence
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from statistics import median

import trio

from bench.agent_process import AGENT, AgentProcess, Variant
from bench.effort import NORMAL, Effort
from bench.measurement import Measurement, measured
from bench.trees import Trees
from bench.variants import LATE
from liken_events.core.model.host_devices import HostDevice
from tests.fakes.device_kubelet import DeviceKubelet, Life, Way
from tests.fakes.kubelet import Kubelet

GROUP = "deviceplugin"
DEVICES = 100
MEDIAN_BOUND, WORST_BOUND = 0.030, 0.500
"""Seconds from `kubelet.sock` to the call of `Register`."""

MEMORY_BOUND = 4.0
"""MB of resident memory that five resources may take."""

RATIO_BOUND = 1.0
"""A ratio to an agent that looks every second that is not below this is no reason to listen."""

QUIET_SECONDS = 12.0
"""How long agents are left alone: trio's threads have ended after 10 s, and within 10 s of quiet
no list may come."""

LONGEST_GAP = 0.05
LONGEST_GAP_BESIDE_LATE = 2.0
"""Seconds between the end of a kubelet and the start of the next. An agent that looks every second
need not notice a short one."""

BESIDE_LATE = 12
PAIRS = 3
"""Restarts beside the slow agent, and pairs of quiet agents; a quarter or one with `--quick`."""

SECONDS = 30.0
"""How long it may take at most until a kubelet has a list."""

NODES = ("null", "zero", "full", "random", "urandom")
"""Character devices of every machine."""

RESOURCES = tuple(
    HostDevice(resource=f"example.com/{node}", paths=(f"/dev/{node}",)) for node in NODES
)
WAYS: tuple[Way, ...] = ("link", "rename")


def measure(trees: Trees, effort: Effort) -> Iterator[Measurement]:
    """All numbers of this group."""
    mine, theirs = RESOURCES[:2]
    lives = trio.run(partial(_restarts, trees, {mine: AGENT}, effort.restarts, LONGEST_GAP))
    took = [_seconds(life, mine) for life in lives]
    what = "kubelet.sock to registered"
    yield measured(GROUP, what, "ms", took, bound=MEDIAN_BOUND * 1000, scale=1000)
    worst = f"{what}, worst of {len(took)}"
    yield measured(GROUP, worst, "ms", [max(took)], bound=WORST_BOUND * 1000, scale=1000)
    often = max(len(life.registered(mine.resource)) for life in lives)
    yield measured(
        GROUP, "registrations in one life of a kubelet, most", "times", [often], bound=1
    )

    is_quick = effort.restarts < NORMAL.restarts
    count = BESIDE_LATE // 4 if is_quick else BESIDE_LATE
    both = {mine: AGENT, theirs: LATE}
    lives = trio.run(partial(_restarts, trees, both, count, LONGEST_GAP_BESIDE_LATE))
    for device, name in ((mine, "events"), (theirs, "looking every 1 s, again within 5 s")):
        yield measured(GROUP, f"{what}, {name}", "ms", [_seconds(life, device) for life in lives],
                       scale=1000)  # fmt: skip
    ratio = median(_seconds(life, mine) for life in lives) / median(
        _seconds(life, theirs) for life in lives
    )
    yield measured(GROUP, f"{what}, against looking", "x", [ratio], bound=RATIO_BOUND)

    memory, most = trio.run(partial(_quiet, trees, 1 if is_quick else PAIRS))
    yield measured(GROUP, f"lists of 4096 units in {QUIET_SECONDS:g} s", "times", [most], bound=1)
    yield measured(GROUP, "resident memory, 5 resources of 4096 units beyond none", "MB", memory,
                   bound=MEMORY_BOUND)  # fmt: skip


def _seconds(life: Life, device: HostDevice) -> float:
    """From the socket to the first registration."""
    return life.registered(device.resource)[0].at - life.created


async def _restarts(
    trees: Trees, agents: dict[HostDevice, Variant], count: int, longest_gap: float
) -> list[Life]:
    """Restarts a kubelet beside these agents, each of which offers one resource."""
    chance = random.Random(1)  # the same times in every run
    kubelet = _kubelet(trees)
    async with kubelet.present(), AsyncExitStack() as stack:
        for device, variant in agents.items():
            stack.enter_context(_agent(trees, kubelet, [device], variant))
        await kubelet.start()
        for device in agents:
            await kubelet.client(device, seconds=SECONDS)
        for _ in range(count):
            await (kubelet.kill if chance.random() < 0.5 else kubelet.stop)()
            await trio.sleep(longest_gap * chance.random())
            await kubelet.start(way=chance.choice(WAYS))
            for device in agents:
                await kubelet.client(device, seconds=SECONDS)
    return kubelet.lives[1:]


async def _quiet(trees: Trees, pairs: int) -> tuple[list[float], int]:
    """How much more memory an agent with resources has than one with none, for each pair, and how
    many lists a kubelet was sent at most. Both are registered as drivers, as they are on a node:
    what that takes is taken by both."""
    without: list[AgentProcess] = []
    offering: list[AgentProcess] = []
    clients = []
    async with AsyncExitStack() as stack, trio.open_nursery() as nursery:
        for _ in range(pairs):
            for devices, agents in (((), without), (RESOURCES, offering)):
                kubelet = await stack.enter_async_context(_kubelet(trees).present())
                drivers = Kubelet(kubelet.root)
                await nursery.start(drivers.run)
                agents.append(stack.enter_context(_agent(trees, kubelet, devices)))
                await kubelet.start()
                await drivers.plugin()
                clients += [await kubelet.client(device, seconds=SECONDS) for device in devices]
        await trio.sleep(QUIET_SECONDS)
        used = [agent.resident() for agent in offering]
        base = [agent.resident() for agent in without]
        lists = max(len(client.lists) for client in clients)
        nursery.cancel_scope.cancel()
    return [whole - none for whole, none in zip(used, base, strict=True)], lists


def _kubelet(trees: Trees) -> DeviceKubelet:
    root = Path(trees.directory(), "kubelet")
    os.makedirs(root / "plugins_registry")
    return DeviceKubelet(root)


def _agent(
    trees: Trees,
    kubelet: DeviceKubelet,
    devices: Sequence[HostDevice],
    variant: Variant = AGENT,
) -> AgentProcess:
    offered = [word for device in devices for word in ("--host-devices", str(device))]
    options = (
        *("--kubelet", "on", "--kubelet-dir", str(kubelet.root), "--dev-root", "/dev"),
        *("--device-plugin-dir", str(kubelet.directory)),
    )
    return AgentProcess(
        trees.machine(DEVICES),
        trees.directory(),
        (*options, *(offered or ("--host-devices", "none"))),
        variant=variant,
    )
