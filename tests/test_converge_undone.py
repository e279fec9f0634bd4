"""What somebody undoes again and again."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import pairwise

import pytest
import trio
from structlog.typing import EventDict
from trio.testing import MockClock

from liken_events.converge import LASTING_SECONDS, SPARE_REPAIRS, TOLD_REPAIRS, UNDONE
from tests.test_converge import Bench, FakeSink, offer

MINUTE = 60.0


class Quarrelsome(FakeSink):
    """Somebody undoes each change as soon as it is made, while `is_undone`."""

    is_undone = True

    async def apply(self, change: frozenset[str]) -> None:
        await super().apply(change)
        if self.is_undone:
            self.change_from_outside("theirs")


@asynccontextmanager
async def quarrel() -> AsyncIterator[Bench]:
    """A sink at work at `a`, the changes of which are undone."""
    bench = Bench()
    bench.sink = Quarrelsome()
    bench.inventories.set(offer("a"))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(bench.run)
        yield bench
        nursery.cancel_scope.cancel()


def warnings(logs: list[EventDict]) -> list[EventDict]:
    return [line for line in logs if line["event"] == "names.undone"]


async def test_what_is_undone_again_and_again_is_repaired_ever_later_and_told_once(
    clock: MockClock, logs: list[EventDict]
) -> None:
    async with quarrel() as bench:
        await trio.sleep(3600)
    times = [at for at, _ in bench.sink.tries]
    pauses = [later - at for at, later in pairwise(times)]
    assert pauses[:SPARE_REPAIRS] == [0.0] * SPARE_REPAIRS, "the first ones are made at once"
    growing = pauses[SPARE_REPAIRS:]
    assert all(UNDONE.base / 2 * 2**count <= pause for count, pause in enumerate(growing[:8]))
    assert all(UNDONE.ceiling / 2 <= pause <= UNDONE.ceiling for pause in growing[9:])
    assert len(growing) > 3600 / UNDONE.ceiling
    assert [line["log_level"] for line in warnings(logs)] == ["warning"]


async def test_a_newer_inventory_does_not_wait_for_a_quarrel_and_does_not_stir_it_up(
    clock: MockClock, logs: list[EventDict]
) -> None:
    """It is written at once, and once more; then the pauses are as long as before."""
    async with quarrel() as bench:
        await trio.sleep(600)
        for name in ("b", "c", "d"):
            tried, set_at = len(bench.sink.tries), trio.current_time()
            bench.inventories.set(offer(name))
            await trio.sleep(1)
            assert bench.sink.tries[tried:] == [(set_at, frozenset({name}))] * 2
    assert len(warnings(logs)) == 1


async def test_after_a_quiet_minute_a_repair_is_made_at_once_again(
    clock: MockClock, logs: list[EventDict]
) -> None:
    async with quarrel() as bench:
        sink = bench.sink
        assert isinstance(sink, Quarrelsome)
        for quarrels in (1, 2):
            await trio.sleep(600)
            sink.is_undone = False
            await trio.sleep(UNDONE.ceiling + MINUTE)
            assert sink.holds == {"a"}
            assert len(warnings(logs)) == quarrels
            for _ in range(SPARE_REPAIRS):
                undone = trio.current_time()
                sink.change_from_outside("theirs")
                await trio.sleep(0.01)
                assert sink.tries[-1] == (undone, frozenset({"a"}))
            await trio.sleep(MINUTE)
            sink.is_undone = True
            sink.change_from_outside("theirs")


@pytest.mark.parametrize("every_seconds", [LASTING_SECONDS, 10.0, MINUTE])
async def test_repairs_now_and_then_are_never_slowed(
    clock: MockClock, logs: list[EventDict], every_seconds: float
) -> None:
    """As after each start of a kubelet, which deletes the slices of a divided pool one by one."""
    async with quarrel() as bench:
        sink = bench.sink
        assert isinstance(sink, Quarrelsome)
        sink.is_undone = False
        for _ in range(50):
            await trio.sleep(every_seconds)
            undone = trio.current_time()
            sink.change_from_outside("theirs")
            await trio.sleep(0.01)
            sink.change_from_outside()
            await trio.sleep(0.01)
            assert sink.holds == {"a"}
            assert sink.tries[-1][0] == pytest.approx(undone + 0.01)
    assert warnings(logs) == []


async def test_of_a_few_repairs_in_a_row_nothing_is_said(
    clock: MockClock, logs: list[EventDict]
) -> None:
    """As after the slices of a divided pool were deleted one after the other."""
    async with quarrel() as bench:
        sink = bench.sink
        assert isinstance(sink, Quarrelsome)
        began = trio.current_time()
        while len(sink.tries) < TOLD_REPAIRS - 1:
            await sink.wait_changed(sink.number)
        sink.is_undone = False
        assert trio.current_time() - began < 1
        await trio.sleep(600)
        assert sink.holds == {"a"}
        assert warnings(logs) == []
        sink.is_undone = True
        sink.change_from_outside("theirs")
        await trio.sleep(600)
        assert [line["repairs"] for line in warnings(logs)] == [TOLD_REPAIRS]


async def test_a_burst_of_newer_inventories_is_no_quarrel(
    clock: MockClock, logs: list[EventDict]
) -> None:
    async with quarrel() as bench:
        sink = bench.sink
        assert isinstance(sink, Quarrelsome)
        sink.is_undone = False
        for number in range(200):
            bench.inventories.set(offer(f"device-{number}"))
            at = trio.current_time()
            await trio.sleep(0.01)
            assert sink.tries[-1] == (at, frozenset({f"device-{number}"}))
        deleted = trio.current_time()
        sink.change_from_outside()
        await trio.sleep(0.01)
        assert sink.tries[-1][0] == deleted, "what a kubelet deletes meanwhile is back at once"
    assert warnings(logs) == []


async def test_two_who_both_wait_leave_each_other_in_peace(
    clock: MockClock, logs: list[EventDict]
) -> None:
    one, other = Bench(), Bench()
    other.sink = one.sink
    one.inventories.set(offer("a"))
    other.inventories.set(offer("b"))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(one.run)
        nursery.start_soon(other.run)
        await trio.sleep(3600)
        nursery.cancel_scope.cancel()
    late = [at for at, _ in one.sink.tries if at > 600]
    assert len(late) <= 2 * 3000 / (UNDONE.ceiling / 2) + 2
    assert len(one.sink.tries) - len(late) < 150
    assert warnings(logs)


async def test_a_quarrel_does_not_hold_up_the_end(clock: MockClock) -> None:
    bench = Bench()
    bench.sink = Quarrelsome()
    bench.inventories.set(offer("a"))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(bench.run)
        await trio.sleep(600)
        tried, closed = len(bench.sink.tries), trio.current_time()
        bench.inventories.close()
    assert trio.current_time() == closed
    assert len(bench.sink.tries) == tried + 1, "it is left as it has to be"
