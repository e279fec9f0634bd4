"""What the agent does while nothing happens: nothing.

A thread that wakes up ten times a second keeps a CPU from its deep sleep on every node of a
cluster, and a request a minute from every node is load on the API server. An agent that waits for
events has no reason for either, but for the safety interval.

This file leaves three agents alone for a while, one with a directory, one with an API server, and
one that is registered with a kubelet besides, and looks how often their threads woke up, what they
asked, and how much memory they hold. The third has gRPC loaded, whose own threads wake up several
times a second and which takes its own memory: that is told, and no promise is made of it.
"""

import os
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
    tree, directory, kubelet = trees.machine(DEVICES), trees.directory(), trees.directory()
    os.makedirs(os.path.join(kubelet, "plugins_registry"))
    plugins = ("--device-plugin-dir", os.path.join(kubelet, "device-plugins"))
    with ApiServer() as api, SliceFile(directory, SLICE) as file:
        api.state.add_node(NODE)
        kubeconfig = write_kubeconfig(Path(trees.root) / "kubeconfig", api.url)
        alone = AgentProcess(tree, directory)
        joined = AgentProcess(tree, trees.directory(), ("--kubelet", "off"), kubeconfig=kubeconfig)
        whole = AgentProcess(
            tree,
            trees.directory(),
            ("--kubelet-dir", kubelet, *plugins, "--node-name", f"{NODE}-2"),
            kubeconfig=kubeconfig,
        )
        with alone, joined, whole:
            agents = (alone, joined, whole)
            file.wait(bool)
            while len(api.state.slices) < 2 or api.open_watches < 2:
                time.sleep(0.05)
            time.sleep(WORKERS_END_SECONDS)
            woken = [agent.wake_ups() for agent in agents]
            used = [agent.cpu() for agent in agents]
            requests = len(api.requests)
            time.sleep(effort.quiet_seconds)
            woken = [agent.wake_ups() - n for agent, n in zip(agents, woken, strict=True)]
            used = [agent.cpu() - n for agent, n in zip(agents, used, strict=True)]
            requests = len(api.requests) - requests
            assert api.open_watches == 2, "the watches have to be open all the time"
            memory = [agent.resident() for agent in agents]
    seconds = f"in {effort.quiet_seconds:g} s"
    homes = ("directory", "API server", "API server and kubelet")
    for index, home in enumerate(homes):
        bound = 0.0 if index < 2 else None
        yield measured(GROUP, f"wake-ups {seconds}, {home}", "times", [woken[index]], bound=bound)
        yield measured(GROUP, f"CPU {seconds}, {home}", "ms", [used[index]], scale=1000)
    yield measured(GROUP, f"API requests {seconds}, besides the watches", "requests", [requests],
                   bound=0)  # fmt: skip
    for index, home in enumerate(homes):
        bound = MEMORY_BOUND if index == 1 else None
        yield measured(GROUP, f"resident memory, {home}", "MB", [memory[index]], bound=bound)
