"""Calls that overlap, are given up, or meet the cleaning."""

import random
import threading
from pathlib import Path

import pytest
import trio
import trio.testing
from structlog.typing import EventDict

from liken_events.cluster import Unavailable
from liken_events.core.backoff import Backoff
from liken_events.core.model.claims import Refused
from liken_events.sinks import cdi
from tests.fakes.agents import Build
from tests.fakes.keeping import BUS, OTHER, OTHER_NAME, STICK, STICK_NAME, TTY, Keeping, names_of
from tests.fakes.machines import machine
from tests.fakes.waiting import until


@pytest.fixture
async def kept(build: Build, tmp_path: Path) -> Keeping:
    found = Keeping(build(machine([STICK, OTHER])), tmp_path)
    await found.holdings.restore()
    found.look()
    return found


async def test_a_call_that_is_given_up_and_made_again_prepares_once(kept: Keeping) -> None:
    kept.cluster.claims_free = trio.Event()
    claim = kept.claim(STICK_NAME)
    outcomes = []

    async def prepare() -> None:
        outcomes.append(await kept.keeper.prepare(claim))

    async with trio.open_nursery() as nursery:
        with trio.CancelScope() as given_up:
            async with trio.open_nursery() as first:
                first.start_soon(prepare)
                await until(lambda: kept.cluster.claims_read)
                nursery.start_soon(prepare)
                await trio.testing.wait_all_tasks_blocked()
                assert len(kept.cluster.claims_read) == 1, "one at a time"
                given_up.cancel()
        assert kept.left == []
        kept.cluster.claims_free.set()
    assert len(outcomes) == 1
    assert kept.left == names_of([claim])
    assert await kept.keeper.prepare(claim) == outcomes[0]


async def test_a_call_that_is_given_up_while_it_writes_is_over_before_the_next(
    kept: Keeping,
) -> None:
    claim = kept.claim(STICK_NAME)
    gate = kept.looks.gates[STICK.key] = threading.Event()
    released = []
    given_up = trio.CancelScope()

    async def prepare() -> None:
        with given_up:
            await kept.keeper.prepare(claim)

    async def unprepare() -> None:
        released.append(await kept.keeper.unprepare(claim))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(prepare)
        await until(lambda: kept.looks.looked)
        nursery.start_soon(unprepare)
        await trio.testing.wait_all_tasks_blocked()
        given_up.cancel()
        await trio.testing.wait_all_tasks_blocked()
        assert released == [], "its thread still runs"
        gate.set()
    assert released == [None]
    assert kept.left == []
    assert kept.holdings.prepared == {}


async def test_nothing_is_written_after_an_unprepare_that_came_later(kept: Keeping) -> None:
    kept.cluster.claims_free = trio.Event()
    claim = kept.claim(STICK_NAME)
    async with trio.open_nursery() as nursery:
        with trio.CancelScope() as given_up:
            async with trio.open_nursery() as first:
                first.start_soon(kept.keeper.prepare, claim)
                await until(lambda: kept.cluster.claims_read)
                nursery.start_soon(kept.keeper.unprepare, claim)
                given_up.cancel()
    kept.cluster.claims_free.set()
    await trio.testing.wait_all_tasks_blocked()
    assert kept.left == []


async def test_of_calls_that_overlap_the_last_one_counts(kept: Keeping) -> None:
    dice = random.Random(7)
    claim = kept.claim(STICK_NAME)
    order: list[str] = []

    async def call(name: str, pause: int) -> None:
        for _ in range(pause):
            await trio.lowlevel.checkpoint()
        if name == "prepare":
            assert isinstance(await kept.keeper.prepare(claim), tuple)
        else:
            assert await kept.keeper.unprepare(claim) is None
        order.append(name)  # nothing is waited for between the end of a turn and this

    lasts = set()
    for _ in range(200):
        async with trio.open_nursery() as nursery:
            for name in dice.sample(["prepare", "unprepare"], 2):
                nursery.start_soon(call, name, dice.randrange(12))
        lasts.add(order[-1])
        assert kept.left == (names_of([claim]) if order[-1] == "prepare" else [])
        assert (claim.uid in kept.holdings.prepared) == (order[-1] == "prepare")
    assert lasts == {"prepare", "unprepare"}


async def test_claims_do_not_wait_for_each_other(kept: Keeping) -> None:
    slow, quick = kept.claim(STICK_NAME, name="slow"), kept.claim(OTHER_NAME, name="quick")
    free = kept.cluster.claims_free = trio.Event()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(kept.keeper.prepare, slow)
        await until(lambda: kept.cluster.claims_read)
        kept.cluster.claims_free = trio.Event()
        kept.cluster.claims_free.set()
        with trio.fail_after(5):
            assert isinstance(await kept.keeper.prepare(quick), tuple)
            assert await kept.keeper.unprepare(quick) is None
        free.set()
    assert kept.left == names_of([slow])


async def test_cleaning_ends_what_is_no_more_and_nothing_else(
    kept: Keeping, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cdi, "RETRY", Backoff(base=0.001, ceiling=0.001))
    gone, there = await kept.prepared(STICK_NAME), await kept.prepared(OTHER_NAME)
    new = kept.anew()
    await new.holdings.restore()
    new.look()
    kept.cluster.claims["default", gone.name] = Unavailable("connection refused")
    kept.cluster.claims_read.clear()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(new.keeper.clean)
        await until(lambda: len(kept.cluster.claims_read) > 4)
        assert kept.left == names_of([gone, there]), "who does not answer says nothing"
        # The specs follow the machine meanwhile.
        kept.tree.renumber("1-9", 40)
        await new.refresh()
        kept.delete(gone)
    assert kept.left == names_of([there])


async def test_cleaning_ends_a_claim_that_was_made_anew(kept: Keeping) -> None:
    old = await kept.prepared(STICK_NAME, name="c")
    new = kept.claim(STICK_NAME, name="c")
    assert old.uid != new.uid
    await kept.keeper.clean()
    assert kept.left == []


async def test_cleaning_leaves_a_claim_alone_of_which_the_name_is_not_known(
    kept: Keeping,
) -> None:
    claim = await kept.prepared(STICK_NAME)
    kept.delete(claim)
    Path(kept.record_path(claim)).unlink()
    new = kept.anew()
    await new.holdings.restore()
    await new.keeper.clean()
    assert kept.left == names_of([claim])


async def test_cleaning_deletes_nothing_that_was_just_prepared(kept: Keeping) -> None:
    claims = [kept.claim(STICK_NAME), kept.claim(OTHER_NAME)]
    done = trio.Event()

    async def clean() -> None:
        while not done.is_set():
            await kept.keeper.clean()
            await trio.sleep(0.001)  # all the time, and the threads get their turn

    async with trio.open_nursery() as nursery:
        nursery.start_soon(clean)
        for _ in range(60):
            for claim in claims:
                assert isinstance(await kept.keeper.prepare(claim), tuple)
            assert kept.left == names_of(claims)
            for claim in claims:
                assert await kept.keeper.unprepare(claim) is None
            assert kept.left == []
        done.set()


async def test_turns_are_forgotten_when_nobody_waits(kept: Keeping, logs: list[EventDict]) -> None:
    claim = await kept.prepared(STICK_NAME)
    with trio.CancelScope() as scope:
        scope.cancel()
        await kept.keeper.prepare(claim)
    assert kept.nodes_of(claim) == [BUS, TTY]
    assert not isinstance(await kept.keeper.unprepare(claim), Refused)
    assert [line["event"] for line in logs] == ["claim.prepared", "claim.released"]
    assert vars(kept.keeper)["_turns"] == vars(kept.keeper)["_waiting"] == {}
