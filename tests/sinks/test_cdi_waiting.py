"""Devices that are just coming, or just gone: whether a call waits for them, and how long."""

from pathlib import Path

import pytest
import trio
import trio.testing

from liken_events.core.model.claims import ClaimReference, Refused
from liken_events.sinks import cdi
from tests.fakes.agents import Build
from tests.fakes.devices import tty, usb
from tests.fakes.keeping import BUS, OTHER, STICK, STICK_NAME, TTY, Keeping, names_of
from tests.fakes.machines import machine
from tests.fakes.waiting import until

LONG, SHORT = 30.0, 0.2
"""Times to wait for a device: one that a test must not wait out, and one that it has to."""


@pytest.fixture
async def kept(build: Build, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Keeping:
    monkeypatch.setattr(cdi, "READY_SECONDS", LONG)
    monkeypatch.setattr(cdi, "LOOK_AGAIN_SECONDS", 0.01)
    found = Keeping(build(machine([OTHER])), tmp_path)
    await found.holdings.restore()
    found.look()
    return found


class Call:
    """A call that is waited for from time to time."""

    def __init__(self, kept: Keeping, claim: ClaimReference) -> None:
        self.kept, self.claim, self.seconds = kept, claim, 0.0
        self.outcomes: list[object] = []

    @property
    def outcome(self) -> object:
        """What was answered; None before."""
        return self.outcomes[0] if self.outcomes else None

    async def run(self) -> None:
        began = trio.current_time()
        answer = await self.kept.keeper.prepare(self.claim)
        self.seconds = trio.current_time() - began
        self.outcomes.append(answer)


async def called(kept: Keeping) -> Call:
    """A call that was answered; it must not take long."""
    call = Call(kept, kept.claim(STICK_NAME))
    with trio.fail_after(LONG / 2):
        await call.run()
    return call


async def test_a_device_that_was_never_there_is_refused_at_once(kept: Keeping) -> None:
    call = await called(kept)
    assert call.outcome == Refused(reason=f"{STICK_NAME} is not on this machine now")
    assert kept.looks.looked == []


async def test_a_device_that_left_long_ago_is_refused_at_once(kept: Keeping) -> None:
    kept.look((STICK.key, trio.current_time() - LONG - 1))
    assert isinstance((await called(kept)).outcome, Refused)


async def test_a_device_that_settles_is_waited_for_and_not_looked_at(kept: Keeping) -> None:
    kept.unsettled = frozenset({STICK.key})
    call = Call(kept, kept.claim(STICK_NAME))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(call.run)
        await until(lambda: kept.cluster.claims_read)
        kept.tree.plug(STICK)
        await trio.sleep(0.05)
        assert not call.outcomes
        assert kept.looks.looked == []
        kept.unsettled = frozenset()
        kept.look()
    assert isinstance(call.outcome, tuple)
    assert kept.nodes_of(call.claim) == [BUS, TTY]


async def test_a_device_that_nobody_has_told_of_yet_is_waited_for(kept: Keeping) -> None:
    kept.look((STICK.key, trio.current_time()))
    call = Call(kept, kept.claim(STICK_NAME))
    kept.tree.plug(STICK)  # its files are there, and its events on their way
    async with trio.open_nursery() as nursery:
        nursery.start_soon(call.run)
        await until(lambda: kept.nodes_of(call.claim) == [(path,) for path, *_ in (BUS, TTY)])
        await trio.sleep(0.05)
        assert not call.outcomes
        kept.look()
    assert isinstance(call.outcome, tuple)
    assert call.seconds < LONG / 2
    assert kept.nodes_of(call.claim) == [BUS, TTY]


async def test_a_device_that_nobody_ever_tells_of_is_not_waited_for_longer_than_that(
    kept: Keeping, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cdi, "READY_SECONDS", SHORT)
    kept.look()
    kept.tree.plug(STICK)
    call = await called(kept)
    assert isinstance(call.outcome, tuple)
    assert call.seconds >= SHORT


async def test_a_device_that_settles_as_it_was_is_not_waited_for_any_longer(
    kept: Keeping,
) -> None:
    kept.tree.plug(STICK)
    kept.look()
    kept.unsettled = frozenset({STICK.key})
    call = Call(kept, kept.claim(STICK_NAME))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(call.run)
        await until(lambda: kept.cluster.claims_read)
        kept.unsettled = frozenset()  # and nobody tells
    assert isinstance(call.outcome, tuple)
    assert call.seconds < LONG / 2


async def test_a_device_that_just_left_is_waited_for(kept: Keeping) -> None:
    kept.look((STICK.key, trio.current_time()))
    call = Call(kept, kept.claim(STICK_NAME))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(call.run)
        await until(lambda: kept.cluster.claims_read)
        kept.tree.plug(STICK)
        kept.look((STICK.key, trio.current_time()))
    assert isinstance(call.outcome, tuple)
    assert call.seconds < LONG / 2


async def test_a_device_that_loads_its_firmware_is_waited_for(kept: Keeping) -> None:
    """It is there, and no driver has it yet."""
    raw = usb("1-9:1.0", "10c4:ea60", "ff0000", None, 12, serial="Z1")
    kept.tree.plug(raw)
    kept.look((STICK.key, trio.current_time()))
    call = Call(kept, kept.claim(STICK_NAME))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(call.run)
        await until(lambda: kept.looks.looked)
        kept.tree.bind(STICK.key, "cp210x", STICK.nodes)
        kept.look((STICK.key, trio.current_time()))
    assert isinstance(call.outcome, tuple)


@pytest.mark.parametrize("is_unsettled", [True, False])
async def test_a_device_that_does_not_come_back_is_refused_in_the_end(
    kept: Keeping, monkeypatch: pytest.MonkeyPatch, is_unsettled: bool
) -> None:
    monkeypatch.setattr(cdi, "READY_SECONDS", SHORT)
    if is_unsettled:
        kept.unsettled = frozenset({STICK.key})
    else:
        kept.look((STICK.key, trio.current_time() + LONG))  # it is heard of again and again
    call = await called(kept)
    assert call.outcome == Refused(reason=f"{STICK_NAME} is not on this machine now")
    assert SHORT <= call.seconds < LONG / 2
    assert kept.left == []


async def test_a_device_that_never_settles_is_taken_as_it_is_in_the_end(
    kept: Keeping, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cdi, "READY_SECONDS", SHORT)
    kept.tree.plug(STICK)
    kept.unsettled = frozenset({STICK.key})
    call = await called(kept)
    assert isinstance(call.outcome, tuple)
    assert call.seconds >= SHORT


async def test_other_devices_are_not_waited_for(kept: Keeping) -> None:
    kept.tree.plug(STICK)
    kept.unsettled = frozenset({OTHER.key})
    kept.look((OTHER.key, trio.current_time()))
    assert isinstance((await called(kept)).outcome, tuple)


async def test_an_error_of_ours_is_not_waited_out(kept: Keeping) -> None:
    kept.tree.plug(STICK)
    Path(kept.cdi).write_text("in the way")
    call = await called(kept)
    assert isinstance(call.outcome, Refused)
    assert "could not be written" in call.outcome.reason


async def test_a_wait_that_is_given_up_writes_nothing(kept: Keeping) -> None:
    for prepare in ("unsettled", "returning"):
        kept.unsettled = frozenset({STICK.key}) if prepare == "unsettled" else frozenset()
        kept.look((STICK.key, trio.current_time()))
        claim = kept.claim(STICK_NAME)
        kept.cluster.claims_read.clear()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(kept.keeper.prepare, claim)
            await until(lambda: kept.cluster.claims_read)
            nursery.cancel_scope.cancel()
        kept.tree.plug(STICK)
        kept.unsettled = frozenset()
        kept.look()
        await trio.testing.wait_all_tasks_blocked()
        assert kept.left == []
        kept.tree.unplug("1-9")


async def test_other_claims_go_on_while_one_waits(kept: Keeping) -> None:
    kept.unsettled = frozenset({STICK.key})
    call = Call(kept, kept.claim(STICK_NAME))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(call.run)
        await until(lambda: kept.cluster.claims_read)
        with trio.fail_after(LONG / 2):
            held = await kept.prepared("usb-1-8-1-0")
        assert not call.outcomes
        nursery.cancel_scope.cancel()
    assert kept.left == names_of([held])


async def test_a_device_that_comes_with_another_node_is_given_with_that(kept: Keeping) -> None:
    kept.look((STICK.key, trio.current_time()))
    call = Call(kept, kept.claim(STICK_NAME))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(call.run)
        await until(lambda: kept.cluster.claims_read)
        kept.tree.plug(
            usb("1-9:1.0", "10c4:ea60", "ff0000", "cp210x", 77, nodes=[tty("ttyUSB3", 3)])
        )
        kept.look((STICK.key, trio.current_time()))
    assert kept.nodes_of(call.claim) == [
        ("/dev/bus/usb/001/077", "c", 189, 76), ("/dev/ttyUSB3", "c", 188, 3),
    ]  # fmt: skip
