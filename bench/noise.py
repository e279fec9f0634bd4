"""What an event costs that concerns nobody, and whether a slow sink holds the reader up.

A container host makes and removes network interfaces and loop devices all the time, with a burst
of uevents for each. None of them is about PCI or USB.

This file sends real ones and divides the agent's CPU time by their number: with the filter in the
kernel, and with the filter off, where the agent reads and discards them itself. Then it lets an
API server hang and sends events that do matter: if the reader waited for the sink, the socket's
buffer would fill up.
"""

import itertools
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from bench.agent_process import AGENT, NODE, SLICE, AgentProcess, Variant
from bench.crowd import stick
from bench.effort import Effort
from bench.measurement import Measurement, measured
from bench.slice_file import SliceFile
from bench.trees import Trees
from bench.variants import UNFILTERED
from liken_events.core.decode.uevent import decode
from liken_events.simulate.uevents import Uevent, UeventSender
from tests.fakes.apifaults import Hold
from tests.fakes.apiserver import ApiServer
from tests.fakes.kubeconfig import write_kubeconfig

GROUP = "noise"
BOUND = 25.0
"""Microseconds of CPU for an event that concerns nobody."""

DEVICES = 100
STORM = 1000
"""Events that come together where cost matters: many pods at once. They fit the buffer."""

BURST = 10
"""About as many as one interface of a pod makes. Being woken for them is part of their cost."""

HELD_BURST = 1000
"""Events that come together while the sink hangs. They fit the buffer many times over."""

HELD_SECONDS = 1.0
"""How long a reader that is not held up may take for them at most."""


def measure(trees: Trees, effort: Effort) -> Iterator[Measurement]:
    """All numbers of this group."""
    events = list(itertools.islice(_noise(), effort.events // effort.rounds))
    yield measured(
        GROUP,
        "CPU of an event about an interface or loop device, dropped by the kernel's filter",
        "µs",
        _cost(trees, effort, events, burst=len(events)),
        bound=BOUND,
        scale=1e6,
    )
    yield measured(
        GROUP,
        f"the same without that filter, in storms of {STORM:,}",
        "µs",
        _cost(trees, effort, events, burst=STORM, variant=UNFILTERED),
        bound=BOUND,
        scale=1e6,
    )
    yield measured(
        GROUP,
        f"the same without that filter, {BURST} at a time, being woken included",
        "µs",
        _cost(trees, effort, events, burst=BURST, variant=UNFILTERED),
        bound=BOUND,
        scale=1e6,
    )
    yield measured(
        GROUP,
        "of which decoding",
        "µs",
        [_decoding(events) for _ in range(effort.rounds)],
        scale=1e6,
    )
    yield from _held_up(trees, effort)


def _noise() -> Iterator[bytes]:
    """What a container host says all day: interfaces of pods, their queues, loop devices."""
    for number in itertools.count():
        name = f"veth{number % 0xFFFF:04x}"
        path = f"/devices/virtual/net/{name}"
        interface = (("SUBSYSTEM", "net"), ("INTERFACE", name), ("IFINDEX", str(number)))
        loop = f"loop{number % 64}"
        block = (
            *(("SUBSYSTEM", "block"), ("MAJOR", "7"), ("MINOR", str(number % 64))),
            *(("DEVNAME", loop), ("DEVTYPE", "disk"), ("DISKSEQ", str(number))),
        )
        queue = (("SUBSYSTEM", "queues"),)
        disk = f"/devices/virtual/block/{loop}"
        for action in ("add", "remove"):
            yield Uevent(action=action, devpath=path, properties=interface).to_bytes()
            for kind in ("rx-0", "tx-0"):
                child = f"{path}/queues/{kind}"
                yield Uevent(action=action, devpath=child, properties=queue).to_bytes()
            yield Uevent(action="change", devpath=disk, properties=block).to_bytes()


def _cost(
    trees: Trees,
    effort: Effort,
    events: Sequence[bytes],
    *,
    burst: int,
    variant: Variant = AGENT,
) -> list[float]:
    """Seconds of the agent's CPU for each event, once for each round. None may be lost."""
    found = []
    directory = trees.directory()
    with (
        SliceFile(directory, SLICE) as file,
        AgentProcess(trees.machine(DEVICES), directory, variant=variant) as agent,
        UeventSender() as sender,
    ):
        file.wait(bool)
        agent.rest(0.5)
        queue = agent.queue()
        for _ in range(effort.rounds):
            before = agent.cpu()
            for start in range(0, len(events), burst):
                sender.send_many(events[start : start + burst])
                queue.drain()
            agent.rest(0.1)
            found.append((agent.cpu() - before) / len(events))
        lost = queue.read().dropped
        assert lost == 0, f"{lost} events were lost, so the others cost less than was measured"
    return found


def _decoding(events: Sequence[bytes]) -> float:
    """Seconds of CPU to decode each event, in this process."""
    before = time.process_time()
    for event in events:
        decode(event)
    return (time.process_time() - before) / len(events)


def _held_up(trees: Trees, effort: Effort) -> Iterator[Measurement]:
    """How long events that matter wait to be read while the API server hangs, and how many are
    lost."""
    adapter = stick(0, 1)
    burst = [
        Uevent(
            action="change",
            devpath=f"{adapter.path}/ttyUSB0/tty/ttyUSB{number % 64}",
            properties=(("SUBSYSTEM", "tty"),),
        ).to_bytes()
        for number in range(HELD_BURST)
    ]
    tree, directory = trees.machine(DEVICES), trees.directory()
    hang = Hold()
    with ApiServer() as api, UeventSender() as sender:
        api.state.add_node(NODE)
        api.fail(hang, on=lambda request: request.method == "PATCH", times=1_000_000)
        kubeconfig = write_kubeconfig(Path(trees.root) / "kubeconfig", api.url)
        with AgentProcess(tree, directory, kubeconfig=kubeconfig) as agent:
            while not api.state.slices:
                time.sleep(0.01)
            agent.rest(0.5)
            queue, waits = agent.queue(), []
            sender.send(tree.unplug(adapter.key))
            while not api.count(lambda request: request.method == "PATCH"):
                time.sleep(0.01)
            for _ in range(effort.repeats):
                sender.send_many(burst)
                waits.append(queue.drain())
            lost = queue.read().dropped
            sender.send(tree.plug(adapter))
            hang.released.set()
            api.heal()
    yield measured(
        GROUP,
        f"{HELD_BURST:,} events read while the API server hangs",
        "ms",
        waits,
        bound=HELD_SECONDS * 1000,
        scale=1000,
    )
    yield measured(GROUP, "of them lost", "events", [lost], bound=0)
