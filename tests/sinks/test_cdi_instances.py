"""Two keepers side by side, as during an update: the kubelet calls either."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trio
from structlog.typing import EventDict

from liken_events.core.model.claims import ClaimReference, Refused
from liken_events.core.model.prepared import Prepared
from liken_events.sinks import cdi
from liken_events.sinks.spec_files import SpecFiles
from liken_events.sinks.usb_drivers import UsbDrivers
from tests.fakes.devices import tty, usb
from tests.fakes.keeping import (
    BUS,
    NOWHERE,
    OTHER_NAME,
    STICK,
    STICK_NAME,
    TTY,
    Keeping,
    names_of,
)
from tests.fakes.waiting import until

STRANGER = usb("1-7:1.0", "0403:6001", "ff0000", "ftdi_sio", 30, nodes=[tty("ttyUSB9", 9)])


@pytest.fixture
def probed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The interfaces for which a driver was looked for, by either."""
    found: list[str] = []
    monkeypatch.setattr(UsbDrivers, "probe", lambda _, address: found.append(address))
    return found


@asynccontextmanager
async def following(*keepers: Keeping) -> AsyncIterator[None]:
    """Both hear of what happens to specs."""
    async with trio.open_nursery() as nursery:
        for kept in keepers:
            await nursery.start(kept.keeper.follow_files, kept.cdi)
        yield
        nursery.cancel_scope.cancel()


def healthy(kept: Keeping) -> list[str]:
    """The held devices that fare well."""
    known = kept.holdings.health
    return [item.device for item in known.get() if item.is_healthy] if known.number else []


async def test_a_claim_is_prepared_by_one_and_ended_by_the_other(
    both: tuple[Keeping, Keeping], probed: list[str], logs: list[EventDict]
) -> None:
    for first, second in (both, both[::-1]):
        claim = await first.prepared(STICK_NAME)
        first.tree.unbind(STICK.key)
        assert await second.keeper.unprepare(claim) is None
        assert probed == ["1-9:1.0"]
        assert first.left == []
        assert await first.keeper.unprepare(claim) is None, "the kubelet may ask again, and here"
        assert probed == ["1-9:1.0"], "it is given back once"
        probed.clear()
        first.tree.bind(STICK.key, "cp210x", STICK.nodes)
        assert [line["event"] for line in logs].count("claim.released") == 1
        logs.clear()


async def test_either_answers_a_claim_alike(both: tuple[Keeping, Keeping]) -> None:
    old, new = both
    claim = old.claim(STICK_NAME)
    answers = [await kept.keeper.prepare(claim) for kept in (old, new, old)]
    assert isinstance(answers[0], tuple)
    assert answers == [answers[0]] * 3
    assert old.left == names_of([claim])


async def test_a_device_that_the_other_gave_away_is_refused_until_its_claim_is_over(
    both: tuple[Keeping, Keeping],
) -> None:
    old, new = both
    first = await old.prepared(STICK_NAME, name="first")
    second = new.claim(STICK_NAME, name="second")
    assert await new.keeper.prepare(second) == Refused(
        reason=f"{STICK_NAME} is prepared for the claim default/first"
    )
    old.delete(first)
    assert isinstance(await new.keeper.prepare(second), tuple)
    assert old.left == names_of([second])


async def test_hardware_that_the_other_gave_away_too_is_not_given_back(
    both: tuple[Keeping, Keeping], probed: list[str]
) -> None:
    old, new = both
    mine = await old.prepared(STICK_NAME)
    others = await new.prepared(STICK_NAME, adminAccess=True)
    old.tree.unbind(STICK.key)
    await old.keeper.unprepare(mine)
    assert probed == []
    await old.keeper.unprepare(others)
    assert probed == ["1-9:1.0"]


async def test_of_two_claims_that_end_at_once_one_gives_the_hardware_back(
    both: tuple[Keeping, Keeping], probed: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    old, new = both
    claims = [await old.prepared(STICK_NAME), await new.prepared(STICK_NAME, adminAccess=True)]
    old.tree.unbind(STICK.key)
    everybody = trio.Event()
    waiting: list[str] = []

    async def end(kept: Keeping, claim: ClaimReference) -> None:
        real = kept.holdings.end

        async def late(uid: str, seen: Prepared | None) -> Refused | None:
            waiting.append(uid)
            if len(waiting) == 2:
                everybody.set()
            await everybody.wait()
            return await real(uid, seen)

        monkeypatch.setattr(kept.holdings, "end", late)
        assert await kept.keeper.unprepare(claim) is None

    async with trio.open_nursery() as nursery:
        nursery.start_soon(end, old, claims[0])
        nursery.start_soon(end, new, claims[1])
    assert probed == ["1-9:1.0"]
    assert old.left == []


async def test_each_learns_of_what_the_other_does(both: tuple[Keeping, Keeping]) -> None:
    old, new = both
    async with following(old, new):
        claim = await old.prepared(STICK_NAME)
        await until(lambda: healthy(new) == [STICK_NAME])
        second = await new.prepared(OTHER_NAME)
        await until(lambda: healthy(old) == [OTHER_NAME, STICK_NAME])
        for kept in both:
            kept.nodes.announce(TTY[0], "/devices/virtual/x")
            assert TTY[0] in kept.nodes.announced, "it is watched by both"
        await new.keeper.unprepare(claim)
        await until(lambda: healthy(old) == [OTHER_NAME])
        await old.keeper.unprepare(second)
        await until(lambda: healthy(new) == [])
    assert old.left == []


async def test_two_that_call_it_differently_do_not_chase_each_other(
    both: tuple[Keeping, Keeping], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The new one knows already whose a path is now, the old one does not."""
    monkeypatch.setattr(cdi, "OVERRULE_SECONDS", 3600)
    old, new = both
    claim = await old.prepared(STICK_NAME)
    old.tree.unplug("1-9")
    for kept in both:
        await kept.refresh()
    written: list[str] = []
    real = SpecFiles.write_spec

    def write_spec(files: SpecFiles, uid: str, text: str) -> bool:
        is_written = real(files, uid, text)
        written.extend([text] * is_written)
        return is_written

    monkeypatch.setattr(SpecFiles, "write_spec", write_spec)
    async with following(old, new):
        old.tree.plug(STRANGER)
        await new.refresh()
        await until(lambda: len(written) >= 2)
        with trio.move_on_after(0.2):
            await until(lambda: len(written) > 3)
        assert len(written) <= 3, "each overruled the other once at most"
    await old.refresh()
    stranger = f"{NOWHERE}{STICK_NAME}-is-away-and-ttyUSB9-belongs-to-usb-1-7-1-0"
    assert old.nodes_of(claim)[1][0] == stranger


async def test_both_may_clean(both: tuple[Keeping, Keeping], probed: list[str]) -> None:
    old, new = both
    kept, gone = await old.prepared(OTHER_NAME), await old.prepared(STICK_NAME)
    await new.holdings.take_over()
    old.delete(gone)
    old.tree.unbind(STICK.key)
    async with trio.open_nursery() as nursery:
        for keeping in both:
            nursery.start_soon(keeping.keeper.clean)
    assert old.left == names_of([kept])
    assert "1-9:1.0" in probed


async def test_an_end_leaves_what_the_other_prepared_since(
    both: tuple[Keeping, Keeping], monkeypatch: pytest.MonkeyPatch, logs: list[EventDict]
) -> None:
    """Giving hardware back takes a while. Meanwhile the other one is asked to prepare the claim
    for a second pod, and answers that it is."""
    old, new = both
    claim = await old.prepared(STICK_NAME)
    is_giving, may_go_on = trio.Event(), trio.Event()

    async def give_back(*_: object) -> None:
        is_giving.set()
        await may_go_on.wait()

    monkeypatch.setattr(old.keeper._drivers, "give_back", give_back)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(old.keeper.unprepare, claim)
        await is_giving.wait()
        assert isinstance(await new.keeper.prepare(claim), tuple)
        may_go_on.set()
    assert new.nodes_of(claim) == [BUS, TTY]
    rival = await new.keeper.prepare(new.claim(STICK_NAME, name="rival"))
    assert isinstance(rival, Refused), "the device is one pod's"
    assert "claim.released" not in [line["event"] for line in logs]
    assert await old.keeper.unprepare(claim) is None
    assert old.left == []
