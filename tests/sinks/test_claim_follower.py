"""Claims that come and go as files."""

import errno
import os
from pathlib import Path

import pytest
import trio
import trio.testing
from structlog.typing import EventDict

from liken_events.core.model.claims import ClaimReference
from liken_events.sinks import cdi, claim_follower
from tests.fakes.agents import Build
from tests.fakes.claim_desk import Desk
from tests.fakes.crashes import failing
from tests.fakes.keeping import (
    BUS,
    OTHER,
    OTHER_NAME,
    STICK,
    STICK_NAME,
    TTY,
    Keeping,
    names_of,
)
from tests.fakes.machines import machine
from tests.fakes.waiting import until


@pytest.fixture
async def desk(build: Build, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Desk:
    monkeypatch.setattr(cdi, "READY_SECONDS", 0.0)
    kept = Keeping(build(machine([STICK, OTHER])), tmp_path)
    await kept.holdings.restore()
    found = Desk(kept)
    found.publish()
    return found


async def until_left(desk: Desk, *claims: ClaimReference) -> None:
    await until(lambda: desk.kept.left == names_of(claims))
    await until(lambda: desk.kept.holdings.prepared.keys() == {item.uid for item in claims})


async def test_a_file_that_appears_is_prepared_and_one_that_goes_is_ended(desk: Desk) -> None:
    first, second = desk.kept.claim(STICK_NAME), desk.kept.claim(OTHER_NAME)
    async with desk.running():
        desk.put(first)
        await until_left(desk, first)
        desk.put(second)
        await until_left(desk, first, second)
        assert desk.kept.nodes_of(first) == [BUS, TTY]
        desk.drop(first)
        await until_left(desk, second)


async def test_nothing_is_ended_before_the_files_were_looked_at(desk: Desk) -> None:
    held = await desk.kept.prepared(STICK_NAME)
    async with desk.running():
        desk.publish()
        await trio.testing.wait_all_tasks_blocked()
        await until_left(desk, held)
        desk.tell()
        await until_left(desk)


async def test_a_file_that_holds_another_claim_now_ends_the_old_one(desk: Desk) -> None:
    first = desk.kept.claim(STICK_NAME, name="c")
    async with desk.running():
        desk.put(first)
        await until_left(desk, first)
        second = desk.kept.claim(STICK_NAME, name="c")
        desk.put(second)
        await until_left(desk, second)


async def test_a_broken_file_ends_nothing(desk: Desk, logs: list[EventDict]) -> None:
    held = desk.kept.claim(STICK_NAME)
    async with desk.running():
        desk.put(held)
        await until_left(desk, held)
        for known in (True, False):
            desk.spoil(held, known=known)
            desk.tell()
            await trio.testing.wait_all_tasks_blocked(0.02)
            await until_left(desk, held)
        desk.spoil(held, "is too large")
        await until(lambda: desk.logged(logs, "claim.bad_file") == 2)
        desk.put(held)
        await trio.testing.wait_all_tasks_blocked()
        desk.spoil(held, "is too large")
        await until(lambda: desk.logged(logs, "claim.bad_file") == 3)
        assert desk.logged(logs, "claim.released") == 0


async def test_a_claim_waits_and_is_told_of_once(desk: Desk, logs: list[EventDict]) -> None:
    desk.kept.tree.unplug("1-9")
    desk.publish()
    claim = desk.kept.claim(STICK_NAME)
    async with desk.running():
        desk.put(claim)
        for attempt in range(1, 6):
            await until(lambda n=attempt: len(desk.kept.cluster.claims_read) >= n)  # type: ignore[misc]
            desk.publish()
        assert [line["reason"] for line in logs if line["event"] == "claim.waiting"] == [
            f"{STICK_NAME} is not on this machine now"
        ]
        assert desk.logged(logs, "claim.refused") == 0
        desk.kept.tree.plug(STICK)
        desk.publish()
        await until_left(desk, claim)
        desk.drop(claim)
        await until_left(desk)
        desk.kept.tree.unplug("1-9")
        desk.publish()
        desk.put(desk.kept.claim(STICK_NAME))
        await until(lambda: desk.logged(logs, "claim.waiting") == 2)


async def test_a_claim_gets_what_another_one_gave_back(desk: Desk, logs: list[EventDict]) -> None:
    first, second = desk.kept.claim(STICK_NAME), desk.kept.claim(STICK_NAME)
    async with desk.running():
        desk.put(first)
        await until_left(desk, first)
        desk.put(second)
        await until(lambda: desk.logged(logs, "claim.waiting"))
        desk.drop(first)
        await until_left(desk, second)


async def test_a_claim_that_was_just_refused_is_tried_again_for_what_happened_meanwhile(
    desk: Desk, logs: list[EventDict]
) -> None:
    desk.kept.tree.unplug("1-9")
    desk.publish()
    claim = desk.kept.claim(STICK_NAME)
    free = desk.kept.cluster.claims_free = trio.Event()
    async with desk.running():
        desk.put(claim)
        await until(lambda: desk.kept.cluster.claims_read)

        def fail_once() -> None:
            desk.kept.looks.before = lambda: None
            raise OSError(errno.EIO, os.strerror(errno.EIO))

        # The device arrives, and is published, while the claim's home is still asked; and then
        # this attempt is in vain all the same.
        desk.kept.tree.plug(STICK)
        desk.publish()
        await trio.testing.wait_all_tasks_blocked()
        desk.kept.looks.before = fail_once
        free.set()
        await until(lambda: desk.logged(logs, "claim.waiting"))
        await until_left(desk, claim)


async def test_a_claim_that_waits_is_tried_now_and_then(
    desk: Desk, logs: list[EventDict], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(claim_follower, "RETRY_SECONDS", 0.05)
    claim = desk.kept.claim(STICK_NAME)
    async with desk.running():
        with failing("open", errno.EROFS, below=str(desk.kept.root)):
            desk.put(claim)
            await until(lambda: desk.logged(logs, "claim.waiting"))
            await until(lambda: len(desk.kept.cluster.claims_read) > 3)
        await until_left(desk, claim)
        assert desk.logged(logs, "claim.waiting") == 1


async def test_a_claim_that_cannot_be_ended_is_tried_now_and_then_and_not_all_the_time(
    desk: Desk, logs: list[EventDict], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(claim_follower, "RETRY_SECONDS", 0.1)
    claim = desk.kept.claim(STICK_NAME)
    async with desk.running():
        desk.put(claim)
        await until_left(desk, claim)
        with failing("unlink", errno.EROFS, below=desk.kept.cdi):
            desk.drop(claim)
            await until(lambda: desk.logged(logs, "claim.release_failed"))
            await trio.sleep(0.35)
            assert 2 <= desk.logged(logs, "claim.release_failed") <= 5
        await until_left(desk)


async def test_a_machine_on_which_all_is_prepared_is_left_alone(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(claim_follower, "RETRY_SECONDS", 0.01)
    claim = desk.kept.claim(STICK_NAME)
    async with desk.running():
        desk.put(claim)
        await until_left(desk, claim)
        await trio.sleep(0.05)
        asked = len(desk.kept.cluster.claims_read)
        desk.publish()
        await trio.sleep(0.05)
        assert len(desk.kept.cluster.claims_read) == asked


async def test_claims_do_not_delay_each_other(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cdi, "READY_SECONDS", 30.0)
    desk.kept.unsettled = frozenset({STICK.key})
    slow, quick = desk.kept.claim(STICK_NAME), desk.kept.claim(OTHER_NAME)
    async with desk.running():
        desk.put(slow, quick)
        await until_left(desk, quick)
        desk.drop(quick)
        await until_left(desk)


async def test_a_file_that_went_while_its_claim_was_prepared_ends_it(
    desk: Desk, logs: list[EventDict]
) -> None:
    claim = desk.kept.claim(STICK_NAME)
    body = desk.kept.body(claim)
    free = desk.kept.cluster.claims_free = trio.Event()
    async with desk.running():
        desk.put(claim)
        await until(lambda: desk.kept.cluster.claims_read)
        desk.drop(claim)
        await trio.testing.wait_all_tasks_blocked()
        desk.kept.cluster.claims["default", claim.name] = body  # its home was asked before
        free.set()
        await until(lambda: desk.logged(logs, "claim.prepared"))
        await until_left(desk)


async def test_what_is_prepared_of_files_that_went_while_nobody_looked_is_ended(
    desk: Desk,
) -> None:
    gone, there = await desk.kept.prepared(STICK_NAME), await desk.kept.prepared(OTHER_NAME)
    new = Desk(desk.kept.anew())
    await new.kept.holdings.restore()
    new.publish()
    async with new.running():
        new.put(there)
        await until_left(new, there)
    assert gone.uid not in new.kept.holdings.prepared


async def test_a_claim_that_was_found_without_its_name_gets_it_and_ends_with_its_file(
    desk: Desk,
) -> None:
    named, lost = await desk.kept.prepared(STICK_NAME), await desk.kept.prepared(OTHER_NAME)
    for claim in (named, lost):
        os.unlink(desk.kept.record_path(claim))
    new = Desk(desk.kept.anew())
    await new.kept.holdings.restore()
    assert {item.reference.name for item in new.kept.holdings.prepared.values()} == {""}
    new.publish()
    async with new.running():
        broken = new.kept.claim(STICK_NAME, name="broken")
        new.spoil(broken, known=False)
        new.put(named)
        await until(lambda: new.kept.holdings.prepared[named.uid].reference == named)
        await trio.testing.wait_all_tasks_blocked()
        await until_left(new, named, lost)  # the broken file may be the one
        new.drop(broken)
        await until_left(new, named)
        new.drop(named)
        await until_left(new)


async def test_a_claim_of_other_drivers_is_no_news(desk: Desk, logs: list[EventDict]) -> None:
    claim = desk.kept.claim("gpu-0", driver="gpu.vendor.com")
    async with desk.running():
        desk.put(claim)
        await until(lambda: desk.kept.cluster.claims_read)
        desk.publish()
        await until(lambda: len(desk.kept.cluster.claims_read) > 1)
    assert [line for line in logs if line["event"] != "claims.restored"] == []
