"""What the agent does while nothing happens: nothing.

A thread that wakes up ten times a second keeps a CPU from its deep sleep on every node of a
cluster, and a request a minute from every node is load on the API server. An agent that waits for
events has no reason for either, but for the safety interval.

This file leaves two agents alone for a while, one with a directory and one with an API server, and
looks how often their threads woke up, what they asked, and how much memory they hold.
"""

import time
from collections.abc import Iterator
from pathlib import Path

from bench.agent_process import NODE, SLICE, AgentProcess
from bench.effort import Effort
from bench.measurement import Measurement, measured
from bench.slice_file import SliceFile
from bench.trees import Trees
from tests.fakes.apiserver import ApiServer
from tests.fakes.kubeconfig import write_kubeconfig

GROUP = "idle"
DEVICES = 100
MEMORY_BOUND = 64.0
"""MB of resident memory with the Kubernetes client loaded."""

WORKERS_END_SECONDS = 12.0
"""After this long trio's worker threads have ended: they wait 10 s for further work."""


def measure(trees: Trees, effort: Effort) -> Iterator[Measurement]:
    """All numbers of this group."""
    tree, directory = trees.machine(DEVICES), trees.directory()
    with ApiServer() as api, SliceFile(directory, SLICE) as file:
        api.state.add_node(NODE)
        kubeconfig = write_kubeconfig(Path(trees.root) / "kubeconfig", api.url)
        with (
            AgentProcess(tree, directory) as alone,
            AgentProcess(tree, trees.directory(), kubeconfig=kubeconfig) as joined,
        ):
            file.wait(bool)
            while not api.state.slices or not api.open_watches:
                time.sleep(0.05)
            time.sleep(WORKERS_END_SECONDS)
            woken = [agent.wake_ups() for agent in (alone, joined)]
            used = [agent.cpu() for agent in (alone, joined)]
            requests = len(api.requests)
            time.sleep(effort.quiet_seconds)
            woken = [agent.wake_ups() - n for agent, n in zip((alone, joined), woken, strict=True)]
            used = [agent.cpu() - n for agent, n in zip((alone, joined), used, strict=True)]
            requests = len(api.requests) - requests
            assert api.open_watches == 1, "the watch has to be open all the time"
            memory = [alone.resident(), joined.resident()]
    seconds = f"in {effort.quiet_seconds:g} s"
    for home, index in (("directory", 0), ("API server", 1)):
        yield measured(GROUP, f"wake-ups {seconds}, {home}", "times", [woken[index]], bound=0)
        yield measured(GROUP, f"CPU {seconds}, {home}", "ms", [used[index]], scale=1000)
    yield measured(GROUP, f"API requests {seconds}, besides the watch", "requests", [requests],
                   bound=0)  # fmt: skip
    yield measured(GROUP, "resident memory, directory", "MB", [memory[0]])
    yield measured(GROUP, "resident memory, API server", "MB", [memory[1]], bound=MEMORY_BOUND)
