"""One sink's life: wait for something newer, observe, plan, apply, back off.

A dead API server must not delay another sink, and must not leave a queue behind. So every sink has
a task of its own, which follows the newest inventory and nothing else, and plans against what is
really there. After a restart, a lost race or an outage it does just the same as ever; there is no
code for recovery.

This file is that loop. What is there and how it is changed is known to the sink, what has to
change to its plan.
"""

import math
import random
from collections import Counter
from collections.abc import Callable, Sequence
from typing import TypeVar

import structlog
import trio

from liken_events.core.backoff import SOON, Backoff
from liken_events.core.model.device import Inventory
from liken_events.latest import Latest
from liken_events.sinks import Sink, SinkUnavailable

ObservedT = TypeVar("ObservedT")
ChangeT = TypeVar("ChangeT")

BACKOFF = Backoff(base=0.5, ceiling=60.0)
"""Growing pauses while the other side is away, or refuses and does not say for how long. 60 s at
most: a side that is ready again after a long outage is heard of within a minute, and a thousand
nodes ask at most 33 times a second together, 22 on average.

What a side answers while it gets ready does not begin another such minute: it says when to come
back, and `SOON` is for that. Only a wait that was asked for may be longer than a minute."""

RACE = Backoff(base=0.05, ceiling=5.0)
"""Pauses after a lost race: looking again is what helps, but two writers must not chase each other
for ever."""

LAST_RACES = 5
"""Races that may be lost after the inventories were closed. With the pauses of `RACE` they take
1.6 s at most, well within what an agent has for its stop."""

LAST_LOOK_SECONDS = 1.0
"""How long a look may take after the inventories were closed. A side that is there answers within
milliseconds; one that is away must not hold up the end."""

UNDONE = Backoff(base=0.1, ceiling=30.0)
"""Pauses between repairs that somebody undoes again and again: a webhook that changes slices, an
agent with other settings, a controller that deletes them. Each repair works, so nothing else would
ever slow the two down."""

SPARE_REPAIRS = 3
"""Repairs that are made at once. A kubelet deletes the slices when it starts, and again 30 s after
it lost the driver; a person is slower."""

TOLD_REPAIRS = 6
"""Repairs after which it is said that there is a quarrel. The ones before it take a second. A
divided pool of which the slices are deleted one after the other needs more than one."""

LASTING_SECONDS = 3.0
"""A repair that lasted as long, and twice as long as the pause after it, ends a quarrel: so a
minute without one always does. Webhooks and controllers undo within moments. A kubelet that is
started again and again takes longer each time, and must not be answered ever later."""

log = structlog.get_logger()


async def converge(
    sink: Sink[ObservedT, ChangeT],
    plan: Callable[[ObservedT, Inventory], Sequence[ChangeT]],
    inventories: Latest[Inventory],
    *,
    on_done: Callable[[Inventory], None] = lambda _: None,
) -> None:
    """Makes what the sink observes follow the newest inventory, until there are no newer ones.

    What somebody undoes is put right at once, and ever later if that happens again and again; a
    newer inventory does not wait for it.

    When the inventories are closed it still carries out the last one, but does not wait for a side
    that is away, and loses a few races at most.

    Args:
        sink: sees and changes the other side.
        plan: pure; the changes from what is there to what is wanted.
        inventories: what is wanted.
        on_done: called with each inventory that was reached.
    """
    failures: Counter[Backoff] = Counter()
    repairs = _Repairs(sink.name)
    last_races = 0
    await inventories.wait_newer(0)
    while inventories.number:
        wanted, there = inventories.number, sink.number
        inventory = inventories.get()
        try:
            changes = plan(await _look(sink, inventories), inventory)
            for change in changes:
                await sink.apply(change)
        except SinkUnavailable as error:
            backoff = _backoff(error)
            failures[backoff] += 1
            # Who asked for patience and then for nothing any more is not asked sooner than before.
            patience = failures[SOON] if backoff is BACKOFF else 0
            chance = random.random()  # noqa: S311  # jitter, no secret
            delay = backoff.delay(failures[backoff] + patience, chance, error.retry_after)
            write = log.info if error.at_once else log.warning
            write(
                f"{sink.name}.retrying",
                reason=error.reason,
                failures=failures.total(),
                delay_seconds=round(delay, 3),
            )
            with trio.move_on_after(delay):
                await inventories.wait_closed()
            if inventories.closed:
                if not error.at_once or last_races == LAST_RACES:
                    return
                last_races += 1
                await trio.sleep(RACE.delay(last_races, chance))
            continue
        if failures:
            log.info(f"{sink.name}.recovered", failures=failures.total())
        failures.clear()
        on_done(inventory)
        if inventories.closed and inventories.number == wanted:
            return
        with trio.move_on_after(repairs.pause(wanted, is_change=bool(changes))):
            await inventories.wait_newer(wanted)
        await _either(inventories, wanted, sink, there)


def _backoff(failure: SinkUnavailable) -> Backoff:
    """What to wait by. Each counts its own failures: a race after a long outage is a first
    race."""
    if failure.at_once:
        return RACE
    return BACKOFF if failure.retry_after is None else SOON


class _Repairs:
    """Changes that were made again for an inventory which had been reached before.

    A newer inventory is no repair, whatever it changes, and does not end a quarrel either: what
    undid the others undoes its writes too.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._reached = 0
        self._count = 0
        self._last = -math.inf
        self._pause = 0.0

    def pause(self, reached: int, *, is_change: bool) -> float:
        """Seconds to wait before another repair.

        Args:
            reached: number of the inventory that was reached just now.
            is_change: whether anything had to be changed for that.
        """
        is_repair = is_change and reached == self._reached
        self._reached = reached
        if not is_repair:
            return 0.0
        now = trio.current_time()
        is_lasting = now - self._last >= max(LASTING_SECONDS, 2 * self._pause)
        self._count = 1 if is_lasting else self._count + 1
        self._last = now
        chance = random.random()  # noqa: S311  # jitter, no secret
        beyond = self._count - SPARE_REPAIRS + 1
        self._pause = UNDONE.delay(beyond, chance) if beyond > 0 else 0.0
        if self._count == TOLD_REPAIRS:
            log.warning(
                f"{self._name}.undone",
                repairs=self._count,
                result=f"repaired again, at most every {UNDONE.ceiling:g} s in the end",
            )
        return self._pause


async def _look(sink: Sink[ObservedT, ChangeT], inventories: Latest[Inventory]) -> ObservedT:
    """What is there. A look that has to wait, as for the first list of a side that is away, fails
    `LAST_LOOK_SECONDS` after the inventories were closed."""
    seen: list[ObservedT] = []
    failure = SinkUnavailable("it was not told in time what is there")
    async with trio.open_nursery() as nursery:

        async def end() -> None:
            await inventories.wait_closed()
            await trio.sleep(LAST_LOOK_SECONDS)
            nursery.cancel_scope.cancel()

        nursery.start_soon(end)
        try:
            seen.append(await sink.observe())
        except SinkUnavailable as error:
            failure = error
        nursery.cancel_scope.cancel()
    if not seen:
        raise failure
    return seen[0]


async def _either(
    inventories: Latest[Inventory], wanted: int, sink: Sink[ObservedT, ChangeT], there: int
) -> None:
    """Waits until there is a newer inventory, or somebody changed what is there."""
    async with trio.open_nursery() as nursery:

        async def newer() -> None:
            await inventories.wait_newer(wanted)
            nursery.cancel_scope.cancel()

        async def changed() -> None:
            await sink.wait_changed(there)
            nursery.cancel_scope.cancel()

        nursery.start_soon(newer)
        nursery.start_soon(changed)
