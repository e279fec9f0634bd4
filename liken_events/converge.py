"""One sink's life: wait for something newer, observe, plan, apply, back off.

A dead API server must not delay another sink, and must not leave a queue behind. So every sink has
a task of its own, which follows the newest inventory and nothing else, and plans against what is
really there. After a restart, a lost race or an outage it does just the same as ever; there is no
code for recovery.

This file is that loop. What is there and how it is changed is known to the sink, what has to
change to its plan.
"""

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

log = structlog.get_logger()


async def converge(
    sink: Sink[ObservedT, ChangeT],
    plan: Callable[[ObservedT, Inventory], Sequence[ChangeT]],
    inventories: Latest[Inventory],
    *,
    on_done: Callable[[Inventory], None] = lambda _: None,
) -> None:
    """Makes what the sink observes follow the newest inventory, until there are no newer ones.

    When the inventories are closed it still carries out the last one, but does not wait for a side
    that is away.

    Args:
        sink: sees and changes the other side.
        plan: pure; the changes from what is there to what is wanted.
        inventories: what is wanted.
        on_done: called with each inventory that was reached.
    """
    failures: Counter[Backoff] = Counter()
    await inventories.wait_newer(0)
    while inventories.number:
        wanted, there = inventories.number, sink.number
        inventory = inventories.get()
        try:
            observed = await sink.observe()
            for change in plan(observed, inventory):
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
                return
            continue
        if failures:
            log.info(f"{sink.name}.recovered", failures=failures.total())
        failures.clear()
        on_done(inventory)
        if inventories.closed and inventories.number == wanted:
            return
        await _either(inventories, wanted, sink, there)


def _backoff(failure: SinkUnavailable) -> Backoff:
    """What to wait by. Each counts its own failures: a race after a long outage is a first
    race."""
    if failure.at_once:
        return RACE
    return BACKOFF if failure.retry_after is None else SOON


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
