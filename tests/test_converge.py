from collections.abc import Sequence
from itertools import pairwise

import pytest
import trio
from structlog.typing import EventDict
from trio.testing import MockClock

from liken_events.converge import BACKOFF, RACE, converge
from liken_events.core.backoff import SOON
from liken_events.core.model.device import Inventory, PublishedDevice
from liken_events.core.model.snapshot import Key
from liken_events.latest import Latest
from liken_events.sinks import SinkUnavailable
from liken_events.supervise import keep_running

GONE = SinkUnavailable("connection refused")
BUSY = SinkUnavailable("too many requests", retry_after=1.0)
RACED = SinkUnavailable("it was changed by somebody else", at_once=True)


def offer(*names: str) -> Inventory:
    return Inventory(
        offered=tuple(
            PublishedDevice(name=name, key=Key(bus="usb", address=name), nodes=())
            for name in names
        )
    )


class FakeSink:
    """Holds names. Fails as told, one try after the other.

    Attributes:
        holds: what is there.
        tries: when it was asked to change something, and to what.
        faults: what the next tries end with.
        free: changes wait until it is set.
    """

    name = "names"

    def __init__(self) -> None:
        self.holds: frozenset[str] = frozenset()
        self.tries: list[tuple[float, frozenset[str]]] = []
        self.faults: list[Exception] = []
        self.observe_faults: list[Exception] = []
        self.free = trio.Event()
        self.free.set()
        self._changes: Latest[None] = Latest()

    @property
    def number(self) -> int:
        return self._changes.number

    async def wait_changed(self, number: int) -> None:
        await self._changes.wait_newer(number)

    def change_from_outside(self, *names: str) -> None:
        self.holds = frozenset(names)
        self._changes.set(None)

    async def observe(self) -> frozenset[str]:
        await trio.lowlevel.checkpoint()
        if self.observe_faults:
            raise self.observe_faults.pop(0)
        return self.holds

    async def apply(self, change: frozenset[str]) -> None:
        self.tries.append((trio.current_time(), change))
        await self.free.wait()
        if self.faults:
            raise self.faults.pop(0)
        self.change_from_outside(*change)


def plan(observed: frozenset[str], inventory: Inventory) -> Sequence[frozenset[str]]:
    wanted = frozenset(inventory.by_name())
    return () if observed == wanted else (wanted,)


class Bench:
    """A sink that follows inventories."""

    def __init__(self) -> None:
        self.sink = FakeSink()
        self.inventories: Latest[Inventory] = Latest()
        self.done: list[set[str]] = []

    async def run(self) -> bool:
        await converge(
            self.sink,
            plan,
            self.inventories,
            on_done=lambda inventory: self.done.append(set(inventory.by_name())),
        )
        return False


async def test_the_sink_follows_every_inventory_and_writes_nothing_twice(clock: MockClock) -> None:
    bench = Bench()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(bench.run)
        for names in (["a"], ["a", "b"], ["b"], ["b"]):
            bench.inventories.set(offer(*names))
            await trio.sleep(1)
            assert bench.sink.holds == set(names)
        nursery.cancel_scope.cancel()
    assert len(bench.sink.tries) == 3
    assert bench.done[-1] == {"b"}


async def test_what_somebody_else_changes_is_put_right_at_once(clock: MockClock) -> None:
    bench = Bench()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(bench.run)
        bench.inventories.set(offer("a"))
        await trio.sleep(1)
        for _ in range(3):
            changed = trio.current_time()
            bench.sink.change_from_outside("x")
            await trio.sleep(1)
            assert bench.sink.holds == {"a"}
            assert bench.sink.tries[-1][0] == changed
        nursery.cancel_scope.cancel()


async def test_a_side_that_is_away_is_asked_less_and_less_often(
    clock: MockClock, logs: list[EventDict]
) -> None:
    bench = Bench()
    bench.sink.faults = [GONE] * 30
    bench.inventories.set(offer("a"))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(bench.run)
        await trio.sleep(3600)
        nursery.cancel_scope.cancel()
    times = [at for at, _ in bench.sink.tries]
    pauses = [later - at for at, later in pairwise(times)]
    assert all(BACKOFF.base / 2 * 2**count <= pause for count, pause in enumerate(pauses[:7]))
    assert all(BACKOFF.ceiling / 2 <= pause <= BACKOFF.ceiling for pause in pauses[8:])
    assert bench.sink.holds == {"a"}
    assert [line["failures"] for line in logs if line["event"] == "names.recovered"] == [30]


async def test_a_side_that_says_when_to_come_back_is_left_alone_until_then(
    clock: MockClock,
) -> None:
    bench = Bench()
    bench.sink.faults = [SinkUnavailable("too many requests", retry_after=70.0)]
    bench.inventories.set(offer("a"))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(bench.run)
        await trio.sleep(200)
        nursery.cancel_scope.cancel()
    (first, _), (second, _) = bench.sink.tries
    assert 70 <= second - first <= 70 + SOON.base


async def test_a_side_that_is_back_and_asks_for_patience_does_not_wait_as_one_that_is_away(
    clock: MockClock,
) -> None:
    bench = Bench()
    bench.sink.faults = [*[GONE] * 9, *[BUSY] * 9, RACED, *[GONE] * 2]
    bench.inventories.set(offer("a"))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(bench.run)
        await trio.sleep(3600)
        nursery.cancel_scope.cancel()
    times = [at for at, _ in bench.sink.tries]
    pauses = [later - at for at, later in pairwise(times)]
    assert BACKOFF.ceiling / 2 <= pauses[8] <= BACKOFF.ceiling
    assert 1.0 <= pauses[9] <= SOON.base
    assert all(SOON.ceiling / 2 <= pause <= SOON.ceiling for pause in pauses[12:18])
    assert pauses[18] <= RACE.base, "its first"
    assert pauses[19] >= BACKOFF.ceiling / 2, "it is away again, and its outages add up"
    assert bench.sink.holds == {"a"}


async def test_a_side_that_no_longer_asks_for_patience_is_not_asked_sooner(
    clock: MockClock,
) -> None:
    bench = Bench()
    bench.sink.faults = [*[BUSY] * 9, GONE]
    bench.inventories.set(offer("a"))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(bench.run)
        await trio.sleep(3600)
        nursery.cancel_scope.cancel()
    times = [at for at, _ in bench.sink.tries]
    assert times[10] - times[9] >= BACKOFF.ceiling / 2


async def test_after_an_outage_only_the_newest_state_is_sent(clock: MockClock) -> None:
    bench = Bench()
    bench.sink.faults = [GONE] * 3
    async with trio.open_nursery() as nursery:
        nursery.start_soon(bench.run)
        for number in range(1000):
            bench.inventories.set(offer(f"device-{number}"))
            await trio.sleep(0.01)
        nursery.cancel_scope.cancel()
    assert bench.sink.holds == {"device-999"}
    outage = [change for at, change in bench.sink.tries if at < 0.5]
    assert len(outage) <= 3


async def test_a_sink_that_hangs_is_followed_by_the_newest_state_alone(clock: MockClock) -> None:
    bench = Bench()
    bench.sink.free = trio.Event()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(bench.run)
        for number in range(100):
            bench.inventories.set(offer(f"device-{number}"))
            await trio.sleep(0.6)
        assert len(bench.sink.tries) == 1
        bench.sink.free.set()
        await trio.sleep(1)
        nursery.cancel_scope.cancel()
    assert [set(change) for _, change in bench.sink.tries] == [{"device-0"}, {"device-99"}]


async def test_a_lost_race_is_run_again_soon_but_two_writers_do_not_chase_each_other(
    clock: MockClock,
) -> None:
    bench = Bench()
    bench.sink.faults = [RACED] * 100
    bench.inventories.set(offer("a"))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(bench.run)
        await trio.sleep(100)
        nursery.cancel_scope.cancel()
    times = [at for at, _ in bench.sink.tries]
    assert times[1] - times[0] <= RACE.base
    assert len(times) < 100 / (RACE.ceiling / 2) + 10


async def test_a_failed_look_counts_as_a_failed_write(clock: MockClock) -> None:
    bench = Bench()
    bench.sink.observe_faults = [GONE, GONE]
    bench.inventories.set(offer("a"))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(bench.run)
        await trio.sleep(10)
        nursery.cancel_scope.cancel()
    assert bench.sink.holds == {"a"}
    assert len(bench.sink.tries) == 1


async def test_at_the_end_the_last_inventory_is_still_carried_out(clock: MockClock) -> None:
    bench = Bench()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(bench.run)
        bench.inventories.set(offer("a"))
        await trio.sleep(1)
        bench.inventories.set(offer("b"))
        bench.inventories.close()
    assert bench.sink.holds == {"b"}
    assert trio.current_time() < 2


async def test_at_the_end_what_came_during_a_slow_change_is_carried_out_too(
    clock: MockClock,
) -> None:
    bench = Bench()
    bench.sink.free = trio.Event()
    bench.inventories.set(offer("a"))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(bench.run)
        await trio.sleep(1)
        bench.inventories.set(offer("b"))
        bench.inventories.close()
        bench.sink.free.set()
    assert bench.sink.holds == {"b"}


async def test_the_end_does_not_wait_for_a_side_that_is_away(clock: MockClock) -> None:
    bench = Bench()
    bench.sink.faults = [GONE] * 10
    bench.inventories.set(offer("a"))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(bench.run)
        await trio.sleep(60)
        closed = trio.current_time()
        bench.inventories.close()
    assert trio.current_time() == closed


async def test_an_end_before_the_first_inventory_is_an_end(clock: MockClock) -> None:
    bench = Bench()
    bench.inventories.close()
    with trio.fail_after(1):
        await bench.run()
    assert bench.sink.tries == []


@pytest.mark.parametrize("fault", [KeyError("spec"), ExceptionGroup("several", [OSError("x")])])
async def test_a_bug_in_one_sink_is_logged_and_harms_no_other(
    clock: MockClock, logs: list[EventDict], fault: Exception
) -> None:
    broken, sound = Bench(), Bench()
    broken.sink.faults = [fault, fault]
    broken.inventories = sound.inventories
    sound.inventories.set(offer("a"))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(keep_running, "broken", broken.run)
        nursery.start_soon(keep_running, "sound", sound.run)
        await trio.sleep(0.1)
        assert sound.sink.holds == {"a"}
        assert broken.sink.holds == set()
        sound.inventories.set(offer("b"))
        await trio.sleep(10)
        nursery.cancel_scope.cancel()
    assert sound.sink.holds == broken.sink.holds == {"b"}
    assert [line["part"] for line in logs if line["event"] == "part.failed"] == ["broken"] * 2
