"""Specs that follow inventories, nodes and files."""

import errno
import os
import shutil
import threading
from pathlib import Path

import pytest
import trio
import trio.testing

from liken_events.core.backoff import Backoff
from liken_events.core.model.device import Inventory
from liken_events.latest import Latest
from liken_events.sinks import cdi
from liken_events.sources import looks
from tests.fakes.agents import Build
from tests.fakes.crashes import failing
from tests.fakes.devices import tty
from tests.fakes.keeping import BUS, NOWHERE, OTHER, OTHER_NAME, STICK, STICK_NAME, TTY, Keeping
from tests.fakes.machines import machine
from tests.fakes.waiting import until

MOVED = [("/dev/bus/usb/001/040", "c", 189, 39), TTY]


@pytest.fixture
async def kept(build: Build, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Keeping:
    monkeypatch.setattr(cdi, "RETRY", Backoff(base=0.01, ceiling=0.02))
    found = Keeping(build(machine([STICK, OTHER])), tmp_path)
    await found.holdings.restore()
    found.look()
    return found


class Following:
    """The parts that follow, and what they passed on with what the specs said then."""

    def __init__(self, kept: Keeping) -> None:
        self.kept = kept
        self.ready: Latest[Inventory] = Latest()
        self.passed: list[tuple[Inventory, list[tuple[object, ...]]]] = []

    async def run(self, nursery: trio.Nursery, claim: str = "") -> None:
        nursery.start_soon(self.kept.keeper.follow, self.ready)
        nursery.start_soon(self.kept.keeper.follow_doubts)
        nursery.start_soon(self._note, claim)
        await until(lambda: self.passed)

    async def until_passed(self, inventory: Inventory) -> None:
        await until(lambda: any(item is inventory for item, _ in self.passed))

    async def _note(self, claim: str) -> None:
        number = 0
        while True:
            newest = await self.ready.wait_newer(number)
            if newest == number:
                return
            number = newest
            self.passed.append((self.ready.get(), self.kept.specs.nodes(claim, STICK_NAME)))


async def test_an_inventory_is_passed_on_when_the_specs_say_it(kept: Keeping) -> None:
    claim = await kept.prepared(STICK_NAME)
    following = Following(kept)
    async with trio.open_nursery() as nursery:
        await following.run(nursery, claim.uid)
        kept.tree.renumber("1-9", 40)
        gate = kept.looks.gates[STICK.key] = threading.Event()
        found = kept.look()
        await trio.sleep(0.05)
        assert following.ready.number == 1, "the spec is not written yet"
        gate.set()
        await following.until_passed(found)
        kept.tree.unplug("1-9")
        await following.until_passed(kept.look())
        nursery.cancel_scope.cancel()
    assert [nodes for _, nodes in following.passed] == [
        [BUS, TTY], MOVED, [(MOVED[0][0],), (TTY[0],)],
    ]  # fmt: skip


async def test_the_newest_inventory_is_enough(kept: Keeping) -> None:
    await kept.prepared(STICK_NAME)
    following = Following(kept)
    async with trio.open_nursery() as nursery:
        await following.run(nursery)
        gate = kept.looks.gates[STICK.key] = threading.Event()
        kept.tree.renumber("1-9", 40)
        kept.look()
        await until(lambda: len(kept.looks.looked) == 2)
        for _ in range(5):
            kept.look()
        last = kept.look()
        gate.set()
        await following.until_passed(last)
        nursery.cancel_scope.cancel()
    assert following.ready.number == 3


async def test_the_last_inventory_is_passed_on_and_then_the_end_told(kept: Keeping) -> None:
    following = Following(kept)
    async with trio.open_nursery() as nursery:
        await following.run(nursery)
        last = kept.look()
        kept.inventories.close()
        await following.ready.wait_closed()
        nursery.cancel_scope.cancel()
    assert following.ready.get() is last


async def test_without_any_inventory_the_end_is_told_too(build: Build, tmp_path: Path) -> None:
    kept = Keeping(build(machine([])), tmp_path)
    kept.inventories.close()
    ready: Latest[Inventory] = Latest()
    await kept.keeper.follow(ready)
    assert (ready.number, ready.closed) == (0, True)


async def test_what_cannot_be_written_holds_nothing_up_and_is_tried_again(kept: Keeping) -> None:
    first, second = await kept.prepared(STICK_NAME), await kept.prepared(OTHER_NAME)
    following = Following(kept)
    async with trio.open_nursery() as nursery:
        await following.run(nursery)
        kept.tree.renumber("1-9", 40)
        kept.tree.renumber("1-8", 41)
        with failing("open", errno.ENOSPC, below=f"{kept.cdi}/.liken.sh-{first.uid}"):
            await following.until_passed(kept.look())
            other = kept.nodes_of(second, OTHER_NAME)
            assert other[0] == ("/dev/bus/usb/001/041", "c", 189, 40)
            assert not os.path.exists(kept.spec_path(first)), "no spec is better"
        await until(lambda: os.path.exists(kept.spec_path(first)))
        assert kept.nodes_of(first) == MOVED
        nursery.cancel_scope.cancel()


async def test_a_device_that_hangs_holds_nothing_up(
    kept: Keeping, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(looks, "LOOK_SECONDS", 0.05)
    first, second = await kept.prepared(STICK_NAME), await kept.prepared(OTHER_NAME)
    following = Following(kept)
    async with trio.open_nursery() as nursery:
        await following.run(nursery)
        gate = kept.looks.gates[STICK.key] = threading.Event()
        kept.tree.renumber("1-9", 40)
        kept.tree.renumber("1-8", 41)
        await following.until_passed(kept.look())
        assert kept.nodes_of(second, OTHER_NAME)[0] == ("/dev/bus/usb/001/041", "c", 189, 40)
        assert await kept.keeper.unprepare(second) is None
        monkeypatch.setattr(looks, "LOOK_SECONDS", 10.0)
        gate.set()
        await until(lambda: kept.nodes_of(first) == MOVED)
        nursery.cancel_scope.cancel()


async def test_a_spec_is_put_right_after_a_look_in_the_middle_of_a_change(kept: Keeping) -> None:
    claim = await kept.prepared(STICK_NAME)
    following = Following(kept)
    async with trio.open_nursery() as nursery:
        await following.run(nursery)
        kept.tree.unbind(STICK.key)  # the loop never comes to know of it
        assert isinstance(await kept.keeper.prepare(claim), tuple)
        assert kept.nodes_of(claim) == [(BUS[0],)], "until it has settled it counts as away"
        kept.tree.bind(STICK.key, "cp210x", STICK.nodes)
        await until(lambda: kept.nodes_of(claim) == [BUS, TTY])
        nursery.cancel_scope.cancel()


async def test_doubts_end_when_everything_is_right(kept: Keeping) -> None:
    claim = await kept.prepared(STICK_NAME)
    following = Following(kept)
    async with trio.open_nursery() as nursery:
        await following.run(nursery)
        kept.tree.renumber("1-9", 40)
        assert isinstance(await kept.keeper.prepare(claim), tuple)
        looked = len(kept.looks.looked)
        await until(lambda: len(kept.looks.looked) > looked + 2)
        await following.until_passed(kept.look())
        await trio.sleep(0.1)
        looked = len(kept.looks.looked)
        await trio.sleep(0.1)
        assert len(kept.looks.looked) == looked
        nursery.cancel_scope.cancel()


async def test_a_path_that_another_device_is_given_is_taken_out_at_once(kept: Keeping) -> None:
    claim = await kept.prepared(STICK_NAME)
    kept.tree.unplug("1-9")
    await kept.refresh()
    virtual = "/devices/virtual/tty/ttyUSB9"
    async with trio.open_nursery() as nursery:
        nursery.start_soon(kept.keeper.follow_nodes)
        await trio.testing.wait_all_tasks_blocked()
        os.makedirs(kept.tree.sys + virtual)
        Path(f"{kept.tree.sys}{virtual}/uevent").write_text("DEVNAME=ttyUSB9\n")
        kept.nodes.announce("/dev/ttyUSB9", virtual)
        taken = f"{NOWHERE}usb-1-9-1-0-is-away-and-ttyUSB9-belongs-to-ttyUSB9"
        await until(lambda: kept.specs.paths(claim.uid, STICK_NAME) == [BUS[0], taken])
        nursery.cancel_scope.cancel()


async def test_a_device_that_came_before_it_was_known_that_the_other_left_counts(
    kept: Keeping,
) -> None:
    """The kernel says both in one breath: the path is announced before any spec was looked at."""
    claim = await kept.prepared(STICK_NAME)
    virtual = "/devices/virtual/tty/ttyUSB9"
    kept.tree.unplug("1-9")
    os.makedirs(kept.tree.sys + virtual)
    Path(f"{kept.tree.sys}{virtual}/uevent").write_text("DEVNAME=ttyUSB9\n")
    kept.nodes.announce("/dev/ttyUSB9", virtual)
    await kept.refresh()
    assert kept.specs.paths(claim.uid, STICK_NAME)[1].startswith(NOWHERE)


async def test_a_device_that_came_counts_before_the_removal_is_told_at_all(kept: Keeping) -> None:
    """udevd tells of a removal when its rules ran; the kernel has given the path away by then."""
    claim = await kept.prepared(STICK_NAME)
    before = kept.look()
    assert await kept.holdings.refresh(before)
    virtual = "/devices/virtual/tty/ttyUSB9"
    kept.tree.unplug("1-9")
    os.makedirs(kept.tree.sys + virtual)
    Path(f"{kept.tree.sys}{virtual}/uevent").write_text("DEVNAME=ttyUSB9\n")
    kept.nodes.announce("/dev/ttyUSB9", virtual)
    await kept.holdings.refresh(before)
    assert kept.specs.paths(claim.uid, STICK_NAME)[1].startswith(NOWHERE)
    assert kept.nodes.announced, "it still counts: the device is away"


async def test_its_own_return_is_looked_at_once(kept: Keeping) -> None:
    claim = await kept.prepared(STICK_NAME)
    now = kept.look()
    await kept.holdings.refresh(now)
    kept.nodes.announce("/dev/ttyUSB9", f"{STICK.path}/ttyUSB9/tty/ttyUSB9")
    for _ in range(2):
        await kept.holdings.refresh(now)
    assert kept.looks.looked.count(STICK.key) == 2, "when it was prepared, and now"
    assert kept.nodes.announced == {}
    assert kept.nodes_of(claim) == [BUS, TTY]


async def test_a_spec_that_somebody_removes_or_edits_is_put_right(kept: Keeping) -> None:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(kept.keeper.follow_files, kept.cdi)
        claim = await kept.prepared(STICK_NAME)
        path = Path(kept.spec_path(claim))
        os.unlink(path)  # before anything could watch
        await until(lambda: kept.nodes_of(claim) == [BUS, TTY])
        draft = Path(f"{kept.cdi}/draft")
        draft.write_text("{}")
        draft.rename(path)
        await until(lambda: kept.nodes_of(claim) == [BUS, TTY] if path.read_text() != "{}" else 0)
        shutil.rmtree(kept.cdi)
        await until(lambda: kept.nodes_of(claim) == [BUS, TTY])
        assert await kept.keeper.unprepare(claim) is None
        again = await kept.prepared(STICK_NAME)
        os.unlink(kept.spec_path(again))
        await until(lambda: kept.nodes_of(again) == [BUS, TTY])
        assert os.listdir(kept.cdi) == [os.path.basename(kept.spec_path(again))]
        nursery.cancel_scope.cancel()


async def test_a_spec_that_could_not_be_put_back_is_tried_again(kept: Keeping) -> None:
    claim = await kept.prepared(STICK_NAME)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(kept.keeper.follow_files, kept.cdi)
        nursery.start_soon(kept.keeper.follow_doubts)
        await trio.testing.wait_all_tasks_blocked()
        with failing("open", errno.ENOSPC, below=kept.cdi):
            os.unlink(kept.spec_path(claim))
            await until(lambda: vars(kept.holdings)["_unwritten"])
        await until(lambda: kept.nodes_of(claim) == [BUS, TTY])
        nursery.cancel_scope.cancel()


async def test_files_of_others_cause_no_look(kept: Keeping) -> None:
    await kept.prepared(STICK_NAME)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(kept.keeper.follow_files, kept.cdi)
        await trio.testing.wait_all_tasks_blocked()
        looked = len(kept.looks.looked)
        Path(f"{kept.cdi}/vendor.json").write_text("{}")
        await trio.testing.wait_all_tasks_blocked(0.05)
        assert len(kept.looks.looked) == looked
        nursery.cancel_scope.cancel()


async def test_a_hub_that_flaps_leaves_the_right_numbers(kept: Keeping) -> None:
    first, second = await kept.prepared(STICK_NAME), await kept.prepared(OTHER_NAME)
    following = Following(kept)
    async with trio.open_nursery() as nursery:
        await following.run(nursery)
        for number in range(50):
            kept.tree.renumber("1-9", 20 + number, {STICK.key: [tty(f"ttyUSB{number}", number)]})
            if number % 3:
                kept.look()
            kept.tree.renumber("1-8", 70 + number, {OTHER.key: [tty("ttyUSB99", 99)]})
            kept.look()
            await trio.lowlevel.checkpoint()
        await following.until_passed(kept.look())
        nursery.cancel_scope.cancel()
    assert kept.nodes_of(first) == [
        ("/dev/bus/usb/001/069", "c", 189, 68), ("/dev/ttyUSB49", "c", 188, 49),
    ]  # fmt: skip
    assert kept.nodes_of(second, OTHER_NAME)[0] == ("/dev/bus/usb/001/119", "c", 189, 118)
