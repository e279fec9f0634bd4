"""One sink's life: wait for something newer, observe, plan, apply, back off.

A dead API server must not delay another sink, and must not leave a queue behind. So every sink has
a task of its own, which follows the newest inventory and nothing else, and plans against what is
really there. After a restart, a lost race or an outage it does just the same as ever; there is no
code for recovery.

This file is that loop. What is there and how it is changed is known to the sink, what has to
change to its plan.
"""

import random
from collections.abc import Callable, Sequence
from typing import TypeVar

import structlog
import trio

from liken_events.core.backoff import Backoff
from liken_events.core.model.device import Inventory
from liken_events.latest import Latest
from liken_events.sinks import Sink, SinkUnavailable

ObservedT = TypeVar("ObservedT")
ChangeT = TypeVar("ChangeT")

BACKOFF = Backoff(base=0.5, ceiling=60.0)
"""Growing pauses while the other side is away. 60 s at most: after a long outage a node is heard
of within a minute, and a thousand nodes ask seventeen times a second together."""

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
    failures = 0
    await inventories.wait_newer(0)
    while inventories.number:
        wanted, there = inventories.number, sink.number
        inventory = inventories.get()
        try:
            observed = await sink.observe()
            for change in plan(observed, inventory):
                await sink.apply(change)
        except SinkUnavailable as error:
            failures += 1
            backoff = RACE if error.at_once else BACKOFF
            chance = random.random()  # noqa: S311  # jitter, no secret
            delay = backoff.delay(failures, chance, error.retry_after)
            write = log.info if error.at_once else log.warning
            write(
                f"{sink.name}.retrying",
                reason=error.reason,
                failures=failures,
                delay_seconds=round(delay, 3),
            )
            with trio.move_on_after(delay):
                await inventories.wait_closed()
                return
            continue
        if failures:
            log.info(f"{sink.name}.recovered", failures=failures)
        failures = 0
        on_done(inventory)
        if inventories.closed and inventories.number == wanted:
            return
        await _either(inventories, wanted, sink, there)


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
