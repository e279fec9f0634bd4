"""Many nodes in one process: `python -m bench.simulated_nodes HOST PORT DIRECTORY COUNT`.

Each node has the agent's own client, watch, sink and loop of convergence, reads its account's
token from a directory as a pod does, and publishes four devices. Its machine is left out.

It takes commands, a line each, and answers each with a line of JSON: `start` (the answer comes
when all have published), `change` (gives all of them another inventory), `times` (when each
published its newest, or null, in seconds of the system's clock), `report` (memory in MB, threads,
and seconds of CPU). It ends with its standard input.
"""

import gc
import json
import os
import resource
import sys
import threading
import time
from collections.abc import AsyncIterator
from functools import partial

import trio

from bench.crowd import STICKS, stick
from liken_events import log
from liken_events.cluster import SliceView
from liken_events.cluster.kubernetes import KubernetesCluster
from liken_events.cluster.kubernetes_access import InCluster
from liken_events.converge import converge
from liken_events.core.model.device import Inventory
from liken_events.core.model.json import Json
from liken_events.core.model.publish import inventory
from liken_events.latest import Latest
from liken_events.sinks.slices import SliceSink, plan_slices
from tests.fakes.machines import machine

MODULE = "bench.simulated_nodes"

AT_ONCE = 20
"""Nodes that are started at a time. Each costs two TLS connections and five requests."""


def node_name(index: int) -> str:
    """The name of the node with this index."""
    return f"node-{index:04d}"


class SimulatedNode:
    """One node.

    Attributes:
        published: when it published its newest inventory, by the system's clock; None until then.
        has_published: set by the first time.
    """

    def __init__(self, load: InCluster, name: str) -> None:
        self.published: float | None = None
        self.has_published = trio.Event()
        self._cluster = KubernetesCluster(load)
        self._name = name
        self._inventories: Latest[Inventory] = Latest()

    def offer(self, newest: Inventory) -> None:
        """Gives it another inventory."""
        self.published = None
        self._inventories.set(newest)

    async def run(self) -> None:
        """Lives for ever."""
        view = SliceView()
        sink = SliceSink(self._cluster, view, self._name)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._cluster.watch_slices, self._name, view)
            nursery.start_soon(
                partial(
                    converge, sink, plan_slices, self._inventories, on_done=self._note_published
                )
            )

    def _note_published(self, reached: Inventory) -> None:
        if self.published is None and reached is self._inventories.get():
            self.published = time.time()
            self.has_published.set()


def inventory_of_round(number: int) -> Inventory:
    """Four serial adapters, of which one has another serial number in each round."""
    first = stick(0, 1, serial=f"R{number:05d}")
    return inventory(machine([first, *(stick(0, port) for port in range(2, STICKS + 1))]))


async def serve(load: InCluster, count: int) -> None:
    """Carries out the commands."""
    number = 0
    nodes: list[SimulatedNode] = []
    async with trio.open_nursery() as nursery:
        async for command in _commands():
            answer: Json
            match command:
                case "start":
                    await _start(load, count, nodes, nursery)
                    # A full collection would walk the objects of all nodes, for 1.5 s, and what
                    # they had to ask meanwhile would come at once. No real node waits for others.
                    gc.collect()
                    gc.freeze()
                    answer = len(nodes)
                case "change":
                    number += 1
                    newest = inventory_of_round(number)
                    for each in nodes:
                        each.offer(newest)
                    answer = number
                case "times":
                    answer = [each.published for each in nodes]
                case "report":
                    answer = _report()
                case _:
                    raise ValueError(command)
            sys.stdout.write(json.dumps(answer) + "\n")
            sys.stdout.flush()
        nursery.cancel_scope.cancel()


async def _start(
    load: InCluster, count: int, nodes: list[SimulatedNode], nursery: trio.Nursery
) -> None:
    """Starts the nodes, some at a time, and waits until all have published."""
    places = trio.Semaphore(AT_ONCE)
    newest = inventory_of_round(0)

    async def leave(node: SimulatedNode) -> None:
        await node.has_published.wait()
        places.release()

    async with trio.open_nursery() as starting:
        for index in range(count):
            await places.acquire()
            node = SimulatedNode(load, node_name(index))
            node.offer(newest)
            nursery.start_soon(node.run)
            starting.start_soon(leave, node)
            nodes.append(node)


async def _commands() -> AsyncIterator[str]:
    rest = b""
    async with trio.lowlevel.FdStream(os.dup(0)) as stream:
        async for chunk in stream:
            *lines, rest = (rest + chunk).split(b"\n")
            for line in lines:
                yield line.decode()


def _report() -> dict[str, Json]:
    with open("/proc/self/statm", encoding="ascii") as file:
        pages = int(file.read().split()[1])
    used = resource.getrusage(resource.RUSAGE_SELF)
    return {
        "resident": pages * resource.getpagesize() / 1e6,
        "threads": threading.active_count(),
        "cpu": used.ru_utime + used.ru_stime,
    }


if __name__ == "__main__":
    host, port, directory, nodes_wanted = sys.argv[1:]
    log.configure(form="json", level="warning")
    where = {"KUBERNETES_SERVICE_HOST": host, "KUBERNETES_SERVICE_PORT": port}
    trio.run(serve, InCluster(environ=where, directory=directory), int(nodes_wanted))
