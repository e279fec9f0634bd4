from dataclasses import replace
from typing import Any

import pytest
import trio
from structlog.typing import EventDict
from trio.testing import MockClock

from liken_events.cluster import Cause, Rejected
from liken_events.converge import BACKOFF, converge
from liken_events.core.model.device import Inventory
from liken_events.core.plan.slices import DeleteSlice
from liken_events.latest import Latest
from liken_events.sinks.slices import SliceSink, plan_slices
from tests.fakes.cluster import FakeCluster
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
    converging,
    of,
)


async def test_an_attribute_that_is_refused_is_left_out_and_nothing_else(
    clock: MockClock, logs: list[EventDict]
) -> None:
    async with bench() as b:
        cause = Cause(field="spec.devices[1].attributes[serial].string", message="too odd")
        error = await b.refused(of(STICK, OTHER), cause)
        assert error.at_once
        await b.reach(of(STICK, OTHER))
        assert "serial" not in b.stored[OTHER_NAME]
        assert b.stored[STICK_NAME]["serial"] == "Z1"
        assert b.stored[OTHER_NAME].keys() == b.stored[STICK_NAME].keys() - {"serial"}
        assert await b.reach(of(STICK, OTHER)) == 0
        (line,) = [line for line in logs if line["event"] == "slice.refused_device"]
        assert (line["device"], line["attribute"]) == (OTHER_NAME, "serial")
        await b.reach(of(STICK, replace(OTHER, serial="Z3")))
        assert b.stored[OTHER_NAME]["serial"] == "Z3", "another value has another chance"


@pytest.mark.parametrize("quoted", ["serial", "", "other"])
async def test_an_attributes_name_is_found_by_what_the_complaint_quotes(
    clock: MockClock, logs: list[EventDict], quoted: str
) -> None:
    """Names are alike in all devices: a rule that leaves a device out leaves all out."""
    async with bench() as b:
        why = f'Invalid value: "{quoted}": a valid C identifier must start with ...'
        causes = [Cause(field=f"spec.devices[{at}].attributes", message=why) for at in (0, 1)]
        error = await b.refused(of(STICK, OTHER), *causes)
        assert error.at_once
        await b.reach(of(STICK, OTHER))
        named = {line["attribute"] for line in logs if line["event"] == "slice.refused_device"}
        if quoted == "serial":
            assert set(b.stored) == {STICK_NAME, OTHER_NAME}
            assert all("serial" not in each and "driver" in each for each in b.stored.values())
            assert named == {"serial"}
        else:
            assert b.stored == {}
            assert named == {""}


async def test_an_attributes_name_that_is_too_long_is_not_told_and_means_the_device(
    clock: MockClock,
) -> None:
    async with bench() as b:
        why = "Too long: may not be more than 32 bytes"
        await b.refused(of(STICK, OTHER), Cause(field="spec.devices[0].attributes", message=why))
        await b.reach(of(STICK, OTHER))
        assert set(b.stored) == {OTHER_NAME}


async def test_a_device_that_is_refused_is_left_out_until_it_changes(clock: MockClock) -> None:
    async with bench() as b:
        error = await b.refused(of(STICK, OTHER), Cause(field="spec.devices[0]", message="no"))
        assert error.at_once
        await b.reach(of(STICK, OTHER))
        assert set(b.stored) == {OTHER_NAME}
        assert await b.reach(of(STICK, OTHER)) == 0
        await b.reach(of(replace(STICK, driver="other"), OTHER))
        assert set(b.stored) == {STICK_NAME, OTHER_NAME}


async def test_after_the_attribute_the_device_is_left_out(clock: MockClock) -> None:
    async with bench() as b:
        serial = Cause(field="spec.devices[0].attributes[liken.sh/serial]", message="no")
        await b.refused(of(STICK, OTHER), serial)
        await b.refused(of(STICK, OTHER), Cause(field="spec.devices[0].name", message="no"))
        await b.reach(of(STICK, OTHER))
        assert set(b.stored) == {OTHER_NAME}


async def test_a_complaint_about_an_attribute_that_is_not_there_means_the_device(
    clock: MockClock,
) -> None:
    async with bench() as b:
        await b.refused(of(STICK), Cause(field="spec.devices[0].attributes[other]", message="no"))
        assert await b.reach(of(STICK)) == 0
        assert b.stored == {}


@pytest.mark.parametrize(
    "field", ["", "metadata.name", "spec.devices[99]", "spec.devices", "spec.devices[x]"]
)
async def test_a_complaint_that_names_nothing_of_ours_is_no_reason_to_hurry(
    clock: MockClock, field: str
) -> None:
    async with bench() as b:
        error = await b.refused(of(STICK), Cause(field=field, message="policy"))
        assert not error.at_once
        await b.reach(of(STICK))
        assert set(b.stored) == {STICK_NAME}, "nothing was left out"


async def test_a_refused_deletion_teaches_nothing(clock: MockClock) -> None:
    async with bench() as b:
        await b.reach(of(STICK))
        error = await b.refused(of(), Cause(field="spec.devices[0]", message="no"))
        assert not error.at_once
        await b.reach(of(STICK))
        assert set(b.stored) == {STICK_NAME}


async def test_a_patch_that_is_refused_without_a_cause_leads_to_a_fresh_look(
    clock: MockClock,
) -> None:
    """It did not fit: somebody took devices out, and the watch does not tell."""
    async with bench() as b:
        await b.reach(of(STICK, OTHER))
        b.cluster.slices[NAME]["spec"]["devices"] = []
        b.cluster.slices[NAME]["metadata"]["resourceVersion"] = "99"
        error = await b.refused(of(STICK))
        assert not error.at_once, "it may be refused for another reason, again and again"
        assert await b.reach(of(STICK)) == 1
        assert set(b.stored) == {STICK_NAME}


async def test_patches_that_are_always_refused_without_a_cause_make_no_storm_of_lists(
    clock: MockClock,
) -> None:
    async with bench() as b:
        await b.reach(of(STICK))
        b.cluster.faults = [Rejected("invalid") for _ in range(1000)]
        looked, wrote = b.view.latest.number, len(b.cluster.writes)
        async with converging(b, STICK, OTHER):
            await trio.sleep(3600)
        tries = len(b.cluster.writes) - wrote
        assert 60 <= tries <= 3600 / (BACKOFF.ceiling / 2) + 10
        assert b.view.latest.number - looked == tries


@pytest.mark.parametrize("field", ["", "spec.devices[0]"])
async def test_a_refusal_that_says_why_is_no_reason_to_look_again(
    clock: MockClock, field: str
) -> None:
    async with bench() as b:
        await b.reach(of(STICK))
        number = b.view.latest.number
        await b.refused(of(STICK, OTHER), Cause(field=field, message="no"))
        await trio.sleep(1)
        assert b.view.latest.number == number


class Strict(FakeCluster):
    """A server that refuses any slice with a certain text in it, and says where."""

    async def _arrive(self, change: Any) -> None:
        await super()._arrive(change)
        if isinstance(change, DeleteSlice):
            return
        causes = [
            Cause(field=f"spec.devices[{index}].attributes[{name}].string", message="a new rule")
            for index, device in enumerate(change.body["spec"]["devices"])
            for name, value in device.get("attributes", {}).items()
            if "forbidden" in str(value)
        ]
        if causes:
            raise Rejected("invalid", causes[:1])


async def test_a_rule_that_nobody_knew_costs_what_breaks_it_and_no_storm(
    clock: MockClock, logs: list[EventDict]
) -> None:
    odd = [
        replace(device, serial=f"forbidden {number}", model="forbidden word")
        for number, device in enumerate((STICK, OTHER))
    ]
    made = Bench()
    made.cluster = Strict()
    made.sink = SliceSink(made.cluster, made.view, NODE)
    inventories: Latest[Inventory] = Latest()
    inventories.set(of(*odd, GPU))

    async def watch(task_status: trio.TaskStatus[None]) -> None:
        await made.cluster.watch_slices(NODE, made.view, task_status=task_status)

    async with trio.open_nursery() as nursery:
        await nursery.start(watch)
        nursery.start_soon(converge, made.sink, plan_slices, inventories)
        await trio.sleep(3600)
        nursery.cancel_scope.cancel()
    assert set(made.stored) == {STICK_NAME, OTHER_NAME, "pci-0000-00-02-0"}
    assert "forbidden" not in str(made.stored)
    assert made.stored[STICK_NAME]["driver"] == "cp210x"
    assert len(made.cluster.writes) == 5, "one for each of four attributes, and the last"
