import pytest
import trio
from structlog.typing import EventDict
from trio.testing import MockClock

from liken_events.cluster import Conflict, Unavailable
from liken_events.converge import RACE, converge
from liken_events.core.model.device import Inventory
from liken_events.core.plan.slices import CreateSlice, DeleteSlice, PatchSlice
from liken_events.latest import Latest
from liken_events.sinks import SinkUnavailable
from liken_events.sinks.slices import SliceSink, plan_slices
from tests.fakes.slice_sink import (
    GPU,
    NAME,
    NODE,
    OTHER,
    OTHER_NAME,
    STICK,
    STICK_NAME,
    Bench,
    bench,
    of,
)


async def test_the_slice_follows_the_offer_by_what_changed_alone(clock: MockClock) -> None:
    async with bench() as b:
        await b.reach(of(STICK, GPU))
        assert set(b.stored) == {STICK_NAME, "pci-0000-00-02-0"}
        assert await b.reach(of(STICK, GPU)) == 0
        await b.reach(of(STICK, OTHER, GPU))
        await b.reach(of())
        assert b.cluster.slices == {}
        create, patch, delete = b.cluster.writes
        assert isinstance(create, CreateSlice)
        assert isinstance(patch, PatchSlice)
        assert isinstance(delete, DeleteSlice)
        touched = [
            operation["path"] for operation in patch.operations if isinstance(operation, dict)
        ]
        assert touched == ["/metadata/resourceVersion", "/spec/devices/2", "/spec/pool/generation"]


async def test_a_slice_that_is_there_already_is_taken_over_as_it_is(clock: MockClock) -> None:
    async with bench() as b:
        await b.reach(of(STICK))
        b.sink = SliceSink(b.cluster, b.view, NODE)
        assert await b.reach(of(STICK)) == 0
        assert len(b.cluster.writes) == 1


async def test_nothing_is_observed_before_the_slices_were_listed(clock: MockClock) -> None:
    made = Bench()
    with trio.move_on_after(10) as scope:
        await made.sink.observe()
    assert scope.cancelled_caught
    assert made.cluster.writes == []


async def test_an_unreachable_server_is_passed_on_with_what_it_asked_for(clock: MockClock) -> None:
    async with bench() as b:
        b.cluster.faults = [Unavailable("too many requests", retry_after=7.0)]
        with pytest.raises(SinkUnavailable, match="too many requests") as caught:
            await b.reach(of(STICK))
        assert caught.value.retry_after == 7.0
        assert not caught.value.at_once
        await b.reach(of(STICK))
        assert set(b.stored) == {STICK_NAME}


async def test_a_lost_race_leads_to_a_fresh_look_and_the_right_slice(clock: MockClock) -> None:
    async with bench() as b:
        await b.reach(of(STICK))
        stale = await b.sink.observe()
        b.cluster.edit(NAME, devices=[{"name": "somebody-else"}])
        (change,) = plan_slices(stale, of(STICK, OTHER))
        with pytest.raises(SinkUnavailable) as caught:
            await b.sink.apply(change)
        assert caught.value.at_once
        await b.reach(of(STICK, OTHER))
        assert set(b.stored) == {STICK_NAME, OTHER_NAME}


async def test_after_a_lost_race_nothing_is_written_before_the_fresh_look(
    clock: MockClock,
) -> None:
    """Nobody watches for a while: the server refuses to list."""
    made = Bench()
    made.view.replace([])
    inventories: Latest[Inventory] = Latest()
    inventories.set(of(STICK))
    made.cluster.faults = [Conflict("it exists already")]
    async with trio.open_nursery() as nursery:
        nursery.start_soon(converge, made.sink, plan_slices, inventories)
        await trio.sleep(3600)
        assert len(made.cluster.writes) == 1
        made.view.replace([])
        await trio.sleep(RACE.ceiling)
        assert set(made.stored) == {STICK_NAME}
        nursery.cancel_scope.cancel()


async def test_a_slice_that_turns_out_to_exist_is_changed_and_not_made_twice(
    clock: MockClock,
) -> None:
    async with bench() as b:
        await b.reach(of(STICK))
        b.view.drop(NAME)
        with pytest.raises(SinkUnavailable) as caught:
            await b.reach(of(STICK, OTHER))
        assert caught.value.at_once
        await trio.sleep(0.1)
        await b.reach(of(STICK, OTHER))
        assert isinstance(b.cluster.writes[-1], PatchSlice)
        assert set(b.stored) == {STICK_NAME, OTHER_NAME}


async def test_the_generation_only_grows(clock: MockClock) -> None:
    async with bench() as b:
        generations = []
        for wanted in (of(STICK), of(STICK, OTHER), of(), of(STICK)):
            await b.reach(wanted)
            if b.cluster.slices:
                generations.append(b.generation)
        b.cluster.edit(NAME, pool={"name": NODE, "generation": 50, "resourceSliceCount": 1})
        await b.reach(of(STICK, OTHER))
        generations.append(b.generation)
        assert generations == sorted(set(generations))
        assert generations[-1] > 50


async def test_a_generation_is_used_up_even_if_nobody_saw_it(clock: MockClock) -> None:
    async with bench() as b:
        await b.reach(of(STICK))
        await b.reach(of(STICK, OTHER))
        used = b.generation
        b.cluster.delete(NAME)
        await b.reach(of(STICK, OTHER))
        assert b.generation > used


async def test_a_field_that_the_server_drops_is_not_sent_for_ever(
    clock: MockClock, logs: list[EventDict]
) -> None:
    async with bench() as b:
        b.cluster.drops = frozenset({"allowMultipleAllocations"})
        await b.reach(of(GPU))
        for _ in range(5):
            await b.reach(of(GPU))
        assert len(b.cluster.writes) == 1
        await b.reach(of(GPU, STICK))
        assert len(b.cluster.writes) == 2
        assert [line["field"] for line in logs if line["event"] == "slice.field_dropped"] == [
            "allowMultipleAllocations"
        ]


async def test_a_server_that_keeps_the_field_is_sent_it(clock: MockClock) -> None:
    async with bench() as b:
        await b.reach(of(GPU))
        (device,) = b.cluster.slices[NAME]["spec"]["devices"]
        assert device["allowMultipleAllocations"] is True


async def test_a_field_that_somebody_takes_out_is_put_back(clock: MockClock) -> None:
    async with bench() as b:
        await b.reach(of(GPU))
        (device,) = b.cluster.slices[NAME]["spec"]["devices"]
        taken = {name: value for name, value in device.items() if name == "name"}
        b.cluster.edit(NAME, devices=[taken])
        await b.reach(of(GPU))
        (device,) = b.cluster.slices[NAME]["spec"]["devices"]
        assert device["allowMultipleAllocations"] is True
