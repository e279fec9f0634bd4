"""What is held when two instances run side by side, as during an update."""

import os
import threading
import time
from collections.abc import Awaitable, Callable
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest
import trio
from structlog.typing import EventDict

from liken_events.core.model.claims import Allocated, Claim, ClaimReference, Refused
from liken_events.core.model.prepared import Prepared
from liken_events.sinks import record_files
from liken_events.sinks.spec_writer import Conflict
from tests.fakes.claims import NODE
from tests.fakes.crashes import Killed, killed_before
from tests.fakes.devices import tty
from tests.fakes.keeping import BUS, STICK, STICK_NAME, TTY, Keeping
from tests.fakes.spec_places import identity
from tests.fakes.waiting import until

UID, SECOND = "3f1c2a9e-7d5b-4f0a-9c1e-2b8d6a4e0f13", "0c2d6a4e-7d5b-4f0a-9c1e-2b8d6a4e0f13"
MOVED = [("/dev/bus/usb/001/040", "c", 189, 39), ("/dev/ttyUSB4", "c", 188, 4)]


def claim(*devices: str, uid: str = UID) -> Claim:
    return Claim(
        reference=ClaimReference(namespace="default", name="c", uid=uid),
        allocated=tuple(Allocated(request="r0", pool=NODE, device=name) for name in devices),
    )


async def held(kept: Keeping, *devices: str, uid: str = UID) -> Prepared:
    outcome = await kept.holdings.hold(claim(*devices, uid=uid), NODE)
    assert isinstance(outcome, Prepared), outcome
    return outcome


def nodes(kept: Keeping) -> list[tuple[object, ...]]:
    return kept.specs.nodes(UID, STICK_NAME)


def health(kept: Keeping) -> list[tuple[str, bool]]:
    return [(item.device, item.is_healthy) for item in kept.holdings.health.get()]


async def test_what_one_prepared_the_other_ends(both: tuple[Keeping, Keeping]) -> None:
    old, new = both
    await held(old, STICK_NAME)
    assert await new.holdings.end(UID) is None
    assert old.left == []
    assert await old.refresh()
    assert old.holdings.prepared == {}
    assert old.left == []
    assert health(old) == []


async def test_a_device_that_one_gave_away_the_other_does_not_give(
    both: tuple[Keeping, Keeping],
) -> None:
    old, new = both
    first = await held(old, STICK_NAME)
    refused = Conflict(device=STICK_NAME, other=first.reference)
    assert await new.holdings.hold(claim(STICK_NAME, uid=SECOND), NODE) == refused
    await new.holdings.end(UID)
    await held(old, STICK_NAME, uid=SECOND)


async def test_of_two_that_give_a_device_away_at_once_one_does(
    both: tuple[Keeping, Keeping],
) -> None:
    old, new = both
    outcomes = []

    async def hold(kept: Keeping, uid: str) -> None:
        outcomes.append(type(await kept.holdings.hold(claim(STICK_NAME, uid=uid), NODE)))

    for _ in range(20):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(hold, old, UID)
            nursery.start_soon(hold, new, SECOND)
        assert set(outcomes) == {Prepared, Conflict}
        outcomes.clear()
        for uid in (UID, SECOND):
            await old.holdings.end(uid)


async def test_how_a_device_fares_is_told_by_both(both: tuple[Keeping, Keeping]) -> None:
    old, new = both
    await held(old, STICK_NAME)
    await new.refresh()
    assert health(new) == [(STICK_NAME, True)]
    old.tree.renumber("1-9", 40)
    for kept in both:
        await kept.refresh()
        assert health(kept) == [(STICK_NAME, False)]
    await held(old, STICK_NAME)
    await new.refresh()
    assert health(new) == [(STICK_NAME, True)], "the new pod has the new node"


async def test_the_second_finds_written_what_it_would_write(
    both: tuple[Keeping, Keeping],
) -> None:
    old, new = both
    await held(old, STICK_NAME)
    changes: list[Callable[[], object]] = [
        lambda: old.tree.unplug("1-9"),
        lambda: old.tree.plug(STICK),
        lambda: old.tree.renumber("1-9", 40, {STICK.key: [tty("ttyUSB4", 4)]}),
        lambda: old.tree.unbind(STICK.key),
    ]
    for change in changes:
        change()
        files = [Path(old.specs.path(UID)), Path(old.files.records.path(UID))]
        assert await new.refresh()
        written = [identity(path) for path in files]
        assert await old.refresh()
        assert await new.refresh()
        assert [identity(path) for path in files] == written


async def test_what_one_found_settled_the_other_does_not_take_back(
    both: tuple[Keeping, Keeping],
) -> None:
    """The other one hears of a device a bit later, and until then would say that it is away."""
    old, new = both
    await held(old, STICK_NAME)
    old.tree.unplug("1-9")
    for kept in both:
        await kept.refresh()
    before = old.inventories.get()
    old.tree.plug(STICK)
    await new.refresh()
    assert nodes(new) == [BUS, TTY]
    for _ in range(2):
        assert not await old.holdings.refresh(before), "it does not know yet"
        assert nodes(old) == [BUS, TTY]
        assert old.holdings.are_usable(UID)
    assert await old.refresh()


async def test_what_one_has_written_itself_it_does_take_back(
    both: tuple[Keeping, Keeping],
) -> None:
    old, new = both
    old.tree.unplug("1-9")
    for kept in both:
        kept.look()
    old.tree.plug(STICK)
    await held(old, STICK_NAME)
    for kept in (old, new):
        assert not await kept.holdings.refresh(kept.inventories.get())
        assert nodes(old) == [(BUS[0],), (TTY[0],)], "nobody knows whether that is all of it"


WORK: dict[str, Callable[[Keeping], Awaitable[object]]] = {
    "hold": lambda kept: kept.holdings.hold(claim(STICK_NAME), NODE),
    "end": lambda kept: kept.holdings.end(UID),
    "refresh": lambda kept: kept.refresh(),
}


def bus_node(kept: Keeping) -> str:
    """The stick's own, now."""
    [stick] = [device for device in kept.tree.snapshot.devices if device.key == STICK.key]
    assert stick.bus_node is not None
    return stick.bus_node.path


@pytest.mark.parametrize("work", WORK)
async def test_when_one_is_killed_in_the_middle_the_other_goes_on(
    both: tuple[Keeping, Keeping], work: str
) -> None:
    old, new = both
    for step in range(1, 100):
        if work != "hold":
            await held(old, STICK_NAME)
            old.tree.renumber("1-9", 40 + step)
        with killed_before(step) as steps, suppress(Killed):
            await WORK[work](old)
        await new.refresh()
        second = await new.holdings.hold(claim(STICK_NAME, uid=SECOND), NODE)
        assert isinstance(second, Conflict) == (UID in new.holdings.prepared)
        if UID in new.holdings.prepared:
            [device] = new.holdings.prepared[UID].devices
            assert [node[0] for node in nodes(new)] == [node.path for node in device.nodes]
            assert nodes(new)[0][0] == bus_node(new)
        else:
            assert nodes(new) == []
        for uid in (UID, SECOND):
            assert await new.holdings.end(uid) is None
        old = old.anew()
        await old.holdings.restore()
        assert old.left == []
        if steps.taken < step:
            break
    assert step > 2, "there were several steps"


async def test_one_that_hangs_is_waited_for_with_a_bound(
    both: tuple[Keeping, Keeping], monkeypatch: pytest.MonkeyPatch, logs: list[EventDict]
) -> None:
    old, new = both
    await held(old, STICK_NAME)
    assert await new.refresh()
    monkeypatch.setattr(record_files, "LOCK_SECONDS", 0.05)
    gate = old.looks.gates[STICK.key] = threading.Event()
    late = f"{old.records} could not be %s: another instance has had it for 0.05 s"
    async with trio.open_nursery() as nursery:
        old.tree.unplug("1-9")
        nursery.start_soon(old.refresh)
        await until(lambda: STICK.key in old.looks.looked[1:])
        assert await new.holdings.hold(claim(STICK_NAME), NODE) == Refused(reason=late % "written")
        assert await new.holdings.end(UID) == Refused(reason=late % "removed")
        assert not await new.refresh()
        gate.set()
    assert [line["event"] for line in logs].count("claims.unreadable") == 1
    assert await new.refresh()
    assert await new.holdings.end(UID) is None


async def test_who_gave_up_while_the_other_wrote_writes_nothing_any_more(
    both: tuple[Keeping, Keeping], monkeypatch: pytest.MonkeyPatch
) -> None:
    old, new = both
    await held(new, STICK_NAME)
    waits, real = threading.Event(), time.sleep

    def sleep(seconds: float) -> None:
        waits.set()
        real(seconds)

    monkeypatch.setattr(time, "sleep", sleep)
    with ExitStack() as writing:
        writing.enter_context(new.files.records.alone())
        async with trio.open_nursery() as nursery:
            nursery.start_soon(old.holdings.hold, claim(STICK_NAME), NODE)
            await until(waits.is_set)
            nursery.cancel_scope.cancel()
            new.files.remove(UID)
            writing.close()
    assert old.left == []
    assert old.holdings.prepared == {}


async def test_a_record_that_the_other_wrote_and_that_cannot_be_read_is_told_and_left(
    both: tuple[Keeping, Keeping], logs: list[EventDict]
) -> None:
    old, new = both
    os.makedirs(old.records)
    path = Path(old.files.records.path(UID))
    path.write_text("{}")
    for _ in range(2):
        await new.refresh()
    assert [line["path"] for line in logs if line["event"] == "claims.broken_file"] == [str(path)]
    assert path.read_text() == "{}"
