"""What is left to do when no newer inventory will come."""

import pytest
import trio
from structlog.typing import EventDict
from trio.testing import MockClock

from liken_events.converge import LAST_LOOK_SECONDS, LAST_RACES, RACE
from liken_events.sinks import SinkUnavailable
from tests.test_converge import GONE, RACED, Bench, FakeSink, offer


class Blind(FakeSink):
    """It sees nothing until `sees` is set."""

    def __init__(self) -> None:
        super().__init__()
        self.sees = trio.Event()

    async def observe(self) -> frozenset[str]:
        await self.sees.wait()
        return await super().observe()


@pytest.mark.parametrize("after_seconds", [0, 60])
async def test_the_end_does_not_wait_for_a_side_that_does_not_tell_what_is_there(
    clock: MockClock, logs: list[EventDict], after_seconds: float
) -> None:
    bench = Bench()
    bench.sink = Blind()
    bench.inventories.set(offer("a"))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(bench.run)
        await trio.sleep(after_seconds)
        closed = trio.current_time()
        bench.inventories.close()
    assert trio.current_time() - closed == pytest.approx(LAST_LOOK_SECONDS)
    assert (bench.sink.tries, bench.done) == ([], [])
    assert [line["event"] for line in logs] == ["names.retrying"], "it is said"


async def test_at_the_end_what_is_told_in_time_is_still_carried_out(clock: MockClock) -> None:
    bench = Bench()
    sink = bench.sink = Blind()
    bench.inventories.set(offer("a"))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(bench.run)
        bench.inventories.close()
        await trio.sleep(LAST_LOOK_SECONDS / 2)
        sink.sees.set()
    assert sink.holds == {"a"}


async def test_while_no_end_is_near_a_look_may_take_as_long_as_it_takes(clock: MockClock) -> None:
    bench = Bench()
    sink = bench.sink = Blind()
    bench.inventories.set(offer("a"))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(bench.run)
        await trio.sleep(3600)
        sink.sees.set()
        await trio.lowlevel.checkpoint()
        bench.inventories.close()
    assert sink.holds == {"a"}


async def test_a_race_that_is_lost_at_the_end_is_run_again(clock: MockClock) -> None:
    bench = Bench()
    bench.sink.free = trio.Event()
    bench.sink.faults = [RACED] * 2
    bench.inventories.set(offer("a"))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(bench.run)
        await trio.sleep(1)
        closed = trio.current_time()
        bench.inventories.close()
        bench.sink.free.set()
    assert bench.sink.holds == {"a"}
    assert bench.done == [{"a"}]
    assert trio.current_time() - closed <= RACE.base * 3


async def test_the_end_comes_also_in_the_long_pause_after_many_lost_races(
    clock: MockClock,
) -> None:
    bench = Bench()
    bench.sink.faults = [RACED] * 1000
    bench.inventories.set(offer("a"))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(bench.run)
        await trio.sleep(600)
        bench.sink.faults = [RACED]
        closed = trio.current_time()
        bench.inventories.close()
    assert bench.sink.holds == {"a"}
    assert trio.current_time() - closed <= RACE.base * 3


async def test_races_that_are_lost_at_the_end_have_an_end(clock: MockClock) -> None:
    bench = Bench()
    bench.sink.faults = [RACED] * 100
    bench.inventories.set(offer("a"))
    bench.inventories.close()
    await bench.run()
    assert len(bench.sink.tries) == 1 + LAST_RACES
    assert trio.current_time() <= RACE.base * (2**LAST_RACES - 1) < 2


@pytest.mark.parametrize("fault", [GONE, SinkUnavailable("too many requests", retry_after=1.0)])
async def test_at_the_end_a_side_that_is_away_or_asks_for_patience_is_not_asked_again(
    clock: MockClock, fault: SinkUnavailable
) -> None:
    bench = Bench()
    bench.sink.faults = [RACED, fault]
    bench.inventories.set(offer("a"))
    bench.inventories.close()
    await bench.run()
    assert len(bench.sink.tries) == 2
    assert bench.sink.holds == set()
