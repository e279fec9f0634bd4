"""What is left after a storm that no reader can keep up with.

The kernel queues events for a socket and throws them away when its buffer is full. What was thrown
away cannot be asked for, so the agent reads everything again. It must not remember each event of a
storm either.

This file stops the agent for a moment, as a machine under load does, floods its socket beyond the
buffer, and changes hardware meanwhile. Afterwards the slice has to equal what a fresh scan says.
"""

import itertools
import os
import signal
import time
from collections.abc import Iterator

from bench.agent_process import NODE, SLICE, AgentProcess
from bench.crowd import stick
from bench.effort import Effort
from bench.measurement import Measurement, measured
from bench.slice_file import SliceFile
from bench.trees import Trees
from liken_events.core.model.json import Json
from liken_events.core.model.publish import inventory
from liken_events.core.plan.slices import CreateSlice, Observed, plan
from liken_events.simulate.tree import MachineTree
from liken_events.simulate.uevents import Uevent, UeventSender
from liken_events.sources.sysfs import Roots, Scanner

GROUP = "storm"
DEVICES = 100
EVENTS = 100_000
GROWTH_BOUND = 10.0
"""MB of resident memory more than before."""

IDLE_BOUND = 2.0
"""Seconds from the last event until the process is idle again."""

QUIET = 0.5
"""Seconds without CPU time that count as idle. Longer than the settle time, or the wait for a
device to settle would pass for the end."""

PATHS = 5000
"""Different paths in the storm, all of them below devices that matter."""


def measure(trees: Trees, effort: Effort) -> Iterator[Measurement]:
    """All numbers of this group."""
    growth, idle, dropped, wrong = [], [], [], []
    for _ in range(effort.rounds):
        tree, directory = trees.machine(DEVICES), trees.directory()
        with (
            SliceFile(directory, SLICE) as file,
            AgentProcess(tree, directory) as agent,
            UeventSender() as sender,
        ):
            file.wait(bool)
            agent.rest(QUIET)
            before, queue = agent.resident(), agent.queue()
            os.kill(agent.pid, signal.SIGSTOP)
            adapters = [stick(0, port) for port in (1, 2, 3)]
            sender.send_many(_storm(EVENTS // 2))
            for adapter in adapters:
                sender.send(tree.unplug(adapter.key))
            os.kill(agent.pid, signal.SIGCONT)
            sender.send_many(_storm(EVENTS // 2))
            sent = time.monotonic()
            idle.append(agent.rest(QUIET) - sent)
            growth.append(agent.most_resident() - before)
            dropped.append(queue.read().dropped)
            wrong.append(_differing(_expected(tree), file.devices()))
            tree.plug(*adapters)
    assert min(dropped) > 0, "the buffer did not overrun, so this was no storm"
    events = f"{EVENTS:,} events"
    yield measured(GROUP, f"{events}: lost because the buffer was full", "events", dropped)
    yield measured(
        GROUP, "devices that are not as a fresh scan has them", "devices", wrong, bound=0
    )
    yield measured(GROUP, "resident memory at its highest, above that before", "MB", growth,
                   bound=GROWTH_BOUND)  # fmt: skip
    yield measured(GROUP, "last event until idle", "ms", idle, bound=IDLE_BOUND * 1000, scale=1000)


def _storm(events: int) -> Iterator[bytes]:
    """Changes of ports of all adapters that there are, and of many that there are not."""
    paths = [
        f"{stick(0, 1 + number % 4).path}/ttyUSB{number}/tty/ttyUSB{number}"
        for number in range(PATHS)
    ]
    for path in itertools.islice(itertools.cycle(paths), events):
        properties = (("MAJOR", "188"), ("MINOR", "0"), ("SUBSYSTEM", "tty"))
        yield Uevent(action="change", devpath=path, properties=properties).to_bytes()


def _expected(tree: MachineTree) -> list[Json]:
    """The devices of a slice that is made from a fresh scan."""
    roots = Roots(sys=tree.sys, dev=tree.dev, proc=tree.proc, pci_ids=tree.pci_ids)
    offered = inventory(Scanner(roots).scan()).offered
    (change,) = plan(Observed(node=NODE), offered)
    assert isinstance(change, CreateSlice)
    spec = change.body["spec"]
    assert isinstance(spec, dict)
    devices = spec["devices"]
    assert isinstance(devices, list)
    return devices


def _differing(expected: list[Json], found: list[Json]) -> int:
    """How many devices are missing, too many, or otherwise than expected."""
    return sum(item not in found for item in expected) + sum(
        item not in expected for item in found
    )
