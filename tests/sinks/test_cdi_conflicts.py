"""Two claims that want one device."""

import errno
import os
from pathlib import Path

import pytest

from liken_events.cluster import Unavailable
from liken_events.core.model.claims import Refused
from tests.fakes.agents import Build
from tests.fakes.crashes import failing
from tests.fakes.keeping import STICK, STICK_NAME, Keeping, names_of
from tests.fakes.machines import machine


@pytest.fixture
async def kept(build: Build, tmp_path: Path) -> Keeping:
    found = Keeping(build(machine([STICK])), tmp_path)
    await found.holdings.restore()
    found.look()
    return found


def reason_of(outcome: object) -> str:
    assert isinstance(outcome, Refused), outcome
    return outcome.reason


async def test_a_second_claim_is_refused_by_the_name_of_the_first(kept: Keeping) -> None:
    first = await kept.prepared(STICK_NAME, name="first")
    second = kept.claim(STICK_NAME, name="second")
    refused = f"{STICK_NAME} is prepared for the claim default/first"
    assert reason_of(await kept.keeper.prepare(second)) == refused
    kept.cluster.claims["default", "first"] = Unavailable("connection refused")
    assert reason_of(await kept.keeper.prepare(second)) == refused
    assert kept.left == names_of([first])
    await kept.keeper.unprepare(first)
    assert isinstance(await kept.keeper.prepare(second), tuple)


async def test_a_claim_that_is_no_more_gives_way(kept: Keeping) -> None:
    first = await kept.prepared(STICK_NAME)
    kept.delete(first)
    kept.tree.unbind(STICK.key)
    kept.tree.bind(STICK.key, "cp210x", STICK.nodes)
    second = await kept.prepared(STICK_NAME)
    assert kept.left == names_of([second])


async def test_a_claim_that_gives_way_and_cannot_be_removed_keeps_the_device(
    kept: Keeping,
) -> None:
    first = await kept.prepared(STICK_NAME)
    kept.delete(first)
    second = kept.claim(STICK_NAME)
    with failing("unlink", errno.EROFS, below=kept.cdi):
        assert "is prepared for the claim" in reason_of(await kept.keeper.prepare(second))
    assert kept.left == names_of([first])


async def test_a_claim_without_a_name_is_told_by_its_uid(kept: Keeping) -> None:
    first = await kept.prepared(STICK_NAME)
    os.unlink(kept.record_path(first))
    new = kept.anew()
    await new.holdings.restore()
    second = kept.claim(STICK_NAME)
    assert reason_of(await new.keeper.prepare(second)) == (
        f"{STICK_NAME} is prepared for the claim with the uid {first.uid}"
    )
    assert isinstance(await new.keeper.prepare(first), tuple)
    assert new.holdings.prepared[first.uid].reference == first, "its name is known again"


async def test_two_claims_of_one_device_for_administrators_do_not_conflict(
    kept: Keeping,
) -> None:
    claims = [
        await kept.prepared(STICK_NAME, adminAccess=True),
        await kept.prepared(STICK_NAME),
        await kept.prepared(STICK_NAME, adminAccess=True),
    ]
    assert kept.left == names_of(claims)
