from collections.abc import Callable
from itertools import pairwise

import pytest
import trio
from structlog.typing import EventDict
from trio.testing import MockClock

from liken_events.core.events import MountsChanged, Resync
from liken_events.inbox import Inbox
from liken_events.sources import SourceLost
from liken_events.supervise import HEALTHY_SECONDS, RESTART, follow, keep_running

BUG = KeyError("spec")


class FakeSource:
    """Ends as told, one run after the other, and then watches for ever."""

    name = "fake"

    def __init__(self, *endings: Exception | None, watches: bool = True) -> None:
        self._endings = list(endings)
        self._watches = watches
        self.runs: list[float] = []

    async def run(self, inbox: Inbox, *, task_status: trio.TaskStatus[None]) -> None:
        self.runs.append(trio.current_time())
        if self._watches or not self._endings:
            task_status.started()
            inbox.mark(MountsChanged(source=self.name))
        if not self._endings:
            await trio.sleep_forever()
        ending = self._endings.pop(0)
        if ending is not None:
            raise ending


ENDINGS = [
    pytest.param(lambda: SourceLost("the socket was closed"), id="known"),
    pytest.param(lambda: KeyError("spec"), id="bug"),
    pytest.param(lambda: ExceptionGroup("several", [KeyError("a"), OSError("b")]), id="group"),
    pytest.param(lambda: None, id="return"),
]


@pytest.mark.parametrize("ending", ENDINGS)
async def test_a_source_that_ends_is_started_again_and_everything_is_read(
    clock: MockClock, logs: list[EventDict], ending: Callable[[], Exception | None]
) -> None:
    source, inbox = FakeSource(ending()), Inbox()
    async with trio.open_nursery() as nursery:
        await nursery.start(follow, source, inbox)
        await trio.sleep(10)
        nursery.cancel_scope.cancel()
    first, second = source.runs
    assert RESTART.base / 2 <= second - first <= RESTART.base
    found = [marked.trigger for marked in inbox.take()]
    assert found == [
        Resync(source="fake", reason="the source is started again"),
        MountsChanged(source="fake"),
    ]
    assert "part.restarting" in [line["event"] for line in logs]


@pytest.mark.parametrize("ending", ENDINGS)
async def test_a_source_that_cannot_watch_does_not_keep_the_agent_from_starting(
    clock: MockClock, logs: list[EventDict], ending: Callable[[], Exception | None]
) -> None:
    source = FakeSource(ending(), ending(), watches=False)
    async with trio.open_nursery() as nursery:
        with trio.fail_after(0.001):
            await nursery.start(follow, source, Inbox())
        await trio.sleep(10)
        assert len(source.runs) == 3
        nursery.cancel_scope.cancel()


async def test_a_known_ending_is_logged_by_its_reason_and_a_bug_with_its_traceback(
    clock: MockClock, logs: list[EventDict]
) -> None:
    source = FakeSource(SourceLost("the socket was closed"), KeyError("spec"))
    async with trio.open_nursery() as nursery:
        await nursery.start(follow, source, Inbox())
        await trio.sleep(10)
        nursery.cancel_scope.cancel()
    lost = [line for line in logs if line["event"] == "source.lost"]
    failed = [line for line in logs if line["event"] == "part.failed"]
    assert [line["reason"] for line in lost] == ["the socket was closed"]
    assert [(line["part"], line["exc_info"]) for line in failed] == [("fake", True)]


async def test_one_part_that_fails_all_the_time_harms_no_other(
    clock: MockClock, logs: list[EventDict]
) -> None:
    beats: list[float] = []

    async def fails() -> bool:
        raise BUG

    async def beats_on() -> bool:
        while True:
            beats.append(trio.current_time())
            await trio.sleep(1)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(keep_running, "fails", fails)
        nursery.start_soon(keep_running, "beats", beats_on)
        await trio.sleep(100.5)
        nursery.cancel_scope.cancel()
    assert len(beats) == 101


async def test_pauses_grow_to_a_ceiling_so_that_a_permanent_fault_costs_nothing(
    clock: MockClock, logs: list[EventDict]
) -> None:
    starts: list[float] = []

    async def fails() -> bool:
        starts.append(trio.current_time())
        raise OSError("no such device")

    with trio.move_on_after(3600):
        await keep_running("fails", fails)
    pauses = [later - at for at, later in pairwise(starts)]
    assert all(RESTART.base / 2 * 2**count <= pause for count, pause in enumerate(pauses[:6]))
    assert all(RESTART.ceiling / 2 <= pause <= RESTART.ceiling for pause in pauses[8:])
    assert len(starts) < 3600 / (RESTART.ceiling / 2) + 10


async def test_a_part_that_ran_well_for_long_starts_again_at_once(
    clock: MockClock, logs: list[EventDict]
) -> None:
    lives = [0.0, 0.0, 0.0, HEALTHY_SECONDS + 1, 0.0]

    async def fails_later() -> bool:
        if not lives:
            return False
        await trio.sleep(lives.pop(0))
        raise OSError("no such device")

    await keep_running("part", fails_later)
    assert [line["failures"] for line in logs if line["event"] == "part.restarting"] == [
        1, 2, 3, 1, 2,
    ]  # fmt: skip


async def test_a_part_that_is_done_is_not_started_again(clock: MockClock) -> None:
    runs = 0

    async def done() -> bool:
        nonlocal runs
        runs += 1
        return False

    await keep_running("part", done)
    assert runs == 1


async def test_a_part_that_is_cancelled_ends(clock: MockClock, logs: list[EventDict]) -> None:
    async def waits() -> bool:
        await trio.Event().wait()
        return True

    with trio.move_on_after(1) as scope:
        await keep_running("part", waits)
    assert scope.cancelled_caught
    assert logs == []
