"""The soak: actions without end on a real kernel, in an order that a seed decides, and what must
hold all the time.

`make soak`; see `docs/real-hotplug.md`.
"""

import os
import random
import tempfile
import time
from collections import Counter
from collections.abc import Iterator

import pytest

from tests.vm.conftest import shown
from tests.vm.hardware import AT_BOOT
from tests.vm.machine import Machine, what_is_missing
from tests.vm.soak.actions import Hands
from tests.vm.soak.invariants import Broken, Watcher
from tests.vm.soak.plan import Action, Round, first_round, rounds
from tests.vm.soak.programs import Programs
from tests.vm.soak.quiet import QuietPoint, Sample

SECONDS = float(os.environ.get("SOAK_SECONDS", "600"))
MORE_SECONDS = 900.0
"""For the guest's boot, the first round, and the last one with its quiet point, which may each
take as long as its waits allow."""

MOST_MORE_KB = 8192
"""How much an agent's own resident memory may grow in its long life. Without a leak, samples
were between 34.8 and 39.1 MB: each of 14 threads has an arena of glibc's that grows when it is
used first and does not shrink. A leak of 1 kB for each event is more than that after some floods.
"""

ENOUGH_FLOODS = 3
"""One flood may find an agent that reads fast enough; of three one overruns its buffer."""

SHOWN_ACTIONS = 15


def tell(text: str) -> None:
    """Shows a line at once: who waits for ten minutes wants to see something."""
    print(text, flush=True)  # noqa: T201


class Soak:
    """One soak in one guest."""

    def __init__(self, machine: Machine, directory: str) -> None:
        self.watcher = Watcher(machine.control)
        self.programs = Programs(machine, self.watcher)
        self.hands = Hands(machine, self.programs, directory)
        self.quiet = QuietPoint(machine, self.programs, self.watcher, self.hands)
        self.samples: list[Sample] = []
        self.told: list[str] = []
        self._start = time.monotonic()

    def run(self, plan: Iterator[Round], seconds: float) -> None:
        """Everything once, then rounds until the time is over; the last one leaves nothing, as one
        before it did in the life of the same agent."""
        self.programs.start()
        self._say("the agent has published")
        self.do(first_round())
        self.watcher.learn(self.quiet.fresh)
        end = time.monotonic() + seconds
        for item in plan:
            self.do(item)
            if item.is_bare and time.monotonic() > end and len(self.long_life()) > 1:
                return

    def do(self, item: Round) -> None:
        """One round and its quiet point."""
        for action in item.actions:
            self._tell(action)
            self.hands.do(action)
            self.watcher.take()
            time.sleep(action.pause)  # the pauses are the case, not waits for something
        sample = self.quiet.reach(is_bare=item.is_bare)
        self.samples.append(sample)
        count = len(sample.descriptors)
        self._say(f"quiet{' and bare' * item.is_bare}: {sample.rss} kB, {count} descriptors")

    def long_life(self) -> list[Sample]:
        """The samples of the last agent, with nothing plugged in."""
        return [it for it in self.samples if it.is_bare and it.agent == self.programs.agent]

    def summary(self) -> list[str]:
        """What was done and found."""
        long = self.long_life()
        hands, watcher = self.hands, self.watcher
        return [
            f"actions: {sum(hands.done.values())}: {_counts(hands.done)}",
            f"refused by the kernel, being too early: {_counts(hands.refused)}",
            f"quiet points: {self.quiet.points}; lives of the agent: {self.programs.lives}",
            f"versions: {_counts(watcher.counts)}; warnings: {_counts(watcher.warnings)}",
            f"longest that a spec named another's node: {watcher.ownership.worst:.3f} s",
            f"kB resident, nothing plugged in: {[it.rss for it in long]}",
            f"descriptors: {[len(it.descriptors) for it in long]}",
        ]

    def _tell(self, action: Action) -> None:
        self._say(str(action))

    def _say(self, text: str) -> None:
        line = f"{time.monotonic() - self._start:8.1f} {text}"
        self.told.append(line)
        tell(line)


@pytest.mark.timeout(SECONDS + MORE_SECONDS)
def test_whatever_happens_the_agent_says_what_is_there() -> None:
    seed = int(os.environ.get("SOAK_SEED") or random.randrange(1 << 32))
    tell(f"\nSOAK_SEED={seed} SOAK_SECONDS={SECONDS:g}")
    missing = what_is_missing()
    if missing is not None:
        pytest.exit(missing, returncode=1)
    with (
        tempfile.TemporaryDirectory(prefix="vm-") as directory,  # short: sockets are below it
        Machine(directory, list(AT_BOOT), seconds=SECONDS + MORE_SECONDS) as machine,
    ):
        soak = Soak(machine, directory)
        try:
            soak.run(rounds(seed, SECONDS), SECONDS)
            judge(soak)
        except BaseException as error:
            error.add_note(f"SOAK_SEED={seed} SOAK_SECONDS={SECONDS:g}; the last actions:")
            error.add_note("\n".join(soak.told[-SHOWN_ACTIONS:]))
            tell("\n".join([*map(shown, soak.watcher.last), machine.console()]))
            raise
        finally:
            tell("\n".join([f"SOAK_SEED={seed}", *soak.summary()]))


def judge(soak: Soak) -> None:
    """What only the whole shows. With nothing plugged in and nothing claimed, an agent has the
    same descriptors each time."""
    first, *_, last = soak.long_life()
    if more := Counter(last.descriptors) - Counter(first.descriptors):
        raise Broken(f"descriptors that the agent did not have before: {more}")
    if last.rss - first.rss > MOST_MORE_KB:
        raise Broken(f"the agent grew by {last.rss - first.rss} kB: {soak.summary()}")
    if soak.hands.done["flood"] >= ENOUGH_FLOODS and not soak.watcher.warnings["machine.resync"]:
        raise Broken("no flood overran the agent's buffer: they prove nothing")


def _counts(counter: Counter[str]) -> str:
    return ", ".join(f"{count} {name}" for name, count in sorted(counter.items())) or "none"
