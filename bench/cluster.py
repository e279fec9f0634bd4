"""The agent with a real API server: how soon, how much, and how often.

The other groups have an API server of their own, which knows no admission, no watch cache and no
etcd. Here it is Kubernetes' own, with etcd, controllers and scheduler, as processes on loopback.

This file plugs and pulls one adapter on a machine that fills a slice. First it takes the time from
the last event that counts, sent to the agent's process by the kernel, to three moments: the server
had answered (its audit log), the agent knew (its own log), and a stranger's watch showed the
change. Then it counts bytes between agent and server, beside a variant that replaces the slice as
a whole. What many nodes do is measured in `bench.fleet`.
"""

import json
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from statistics import median

from bench import fleet
from bench.agent_process import AGENT, NODE, SLICE, AgentProcess, Variant
from bench.audited import AuditedControlPlane
from bench.crowd import stick
from bench.effort import Effort
from bench.fleet import measure_nodes
from bench.kubelet_restarts import measure_restarts
from bench.measurement import Measurement, measured, percentile
from bench.slice_watch import Names, SliceWatch
from bench.trees import Trees
from bench.variants import WHOLE
from bench.wire import Traffic, Wire
from liken_events.core.model.names import device_name
from liken_events.core.plan.slice_body import MAX_DEVICES
from liken_events.core.timing import Timing
from liken_events.simulate.tree import MachineTree
from liken_events.simulate.uevents import UeventSender
from tests.cluster.real.control_plane import LOOPBACK
from tests.cluster.real.polling import poll
from tests.cluster.real.programs import MODULE, Programs, find
from tests.cluster.real.programs import what_is_missing as what_building_needs

GROUP = fleet.GROUP
DEVICES = 172
"""Of the machine: those that are offered fill the slice."""

OPTIONS = ("--kubelet", "off")

OWN_BOUND = 0.1
"""Seconds beyond the settle time and the API server's own time. It is some 10 ms of work for the
agent and for TLS; the rest is for a machine whose cores are busy with the control plane."""

TAIL_BOUND = 1.0
"""Seconds beyond the settle time, of 99 in 100 changes: Kubernetes' own objective for an API
server's answer to a change of one object, which is most of it."""

BYTES_BOUND = 0.25
"""Of what a call for a change costs, to what a PUT costs."""

REST_SECONDS = 0.2
"""Without CPU, before the next change: the watch's echo of the last is read."""

ADAPTER = stick(0, 1)
NAME = device_name(ADAPTER.key)


def what_is_missing() -> str | None:
    """One sentence that says what to do first; None if the group can be measured."""
    if find() is not None:
        return None
    return what_building_needs() or f"The programs are not built: {sys.executable} -m {MODULE}"


def measure(trees: Trees, effort: Effort) -> Iterator[Measurement]:
    """All numbers of this group.

    Raises:
        ProgramFailed: the control plane does not start.
    """
    programs = find()
    assert programs is not None, what_is_missing()
    loads = [os.getloadavg()[0]]
    found: list[Measurement] = []
    for item in _measure(programs, trees, effort):
        loads.append(os.getloadavg()[0])
        found.append(item)
    where = (
        f"Kubernetes {programs.version}, etcd without fsync, all on these cores; "
        f"load {min(loads):.1f} to {max(loads):.1f}"
    )
    yield from (item.on(where) for item in found)


def _measure(programs: Programs, trees: Trees, effort: Effort) -> Iterator[Measurement]:
    tree, directory = trees.machine(DEVICES), trees.directory()
    os.makedirs(directory)
    with AuditedControlPlane(programs, directory) as control_plane:
        control_plane.add_nodes([NODE])
        yield from _latency(control_plane, trees, tree, effort)
        yield from _traffic(control_plane, trees, tree, effort)
        yield from measure_restarts(programs, control_plane, effort)
        kubeconfig = control_plane.account_kubeconfig("quiet", control_plane.url)
        with AgentProcess(tree, trees.directory(), OPTIONS, kubeconfig=kubeconfig) as agent:
            yield from measure_nodes(control_plane, agent, trees.directory(), effort)


def is_full(names: Names) -> bool:
    """Whether the slice has all devices."""
    return len(names) == MAX_DEVICES and NAME in names


def lacks_it(names: Names) -> bool:
    """Whether the slice has all devices but the adapter."""
    return len(names) == MAX_DEVICES - 1 and NAME not in names


@dataclass(slots=True)
class Times:
    """Of one kind of change, in seconds: when its last event was sent, by the system's clock, and
    how long after it the watch showed the change."""

    sent: list[float] = field(default_factory=list)
    seen: list[float] = field(default_factory=list)


class Changes:
    """Plugs and pulls the adapter of an agent that has published everything."""

    def __init__(
        self, tree: MachineTree, watch: SliceWatch, agent: AgentProcess, sender: UeventSender
    ) -> None:
        self._tree, self._watch, self._agent, self._sender = tree, watch, agent, sender
        self.plugs, self.pulls = Times(), Times()

    def pull(self) -> None:
        """Ends when the change was seen and the agent rests. Counts from the event that says that
        the adapter itself is gone."""
        said = self._tree.unplug(ADAPTER.key)
        gone = [event.devpath for event in said].index(ADAPTER.path)
        self._sender.send(said[:gone])
        sent = time.time(), time.monotonic()
        self._sender.send(said[gone:])
        self._note(self.pulls, sent, self._watch.wait(lacks_it))

    def plug(self) -> None:
        """Likewise; counts from the last event."""
        self._sender.send(self._tree.plug(ADAPTER))
        sent = time.time(), time.monotonic()
        self._note(self.plugs, sent, self._watch.wait(is_full))

    def _note(self, times: Times, sent: tuple[float, float], seen: float) -> None:
        times.sent.append(sent[0])
        times.seen.append(seen - sent[1])
        self._agent.rest(REST_SECONDS)


def _latency(
    control_plane: AuditedControlPlane, trees: Trees, tree: MachineTree, effort: Effort
) -> Iterator[Measurement]:
    kubeconfig = control_plane.account_kubeconfig("agent", control_plane.url)
    options = (*OPTIONS, "--log-level", "debug")
    with (
        SliceWatch(control_plane, SLICE) as watch,
        AgentProcess(tree, trees.directory(), options, kubeconfig=kubeconfig) as agent,
        UeventSender() as sender,
    ):
        watch.wait(is_full)
        agent.rest(REST_SECONDS)
        control_plane.requests()
        changes = Changes(tree, watch, agent, sender)
        for _ in range(effort.published // 2):
            changes.pull()
            changes.plug()
        known = _patch_times(agent.log())
    patches = [each for each in control_plane.requests() if each.verb == "patch"]
    beyond: list[float] = []
    own: list[float] = []
    for what, times, settle in (
        ("removal of a device", changes.pulls, 0.0),
        ("last event of a plug-in", changes.plugs, Timing().quiet),
    ):
        if settle:
            yield measured(GROUP, f"{what} to a stranger's watch", "ms", times.seen, scale=1000)
        suffix = ", beyond the settle time" if settle else ""
        seen = [seconds - settle for seconds in times.seen]
        beyond += seen
        yield measured(GROUP, f"{what} to a stranger's watch{suffix}", "ms", seen, scale=1000)
        told = [_after(sent, known) - sent - settle for sent in times.sent]
        yield measured(GROUP, f"{what} to the agent's knowing{suffix}", "ms", told, scale=1000)
        for sent, seconds in zip(times.sent, told, strict=True):
            patch = next(each for each in patches if each.received > sent)
            own.append(seconds - (patch.answered - patch.received))
    server = [each.answered - each.received for each in patches]
    yield measured(GROUP, "the API server's own time for a patch", "ms", server, scale=1000)
    yield measured(GROUP, "any change to the agent's knowing, beyond both", "ms", own,
                   bound=OWN_BOUND * 1000, scale=1000)  # fmt: skip
    yield measured(
        GROUP,
        f"{len(beyond)} changes to the watch, beyond the settle time: 99th percentile",
        "ms",
        [percentile(beyond, 99)],
        bound=TAIL_BOUND * 1000,
        scale=1000,
    )


def _after(when: float, times: Iterable[float]) -> float:
    """The first of these times that is after that."""
    return next(each for each in times if each > when)


def _patch_times(log: str) -> list[float]:
    """When the agent wrote that a patch of its was answered, by the system's clock."""
    events = [json.loads(line) for line in log.splitlines() if '"slice.patched"' in line]
    return [datetime.fromisoformat(event["timestamp"]).timestamp() for event in events]


PARTS: dict[str, Callable[[Traffic], int]] = {
    "sent": lambda traffic: traffic.sent,
    "answered": lambda traffic: traffic.answered,
    "sent and answered": lambda traffic: traffic.called,
    "of the watch": lambda traffic: traffic.told,
    "in all, with the watch": lambda traffic: traffic.total,
}


@dataclass(frozen=True, slots=True)
class Costs:
    """What changes cost, each; the server's own time is in seconds."""

    traffic: list[Traffic] = field(default_factory=list)
    requests: list[int] = field(default_factory=list)
    server: list[float] = field(default_factory=list)

    def of(self, part: str) -> list[int]:
        """The bytes of one of the `PARTS`."""
        return [PARTS[part](each) for each in self.traffic]


def _traffic(
    control_plane: AuditedControlPlane, trees: Trees, tree: MachineTree, effort: Effort
) -> Iterator[Measurement]:
    pairs = max(2, effort.published // 20)
    mine, theirs = (
        _costs(control_plane, trees, tree, variant, pairs) for variant in (AGENT, WHOLE)
    )
    for what, costs, bound in (("patch", mine, 1.0), ("PUT of the whole slice", theirs, None)):
        yield measured(GROUP, f"{what}: requests for a change", "requests", costs.requests,
                       bound=bound)  # fmt: skip
        for part in PARTS:
            yield measured(GROUP, f"{what}: bytes for a change, {part}", "bytes", costs.of(part))
        yield measured(GROUP, f"{what}: the API server's own time", "ms", costs.server, scale=1000)
    for part, bound in (
        ("sent", BYTES_BOUND),
        ("sent and answered", BYTES_BOUND),
        ("in all, with the watch", None),
    ):
        ratio = median(mine.of(part)) / median(theirs.of(part))
        yield measured(GROUP, f"patch against PUT: bytes for a change, {part}", "x", [ratio],
                       bound=bound)  # fmt: skip


def _costs(
    control_plane: AuditedControlPlane,
    trees: Trees,
    tree: MachineTree,
    variant: Variant,
    pairs: int,
) -> Costs:
    costs = Costs()
    control_plane.requests()
    with Wire(control_plane.port) as wire:
        url = f"https://{LOOPBACK}:{wire.port}"
        kubeconfig = control_plane.account_kubeconfig("wire", url)
        with (
            SliceWatch(control_plane, SLICE) as watch,
            AgentProcess(
                tree, trees.directory(), OPTIONS, kubeconfig=kubeconfig, variant=variant
            ) as agent,
            UeventSender() as sender,
        ):
            poll(lambda: "watch" in [each.verb for each in control_plane.requests()], 30)
            agent.rest(1.0)
            wire.take()
            control_plane.requests()
            changes = Changes(tree, watch, agent, sender)
            for act in [changes.pull, changes.plug] * pairs:
                act()
                costs.traffic.append(wire.take())
                asked = control_plane.requests()
                costs.requests.append(len(asked))
                costs.server.extend(each.answered - each.received for each in asked)
    return costs
