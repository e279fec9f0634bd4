"""How long it takes on a real kernel, from its last event to the file, beside a poller.

Events of a real device are spread out, and come by way of udevd. Here devices of QEMU's are
plugged into a guest and pulled out, one kind after the other, and the kernel itself says when it
sent the events and when the files were renamed into place: the slice, and for a claimed device its
CDI spec. Then the same code without events takes the agent's place, looks at everything every five
seconds, and gets the same devices at random moments.

The guest's processor is emulated: whatever is work takes many times as long as on a real machine,
for the agent and for the poller. The poller's interval and the settle time are what they are.
"""

import os
import random
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from statistics import median

from bench.agent_process import AGENT
from bench.changes import Change
from bench.effort import Effort
from bench.exchange import AWAY, PLUG, PULL, REPLUG, Held, exchange, hold
from bench.guest import Guest
from bench.kernel_trace import Notes, Uevent
from bench.measurement import Measurement, measured
from bench.plugs import Kind
from bench.trees import Trees
from bench.variants import POLLER
from liken_events.core.timing import Timing
from tests.vm.claims import Claims
from tests.vm.desk import Desk

GROUP = "kernel"
POLL_SECONDS = 5.0

SAFETY_SECONDS = 3600.0
"""The agent's look at everything that follows from no event: not while anything is measured."""

PLUG_BOUND = 0.5
"""Seconds beyond the settle time and what udevd takes: an emulated processor takes its time."""

PULL_BOUND = 0.5
"""Seconds for a removal, likewise."""

RATIO_BOUND = 1.0
"""Of the agent's median to the poller's; it includes what udevd takes, 1.5 s with a keyboard."""


@dataclass(frozen=True, slots=True)
class Results:
    """What one agent was measured to do, in seconds, by kind and what was done.

    Attributes:
        latencies: from the kernel's event to the file.
        own: of each plug-in, what was beyond the settle time and udevd's.
        late: of each plug-in, how many events came after the slice.
    """

    latencies: dict[tuple[str, str], list[float]] = field(
        default_factory=lambda: defaultdict(list)
    )
    own: dict[tuple[str, str], list[float]] = field(default_factory=lambda: defaultdict(list))
    late: dict[str, list[int]] = field(default_factory=lambda: defaultdict(list))

    def add(self, changes: Sequence[Change], notes: Notes) -> None:
        """Works out how long the files took."""
        for change in changes:
            self.latencies[change.kind.name, change.what].append(change.latency(notes))

    def of_all_kinds(self, what: str) -> list[float]:
        """The times of all kinds: for a poller one is like the other."""
        found = [times for (_, done), times in self.latencies.items() if done == what]
        return [seconds for times in found for seconds in times]

    def add_parts(self, changes: Sequence[Change], notes: Notes, told: Sequence[Uevent]) -> None:
        """Works out what of it was the agent's own, and what came later."""
        for change in [change for change in changes if change.is_plug]:
            of = change.kind.name, change.what
            self.own[of].append(change.own(notes, told, Timing().quiet))
            if change.what == PLUG:
                self.late[change.kind.name].append(change.late(notes))


def measure(trees: Trees, effort: Effort) -> Iterator[Measurement]:
    """All numbers of this group.

    Raises:
        GuestFailed: the guest or an agent in it does not do what it should.
        OSError: its kernel takes no notes.
    """
    loads = [os.getloadavg()[0]]
    mine, theirs = Results(), Results()
    with Guest(trees.directory()) as guest:
        with guest.agent(AGENT, f"--safety-interval={SAFETY_SECONDS}") as desk:
            for kind in guest.kinds:
                _follow(guest, desk, kind, effort.plugs, mine)
                loads.append(os.getloadavg()[0])
        with guest.agent(POLLER, f"--safety-interval={POLL_SECONDS}") as desk:
            _poll(guest, desk, effort.polls, theirs)
        loads.append(os.getloadavg()[0])
        where = (
            f"guest, Linux {guest.kernel}, 2 CPUs emulated by QEMU (TCG); "
            f"the host's load {min(loads):.1f} to {max(loads):.1f}"
        )
        names = [kind.name for kind in guest.kinds]
    for item in _measurements(names, mine, theirs):
        yield item.on(where)


def _follow(guest: Guest, desk: Desk, kind: Kind, repeats: int, results: Results) -> None:
    """Has the agent follow one kind of device, alone in the guest."""
    own = Desk(guest.machine, desk.pid)
    claims = Claims(own)
    exchange(guest, own, kind, None, is_plug=True)  # its drivers are loaded
    held = hold(own, claims, kind) if kind.is_claimed else None
    guest.trace.take()
    since, changes = len(guest.control.records), []
    for _ in range(repeats):
        changes += exchange(guest, own, kind, held, is_plug=False)
        changes += exchange(guest, own, kind, held, is_plug=True)
    notes = guest.trace.take()
    results.add(changes, notes)
    results.add_parts(changes, notes, guest.told(since))
    exchange(guest, own, kind, None, is_plug=False)
    claims.release_all()


def _poll(guest: Guest, desk: Desk, repeats: int, results: Results) -> None:
    """Has the poller follow all kinds, one after the other, at random moments."""
    chance = random.Random(1)  # the same moments in every run
    claims = Claims(desk)
    held: dict[str, Held] = {}
    for kind in guest.kinds:
        exchange(guest, desk, kind, None, is_plug=True)
        if kind.is_claimed:
            held[kind.name] = hold(desk, claims, kind)
    for _ in range(repeats):
        for is_plug in (False, True):
            guest.trace.take()
            changes = []
            for kind in guest.kinds:
                time.sleep(chance.uniform(0, POLL_SECONDS))
                changes += exchange(guest, desk, kind, held.get(kind.name), is_plug=is_plug)
            results.add(changes, guest.trace.take())


def _measurements(names: Sequence[str], mine: Results, theirs: Results) -> Iterator[Measurement]:
    every = f"polling every {POLL_SECONDS:g} s"
    for name, what in [(name, what) for what in (PLUG, PULL, REPLUG, AWAY) for name in names]:
        took = mine.latencies[name, what]
        if not took:
            continue  # it was not claimed
        title = f"{name}, {what}"
        if what in {PLUG, REPLUG}:
            yield measured(GROUP, title, "ms", took, scale=1000)
            beyond = [seconds - Timing().quiet for seconds in took]
            yield measured(GROUP, f"{title}, beyond the settle time", "ms", beyond, scale=1000)
            yield measured(
                GROUP,
                f"{title}, beyond the settle time and udevd's",
                "ms",
                mine.own[name, what],
                bound=PLUG_BOUND * 1000,
                scale=1000,
            )
        else:
            yield measured(GROUP, title, "ms", took, bound=PULL_BOUND * 1000, scale=1000)
        ratio = median(took) / median(theirs.of_all_kinds(what))
        yield measured(GROUP, f"{title}, against {every}", "x", [ratio], bound=RATIO_BOUND)
    for what in (PLUG, PULL, REPLUG, AWAY):
        polled = theirs.of_all_kinds(what)
        yield measured(GROUP, f"all kinds, {what}, {every}", "ms", polled, scale=1000)
    for name in names:
        late = mine.late[name]
        yield measured(GROUP, f"{name}, events of a plug-in after the slice", "events", late)
