"""What is held, in memory as in the files, while everything moves."""

import errno
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from liken_events.core.model.claims import Allocated, Claim, ClaimReference, DeviceHealth
from liken_events.core.model.prepared import Prepared
from tests.fakes.agents import Build
from tests.fakes.claims import NODE
from tests.fakes.crashes import failing
from tests.fakes.devices import tty, usb
from tests.fakes.keeping import BUS, NOWHERE, OTHER, OTHER_NAME, STICK, STICK_NAME, TTY, Keeping
from tests.fakes.machines import machine

UID, SECOND = "3f1c2a9e-7d5b-4f0a-9c1e-2b8d6a4e0f13", "0c2d6a4e-7d5b-4f0a-9c1e-2b8d6a4e0f13"


@pytest.fixture
def kept(build: Build, tmp_path: Path) -> Keeping:
    return Keeping(build(machine([STICK, OTHER])), tmp_path)


def claim(*devices: str, uid: str = UID) -> Claim:
    return Claim(
        reference=ClaimReference(namespace="default", name="c", uid=uid),
        allocated=tuple(Allocated(request="r0", pool=NODE, device=name) for name in devices),
    )


async def held(kept: Keeping, *devices: str, uid: str = UID) -> Prepared:
    outcome = await kept.holdings.hold(claim(*devices, uid=uid), NODE)
    assert isinstance(outcome, Prepared), outcome
    return outcome


def nodes(kept: Keeping, uid: str = UID, device: str = STICK_NAME) -> list[tuple[object, ...]]:
    return kept.specs.nodes(uid, device)


async def test_only_claims_of_what_changed_are_looked_at(build: Build, tmp_path: Path) -> None:
    sticks = [
        usb(f"1-{port}:1.0", "10c4:ea60", "ff0000", "cp210x", port + 1,
            nodes=[tty(f"ttyUSB{port}", port)])
        for port in range(1, 101)
    ]  # fmt: skip
    kept = Keeping(build(machine(sticks)), tmp_path)
    for index, _ in enumerate(sticks, 1):
        uid = f"{index:08}-7d5b-4f0a-9c1e-2b8d6a4e0f13"
        await held(kept, f"usb-1-{index}-1-0", uid=uid)
    assert await kept.refresh()
    kept.looks.looked.clear()
    assert await kept.refresh()
    assert kept.looks.looked == []
    kept.tree.renumber("1-7", 120)
    assert await kept.refresh()
    assert kept.looks.looked == [sticks[6].key]
    assert nodes(kept, "00000007-7d5b-4f0a-9c1e-2b8d6a4e0f13", "usb-1-7-1-0")[0] == (
        "/dev/bus/usb/001/120", "c", 189, 119,
    )  # fmt: skip


async def test_a_claim_that_was_just_prepared_is_not_looked_at_again(kept: Keeping) -> None:
    await held(kept, STICK_NAME)
    kept.looks.looked.clear()
    assert await kept.refresh()
    assert kept.looks.looked == []


async def test_a_spec_follows_its_device(kept: Keeping) -> None:
    await held(kept, STICK_NAME)
    kept.tree.unplug("1-9")
    assert await kept.refresh()
    assert nodes(kept) == [(BUS[0],), (TTY[0],)]
    kept.tree.plug(
        usb("1-7:1.0", "0403:6001", "ff0000", "ftdi_sio", 30, nodes=[tty("ttyUSB9", 9)])
    )
    assert await kept.refresh()
    assert nodes(kept)[1][0] == f"{NOWHERE}usb-1-9-1-0-is-away-and-ttyUSB9-belongs-to-usb-1-7-1-0"
    kept.tree.unplug("1-7")
    assert await kept.refresh()
    assert nodes(kept) == [(BUS[0],), (TTY[0],)]
    kept.tree.plug(STICK)
    assert await kept.refresh()
    assert nodes(kept) == [BUS, TTY]
    kept.tree.unbind(STICK.key)
    assert await kept.refresh()
    assert nodes(kept) == [BUS]
    kept.tree.bind(STICK.key, "cp210x", STICK.nodes)
    assert await kept.refresh()
    assert nodes(kept) == [BUS, TTY]


def detach_once(kept: Keeping) -> None:
    """The driver leaves just before the next look, and is back right after it: the loop never
    finds anything else than before."""

    def after() -> None:
        kept.looks.after = lambda: None
        kept.tree.bind(STICK.key, "cp210x", STICK.nodes)

    def before() -> None:
        kept.looks.before = lambda: None
        kept.tree.unbind(STICK.key)
        kept.looks.after = after

    kept.looks.before = before


def leave_once(kept: Keeping) -> None:
    """The same for a device that leaves and comes back as it was."""

    def after() -> None:
        kept.looks.after = lambda: None
        kept.tree.plug(STICK)

    def before() -> None:
        kept.looks.before = lambda: None
        kept.tree.unplug("1-9")
        kept.looks.after = after

    kept.looks.before = before


@pytest.mark.parametrize("flicker", [detach_once, leave_once])
async def test_a_look_in_the_middle_of_a_change_is_not_the_last_one(
    kept: Keeping, flicker: Callable[[Keeping], None]
) -> None:
    await held(kept, STICK_NAME)
    found = kept.look()
    assert await kept.holdings.refresh(found)
    os.unlink(kept.specs.path(UID))  # a reason to look, of which the loop does not know
    flicker(kept)
    assert not await kept.holdings.refresh(found), "it has to be done again"
    assert nodes(kept) == [(BUS[0],), (TTY[0],)]
    assert await kept.holdings.refresh(found)
    assert nodes(kept) == [BUS, TTY]


async def test_a_claim_that_is_prepared_in_the_middle_of_a_change_is_put_right(
    kept: Keeping,
) -> None:
    await held(kept, STICK_NAME)
    found = kept.look()
    detach_once(kept)
    await held(kept, STICK_NAME)
    assert nodes(kept) == [BUS]
    assert await kept.holdings.refresh(found)
    assert nodes(kept) == [BUS, TTY]


async def test_an_older_inventory_does_not_undo_what_a_look_saw(kept: Keeping) -> None:
    await held(kept, STICK_NAME)
    old = kept.look()
    kept.tree.renumber("1-9", 40)
    assert await kept.refresh()
    assert not await kept.holdings.refresh(old), "it has to be done again"
    assert nodes(kept)[0] == ("/dev/bus/usb/001/040",)
    assert await kept.refresh()
    assert nodes(kept)[0] == ("/dev/bus/usb/001/040", "c", 189, 39)


async def test_a_device_that_is_back_counts_as_away_until_it_has_settled(kept: Keeping) -> None:
    """Half of its nodes would start a container that lacks the others."""
    await held(kept, STICK_NAME)
    kept.tree.unplug("1-9")
    away = kept.look()
    await kept.holdings.refresh(away)
    kept.tree.plug(replace(STICK, nodes=()))
    kept.nodes.announce(BUS[0], "/devices/pci0000:00/0000:00:14.0/usb1/1-9")
    assert not await kept.holdings.refresh(away)
    assert nodes(kept) == [(BUS[0],), (TTY[0],)]
    kept.tree.add_nodes(STICK.key, STICK.nodes)
    await kept.holdings.refresh(away)
    assert nodes(kept) == [(BUS[0],), (TTY[0],)], "its own paths are nobody else's"
    assert await kept.refresh()
    assert nodes(kept) == [BUS, TTY]


async def test_mounts_are_no_reason_to_look(kept: Keeping) -> None:
    await held(kept, STICK_NAME)
    await kept.refresh()
    kept.looks.looked.clear()
    kept.tree.renumber("1-8", 40)  # nobody holds it
    await kept.refresh()
    assert kept.looks.looked == []


async def test_a_file_that_cannot_be_written_harms_no_other_and_is_tried_again(
    kept: Keeping,
) -> None:
    await held(kept, STICK_NAME)
    await held(kept, OTHER_NAME, uid=SECOND)
    kept.tree.renumber("1-9", 40)
    kept.tree.renumber("1-8", 41)
    with failing("open", errno.ENOSPC, below=f"{kept.cdi}/.liken.sh-{UID}"):
        assert not await kept.refresh()
        assert not await kept.refresh(), "until it was written"
    assert not os.path.exists(kept.specs.path(UID)), "no spec is better than a wrong one"
    assert nodes(kept, SECOND, OTHER_NAME)[0] == ("/dev/bus/usb/001/041", "c", 189, 40)
    assert await kept.refresh()
    assert nodes(kept)[0] == ("/dev/bus/usb/001/040", "c", 189, 39)


async def test_a_device_that_cannot_be_looked_at_is_tried_again(kept: Keeping) -> None:
    await held(kept, STICK_NAME)
    kept.tree.renumber("1-9", 40)
    kept.looks.failing.add(STICK.key)
    assert not await kept.refresh()
    kept.looks.failing.clear()
    assert await kept.refresh()
    assert nodes(kept)[0] == ("/dev/bus/usb/001/040", "c", 189, 39)


async def test_a_record_that_could_not_be_written_is_written_later(kept: Keeping) -> None:
    await held(kept, STICK_NAME)
    kept.tree.renumber("1-9", 40)
    with failing("open", errno.ENOSPC, below=kept.records):
        assert not await kept.refresh()
    assert await kept.refresh()
    [record] = kept.anew().files.load().prepared
    assert record == kept.holdings.prepared[UID]
    assert record.devices[0].nodes[0].path == "/dev/bus/usb/001/040"


async def test_a_spec_that_somebody_removes_or_edits_is_put_right(kept: Keeping) -> None:
    await held(kept, STICK_NAME)
    path = Path(kept.specs.path(UID))
    path.unlink()
    assert await kept.refresh()
    assert nodes(kept) == [BUS, TTY]
    path.write_text("{}")
    assert await kept.refresh()
    assert nodes(kept) == [BUS, TTY]


async def test_a_spec_that_cannot_be_put_back_is_tried_again(kept: Keeping) -> None:
    await held(kept, STICK_NAME)
    os.unlink(kept.specs.path(UID))
    with failing("open", errno.ENOSPC, below=kept.cdi):
        assert not await kept.refresh()
    assert await kept.refresh()
    assert nodes(kept) == [BUS, TTY]


async def test_health_follows(kept: Keeping) -> None:
    def health() -> list[DeviceHealth]:
        return [item for item in kept.holdings.health.get() if item.device == STICK_NAME]

    assert not kept.holdings.health.number
    await kept.holdings.restore()
    assert not kept.holdings.health.number, "nothing is known yet"
    await kept.refresh()
    assert kept.holdings.health.get() == ()
    await held(kept, STICK_NAME)
    assert health() == [DeviceHealth(device=STICK_NAME, is_healthy=True)]
    told = kept.holdings.health.number
    await kept.refresh()
    assert kept.holdings.health.number == told, "nothing changed"
    kept.tree.unplug("1-9")
    await kept.refresh()
    assert not health()[0].is_healthy
    kept.tree.plug(STICK)
    await kept.refresh()
    assert health()[0].is_healthy
    kept.tree.renumber("1-9", 40)
    await kept.refresh()
    assert "which is dead: delete the pod" in health()[0].message
    await held(kept, STICK_NAME)
    assert health()[0].is_healthy, "a new pod has the new node"
    kept.tree.unbind(STICK.key)
    await kept.refresh()
    assert health()[0].is_healthy, "its own program may have detached the driver"
    await kept.holdings.end(UID)
    assert health() == []


async def test_paths_of_what_is_held_are_watched(kept: Keeping) -> None:
    await held(kept, STICK_NAME)
    kept.nodes.announce("/dev/ttyUSB9", "/devices/virtual/x")
    kept.nodes.announce("/dev/ttyUSB8", "/devices/virtual/y")
    assert kept.nodes.announced == {"/dev/ttyUSB9": "/devices/virtual/x"}
    kept.tree.renumber("1-9", 40, {STICK.key: [tty("ttyUSB4", 4)]})
    await kept.refresh()
    assert kept.nodes.announced == {}
    kept.nodes.announce("/dev/ttyUSB4", "/devices/virtual/x")
    await kept.holdings.end(UID)
    assert kept.nodes.announced == {}
