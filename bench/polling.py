"""The agent against agents that poll.

A poller learns of a change at its next look, half an interval late on average, and pays for every
look whether anything changed or not. A shorter interval buys latency for CPU time.

This file runs three agents at once on one machine: this one, and the same code without its events,
which looks at everything every 10 s and every 5 s and publishes through the same sink. First
nothing happens, then adapters are exchanged at irregular times. Latency is what was seen. CPU time
over ten minutes is put together from what was seen: what one look costs while nothing happens,
times the looks of ten minutes, and what the changes cost on top.
"""

import random
import select
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from statistics import median

from bench.agent_process import AGENT, SLICE, AgentProcess
from bench.crowd import BLOCK, STICKS, stick
from bench.effort import Effort
from bench.measurement import Measurement, measured
from bench.slice_file import SliceFile
from bench.trees import Trees
from bench.variants import POLLER
from liken_events.reconcile import SAFETY_SECONDS
from liken_events.simulate.tree import MachineTree
from liken_events.simulate.uevents import UeventSender

GROUP = "polling"
DEVICES = 100
INTERVALS = (10.0, 5.0)
"""Seconds between the looks of the two pollers."""

TEN_MINUTES = 600.0
CHANGES = 50
"""Changes in ten minutes."""

BOUND = 1.0
"""A ratio to polling that is not below this is no reason to listen to events."""

LAST_LOOK_SECONDS = 2.0
"""How much longer than its interval a poller gets to see the last change."""


@dataclass(slots=True, kw_only=True)
class Runner:
    """One of the three agents.

    Attributes:
        agent: the process.
        file: its slice.
        interval: seconds between its looks at everything.
        quiet_cpu: seconds of CPU while nothing happened.
        quiet_looks: looks while nothing happened.
        busy_cpu, busy_looks: the same while there were changes.
        seen: serial number of each change, to when its slice had it.
    """

    agent: AgentProcess
    file: SliceFile
    interval: float
    quiet_cpu: float = 0.0
    quiet_looks: int = 0
    busy_cpu: float = 0.0
    busy_looks: int = 0
    seen: dict[str, float] = field(default_factory=dict)

    def looks(self) -> int:
        """How often it looked at everything so far."""
        return self.agent.log().count('"machine.read"')

    def fileno(self) -> int:
        """For `select`."""
        return self.file.fileno()


def measure(trees: Trees, effort: Effort) -> Iterator[Measurement]:
    """All numbers of this group."""
    tree = trees.machine(DEVICES)
    with ExitStack() as stack, UeventSender() as sender:
        runners = [_start(stack, trees, tree, interval) for interval in (None, *INTERVALS)]
        for runner in runners:
            runner.file.wait(bool)
        time.sleep(1.0)  # the first publication's own echo
        _stay_quiet(runners, effort.poll_seconds)
        sent = _exchange(runners, tree, sender, effort)
    mine, *pollers = runners
    look = median(poller.quiet_cpu / max(1, poller.quiet_looks) for poller in pollers)
    yield measured(GROUP, f"CPU of one look at {DEVICES} devices", "ms", [look], scale=1000)
    idle = mine.quiet_cpu * TEN_MINUTES / effort.poll_seconds
    quiet = idle + look * TEN_MINUTES / SAFETY_SECONDS
    busy = quiet + mine.busy_cpu * CHANGES / effort.changes
    late = _latencies(mine, sent)
    yield measured(GROUP, "CPU of ten minutes with no change, events", "ms", [quiet], scale=1000)
    yield measured(
        GROUP, f"CPU of ten minutes with {CHANGES} changes, events", "ms", [busy], scale=1000
    )
    yield measured(GROUP, "latency of a change, events", "ms", late, scale=1000)
    for poller in pollers:
        every = f"polling every {poller.interval:g} s"
        polls = look * TEN_MINUTES / poller.interval
        on_top = (poller.busy_cpu - look * poller.busy_looks) * CHANGES / effort.changes
        theirs = _latencies(poller, sent)
        yield measured(GROUP, f"CPU of ten minutes with no change, {every}", "ms", [polls],
                       scale=1000)  # fmt: skip
        yield measured(GROUP, f"latency of a change, {every}", "ms", theirs, scale=1000)
        for what, ratio in (
            ("CPU with no change", quiet / polls),
            (f"CPU with {CHANGES} changes", busy / (polls + max(0.0, on_top))),
            ("latency", median(late) / median(theirs)),
        ):
            yield measured(GROUP, f"{what}, against {every}", "x", [ratio], bound=BOUND)


def _start(stack: ExitStack, trees: Trees, tree: MachineTree, interval: float | None) -> Runner:
    directory = trees.directory()
    file = stack.enter_context(SliceFile(directory, SLICE))
    options = () if interval is None else (f"--safety-interval={interval}",)
    variant = AGENT if interval is None else POLLER
    agent = stack.enter_context(AgentProcess(tree, directory, options, variant=variant))
    return Runner(agent=agent, file=file, interval=interval or SAFETY_SECONDS)


def _stay_quiet(runners: Sequence[Runner], seconds: float) -> None:
    """Looks what the agents do while nothing happens."""
    before = [(runner.agent.cpu(), runner.looks()) for runner in runners]
    time.sleep(seconds)
    for runner, (cpu, looks) in zip(runners, before, strict=True):
        runner.quiet_cpu = runner.agent.cpu() - cpu
        runner.quiet_looks = runner.looks() - looks


def _exchange(
    runners: Sequence[Runner], tree: MachineTree, sender: UeventSender, effort: Effort
) -> dict[str, float]:
    """Exchanges one adapter after the other, at random times; returns when each new one was
    there, by its serial number.

    An adapter's turn comes again only after both pollers have looked.
    """
    chance = random.Random(1)  # the same times in every run
    before = [(runner.agent.cpu(), runner.looks()) for runner in runners]
    pause = effort.change_seconds / effort.changes
    places = [(b, port) for b in range(DEVICES // BLOCK) for port in range(1, STICKS + 1)]
    sent: dict[str, float] = {}
    for number in range(effort.changes):
        _look(runners, sent, time.monotonic() + pause * chance.uniform(0.5, 1.5))
        serial = f"X{number:05d}"
        new = stick(*places[number % len(places)], serial=serial)
        sender.send([*tree.unplug(new.key), *tree.plug(new)])
        sent[serial] = time.monotonic()
    _look(runners, sent, time.monotonic() + max(INTERVALS) + LAST_LOOK_SECONDS)
    for runner, (cpu, looks) in zip(runners, before, strict=True):
        runner.busy_cpu = runner.agent.cpu() - cpu
        runner.busy_looks = runner.looks() - looks
    for place in places:
        old = stick(*place)
        tree.unplug(old.key)
        tree.plug(old)
    return sent


def _look(runners: Sequence[Runner], sent: dict[str, float], until: float) -> None:
    """Notes until that time what the slices say."""
    while (left := until - time.monotonic()) > 0:
        ready, _, _ = select.select(runners, [], [], left)
        now = time.monotonic()
        for runner in ready:
            runner.file.forget()
            text = runner.file.text()
            for serial in sent.keys() - runner.seen.keys():
                if serial in text:
                    runner.seen[serial] = now


def _latencies(runner: Runner, sent: dict[str, float]) -> list[float]:
    """Seconds until the slice had each change. Every change has to be seen by everybody."""
    missed = sent.keys() - runner.seen.keys()
    assert not missed, f"{len(missed)} changes were never published"
    return [runner.seen[serial] - when for serial, when in sent.items()]
