"""How long a look at the whole machine takes, and a start.

A full look happens at the start, after a loss of events and at the safety interval. A start is a
process that is spawned, imports what it needs, looks, and publishes.

This file takes the time of both; the time of a start ends when the slice is there, for an API
server when it has stored it.
"""

import time
from collections.abc import Iterator
from pathlib import Path

from bench.agent_process import NODE, SLICE, AgentProcess
from bench.effort import Effort
from bench.measurement import Measurement, measured
from bench.slice_file import SliceFile
from bench.trees import Trees
from liken_events.simulate.tree import MachineTree
from liken_events.sources.sysfs import Roots, Scanner
from tests.fakes.apiserver import ApiServer
from tests.fakes.kubeconfig import write_kubeconfig

GROUP = "scan"
LARGE, USUAL = 1000, 100
SCAN_BOUND = 1.0
"""Seconds for a full look at `LARGE` devices."""

START_BOUND = 1.5
"""Seconds from the spawn of the process to the first slice, on `USUAL` devices."""


def measure(trees: Trees, effort: Effort) -> Iterator[Measurement]:
    """All numbers of this group."""
    large, usual = trees.machine(LARGE), trees.machine(USUAL)
    yield measured(
        GROUP,
        f"full scan of {LARGE:,} devices",
        "ms",
        _scans(large, effort.rounds),
        bound=SCAN_BOUND * 1000,
        scale=1000,
    )
    yield measured(
        GROUP,
        f"start to first slice, {USUAL} devices, directory",
        "ms",
        [_start(usual, trees.directory()) for _ in range(effort.rounds)],
        bound=START_BOUND * 1000,
        scale=1000,
    )
    yield measured(
        GROUP,
        f"start to first slice, {USUAL} devices, API server",
        "ms",
        [_start_with_api(usual, trees) for _ in range(effort.rounds)],
        bound=START_BOUND * 1000,
        scale=1000,
    )


def _scans(tree: MachineTree, times: int) -> list[float]:
    """Seconds of each of several scans; the first, which fills the caches, is not counted."""
    scanner = Scanner(Roots(sys=tree.sys, dev=tree.dev, proc=tree.proc, pci_ids=tree.pci_ids))
    assert scanner.scan() == tree.snapshot, "the scan has to find what is there"
    found = []
    for _ in range(times):
        began = time.monotonic()
        scanner.scan()
        found.append(time.monotonic() - began)
    return found


def _start(tree: MachineTree, directory: str) -> float:
    with SliceFile(directory, SLICE) as file, AgentProcess(tree, directory) as agent:
        return file.wait(bool) - agent.started


def _start_with_api(tree: MachineTree, trees: Trees) -> float:
    with ApiServer() as api:
        api.state.add_node(NODE)
        kubeconfig = write_kubeconfig(Path(trees.root) / "kubeconfig", api.url)
        with AgentProcess(tree, trees.directory(), kubeconfig=kubeconfig) as agent:
            while not api.state.slices:
                time.sleep(0.001)
            return time.monotonic() - agent.started
