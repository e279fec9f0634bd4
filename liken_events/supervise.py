"""What is done about a part that ends: it is started again, alone.

A node agent has several independent parts. A netlink socket may be closed under its reader; a bug
may raise in a sink that sees an object nobody thought of. In a nursery one exception cancels all
the others, and then a strange slice would keep claims from being prepared.

This file runs one part for ever. The ending that a part is known to have is logged with its
reason; anything else with its traceback, as the bug that it is. Both are followed by a growing
pause, so that a permanent fault costs nothing, and the others go on. See
`docs/decisions/0003-contained-faults.md`.
"""

import random
from collections.abc import Awaitable, Callable

import structlog
import trio

from liken_events.core.backoff import Backoff
from liken_events.core.events import Resync
from liken_events.inbox import Inbox
from liken_events.sources import Source, SourceLost

RESTART = Backoff(base=0.5, ceiling=60.0)
"""Pauses before a part is started again."""

HEALTHY_SECONDS = 60.0
"""A part that ran for this long had recovered: its next fault counts as the first."""

log = structlog.get_logger()


async def follow(
    source: Source,
    inbox: Inbox,
    *,
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Runs a source for ever. After each loss everything is read again, because events went by
    unseen.

    `started()` is called when the source watches, or when it first failed to: the agent must come
    up without it.
    """
    once = _Once(task_status)

    async def run() -> bool:
        try:
            await source.run(inbox, task_status=once)
        except SourceLost as error:
            log.warning("source.lost", source=source.name, reason=str(error))
        return True

    def restarting() -> None:
        inbox.mark(Resync(source=source.name, reason="the source is started again"))

    await keep_running(source.name, run, on_end=once.started, before_restart=restarting)


async def keep_running(
    name: str,
    part: Callable[[], Awaitable[bool]],
    *,
    on_end: Callable[[], None] = lambda: None,
    before_restart: Callable[[], None] = lambda: None,
) -> None:
    """Runs `part` again and again, with growing pauses, until it returns False.

    Whatever exception it ends with is logged and counts as a fault.
    """
    failures = 0
    while True:
        began = trio.current_time()
        try:
            if not await part():
                return
        except Exception:  # the one place that contains faults
            log.exception("part.failed", part=name)
        on_end()
        failures = 1 if trio.current_time() - began > HEALTHY_SECONDS else failures + 1
        delay = RESTART.delay(failures, random.random())  # noqa: S311  # jitter, no secret
        log.warning("part.restarting", part=name, failures=failures, delay_seconds=round(delay, 1))
        await trio.sleep(delay)
        before_restart()


class _Once:
    """A task status that may be told several times, by several runs, and passes on the first."""

    def __init__(self, outer: trio.TaskStatus[None]) -> None:
        self._outer: trio.TaskStatus[None] | None = outer

    def started(self, value: None = None) -> None:
        outer, self._outer = self._outer, None
        if outer is not None:
            outer.started(value)
