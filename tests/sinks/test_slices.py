from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest
import trio
from structlog.typing import EventDict
from trio.testing import MockClock

from liken_events.cluster import Cause, Conflict, Rejected, SliceView, Unavailable
from liken_events.converge import converge
from liken_events.core.model.device import Inventory
from liken_events.core.model.publish import inventory
from liken_events.core.model.snapshot import Device
from liken_events.core.plan.slices import CreateSlice, DeleteSlice, PatchSlice
from liken_events.latest import Latest
from liken_events.sinks import SinkUnavailable
from liken_events.sinks.slices import UID_RETRY_SECONDS, SliceSink, plan_slices
from tests.fakes.agents import devices
from tests.fakes.cluster import FakeCluster
from tests.fakes.devices import drm, pci, tty, usb
from tests.fakes.machines import machine

NODE, NAME = "n1", "n1-liken.sh"
STICK = usb("1-1:1.0", "10c4:ea60", "ff0000", "cp210x", 2, serial="Z1", nodes=[tty("ttyUSB0", 0)])
OTHER = usb("1-2:1.0", "10c4:ea60", "ff0000", "cp210x", 3, serial="Z2", nodes=[tty("ttyUSB1", 1)])
GPU = pci("0000:00:02.0", "8086:3e92", "030000", "i915", nodes=[drm("renderD128", 128)])
STICK_NAME, OTHER_NAME = "usb-1-1-1-0", "usb-1-2-1-0"


def of(*found: Device) -> Inventory:
    return inventory(machine(found))


class Bench:
    """A sink on a cluster in memory."""

    def __init__(self) -> None:
        self.cluster = FakeCluster()
        self.view = SliceView()
        self.sink = SliceSink(self.cluster, self.view, NODE)

    @property
    def stored(self) -> dict[str, dict[str, Any]]:
        """The devices that the cluster holds: name to attributes."""
        return devices(self.cluster.slices[NAME]) if NAME in self.cluster.slices else {}

    @property
    def generation(self) -> int:
        number: int = self.cluster.slices[NAME]["spec"]["pool"]["generation"]
        return number

    async def reach(self, wanted: Inventory) -> int:
        """One turn of the sink; returns how many changes it made."""
        changes = plan_slices(await self.sink.observe(), wanted)
        for change in changes:
            await self.sink.apply(change)
        return len(changes)

    async def refused(self, wanted: Inventory, *causes: Cause) -> SinkUnavailable:
        """One turn that the server refuses."""
        self.cluster.faults.append(Rejected("invalid", causes))
        with pytest.raises(SinkUnavailable) as caught:
            await self.reach(wanted)
        return caught.value


@asynccontextmanager
async def bench() -> AsyncIterator[Bench]:
    made = Bench()
    async with trio.open_nursery() as nursery:

        async def watch(task_status: trio.TaskStatus[None]) -> None:
            await made.cluster.watch_slices(NODE, made.view, task_status=task_status)

        await nursery.start(watch)
        yield made
        nursery.cancel_scope.cancel()


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


async def test_a_conflict_makes_the_view_doubtful_and_asks_for_the_uid_again(
    clock: MockClock,
) -> None:
    async with bench() as b:
        await b.reach(of(STICK))
        assert b.cluster.uid_asked == 1
        b.cluster.faults = [Conflict("it was deleted")]
        del b.cluster.slices[NAME]  # with its Node, and the watch did not tell
        b.cluster.uid = "new-uid"
        with pytest.raises(SinkUnavailable):
            await b.reach(of(STICK, OTHER))
        await trio.sleep(0.1)
        await b.reach(of(STICK, OTHER))
        assert b.cluster.uid_asked == 2
        (owner,) = b.cluster.slices[NAME]["metadata"]["ownerReferences"]
        assert owner["uid"] == "new-uid"


async def test_a_slice_that_is_gone_is_made_with_the_uid_that_the_node_has_now(
    clock: MockClock,
) -> None:
    async with bench() as b:
        await b.reach(of(STICK))
        b.cluster.uid = "new-uid"
        b.view.drop(NAME)  # the garbage collector had it deleted, and the watch told
        del b.cluster.slices[NAME]
        await b.reach(of(STICK))
        assert b.cluster.uid_asked == 2
        (owner,) = b.cluster.slices[NAME]["metadata"]["ownerReferences"]
        assert owner["uid"] == "new-uid"


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


async def test_the_node_owns_its_slice(clock: MockClock) -> None:
    async with bench() as b:
        await b.reach(of(STICK))
        assert b.cluster.slices[NAME]["metadata"]["ownerReferences"] == [
            {"apiVersion": "v1", "kind": "Node", "name": NODE, "uid": "node-uid"}
        ]


async def test_without_the_right_to_read_the_node_the_slice_is_there_and_owned_later(
    clock: MockClock, logs: list[EventDict]
) -> None:
    async with bench() as b:
        b.cluster.uid = Unavailable("forbidden: get nodes")
        await b.reach(of(STICK))
        assert set(b.stored) == {STICK_NAME}
        assert "ownerReferences" not in b.cluster.slices[NAME]["metadata"]
        b.cluster.uid = "node-uid"
        await b.reach(of(STICK, OTHER))
        assert b.cluster.uid_asked == 1
        await trio.sleep(UID_RETRY_SECONDS)
        await b.reach(of(STICK, OTHER))
        assert b.cluster.uid_asked == 2
        (owner,) = b.cluster.slices[NAME]["metadata"]["ownerReferences"]
        assert owner["uid"] == "node-uid"
        assert [line["reason"] for line in logs if line["event"] == "slice.no_owner"] == [
            "forbidden: get nodes"
        ]
