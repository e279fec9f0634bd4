"""A kubelet that is started again, on a real node: how long until all is as it was.

At its start a kubelet deletes the slices of its node, forgets which drivers there are, and removes
the sockets of device plugins. Pods that come before all is back wait, or fail.

This file restarts a kubelet under an agent again and again and takes the time from the start of
its process, which is in each number: a kubelet needs some tenths of a second before it does
anything. A driver made with Kubernetes' own Go library waits after the deletion before it creates
its slice again. That wait is a constant of the library, which is told here and not measured.
"""

import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from statistics import median

from bench.effort import Effort
from bench.measurement import Measurement, measured
from tests.cluster.real.accounts import admit
from tests.cluster.real.agent_network import AgentNetwork
from tests.cluster.real.control_plane import ControlPlane
from tests.cluster.real.kubelet_restart import restart_kubelet
from tests.cluster.real.made_up_machine import MadeUpMachine
from tests.cluster.real.node import Node
from tests.cluster.real.node_agent import NodeAgent
from tests.cluster.real.programs import Programs

GROUP = "cluster"

GO_SYNC_DELAY = 30.0
"""Seconds. `DefaultSyncDelay` of `k8s.io/dynamic-resource-allocation/resourceslice` (v0.37.2): how
long its controller waits after the last event of a pool's slices, a deletion too."""

BOUND = 3.0
"""Seconds until the slice and both registrations are there. Medians were 0.6 to 1.2 s on two cores
with a load of 6 to 9, the longest was 2 s. Most of it is the kubelet's: it starts, and looks for
drivers once a second."""

NODE = "restarted"

WHAT = {
    "slice_created": ("the slice is created again", BOUND * 1000),
    "driver_registered": ("the driver is registered", BOUND * 1000),
    "host_device_registered": ("the host device is registered", BOUND * 1000),
    # Shown with a status of the node: the kubelet's first, or the one 5 s after.
    "allocatable": ("the node has units of the host device", None),
}
"""The fields of `KubeletRestart` in words, and what their median may be in ms."""


def measure_restarts(
    programs: Programs, control_plane: ControlPlane, effort: Effort
) -> Iterator[Measurement]:
    """All numbers of this file.

    Raises:
        ProgramFailed: the node does not start.
    """
    with ExitStack() as stack:
        directories = [stack.enter_context(tempfile.TemporaryDirectory()) for _ in range(3)]
        node = stack.enter_context(Node(programs, control_plane, directories[0], NODE))
        network = stack.enter_context(AgentNetwork(programs, directories[1], control_plane.port))
        machine = MadeUpMachine(f"{directories[2]}/tree", f"{node.room.root}/dev", network.sender)
        client = control_plane.client
        agent = NodeAgent(node, machine, client, admit(control_plane, NODE), network.path)
        stack.callback(agent.stop)
        agent.ensure()
        restarts = [
            restart_kubelet(node, agent, client) for _ in range(max(3, effort.restarts // 10))
        ]
    for name, (words, bound) in WHAT.items():
        yield measured(
            GROUP,
            f"a kubelet's start until {words}",
            "ms",
            [getattr(each, name) for each in restarts],
            bound=bound,
            scale=1000,
        )
    yield measured(
        GROUP,
        "a deleted slice with Kubernetes' Go library: its wait, not measured",
        "ms",
        [GO_SYNC_DELAY],
        scale=1000,
    )
    ratio = median(each.slice_created for each in restarts) / GO_SYNC_DELAY
    yield measured(GROUP, "the slice again, against that wait", "x", [ratio])
