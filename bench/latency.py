"""How long it takes from an event to the slice.

A device that is plugged in is looked at when it has been quiet for the settle time; what the agent
adds to that is its own doing. A removal waits for no settling.

This file plugs and pulls a serial adapter, with all the events that a real one makes, and takes
the time to the rename of the slice's file: from the last event of a plug-in, and from the first
event of a removal that says that the adapter itself is gone.
"""

import time
from collections.abc import Iterator

from bench.agent_process import SLICE, AgentProcess
from bench.crowd import stick
from bench.effort import Effort
from bench.measurement import Measurement, measured
from bench.slice_file import SliceFile, has, lacks
from bench.trees import Trees
from liken_events.core.model.names import device_name
from liken_events.core.timing import Timing
from liken_events.simulate.uevents import UeventSender

GROUP = "latency"
DEVICES = 100
PLUG_BOUND = 0.010
"""Seconds beyond the settle time."""

PULL_BOUND = 0.020
"""Seconds for a removal."""


def measure(trees: Trees, effort: Effort) -> Iterator[Measurement]:
    """All numbers of this group."""
    adapter = stick(0, 1)
    name = device_name(adapter.key)
    tree, directory = trees.machine(DEVICES), trees.directory()
    plugs, pulls = [], []
    with (
        SliceFile(directory, SLICE) as file,
        AgentProcess(tree, directory) as agent,
        UeventSender() as sender,
    ):
        file.wait(has(name))
        for _ in range(effort.repeats):
            agent.rest(0.1)
            said = tree.unplug(adapter.key)
            gone = [event.devpath for event in said].index(adapter.path)
            sender.send(said[:gone])
            sent = time.monotonic()
            sender.send(said[gone:])
            pulls.append(file.wait(lacks(name)) - sent)
            agent.rest(0.1)
            sender.send(tree.plug(adapter))
            sent = time.monotonic()
            plugs.append(file.wait(has(name)) - sent - Timing().quiet)
    yield measured(
        GROUP,
        "last event of a plug-in to the slice, beyond the settle time",
        "ms",
        plugs,
        bound=PLUG_BOUND * 1000,
        scale=1000,
    )
    yield measured(
        GROUP,
        "removal of a device to the slice",
        "ms",
        pulls,
        bound=PULL_BOUND * 1000,
        scale=1000,
    )
