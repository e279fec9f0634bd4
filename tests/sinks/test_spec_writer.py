"""What is written on a fresh look, and what is written if nothing may be."""

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from liken_events.core.model.claims import Allocated, Claim, ClaimReference, Refused
from liken_events.core.model.prepared import Aliases, Prepared, Presence
from liken_events.core.model.publish import inventory
from liken_events.sinks.spec_writer import Conflict, Rewritten
from tests.fakes.agents import Build
from tests.fakes.claims import NODE
from tests.fakes.crashes import failing
from tests.fakes.devices import drm, pci, root_hub, tty, usb
from tests.fakes.keeping import BUS, NOWHERE, OTHER, OTHER_NAME, STICK, STICK_NAME, TTY, Keeping
from tests.fakes.machines import machine

UID, SECOND = "3f1c2a9e-7d5b-4f0a-9c1e-2b8d6a4e0f13", "0c2d6a4e-7d5b-4f0a-9c1e-2b8d6a4e0f13"
STRANGER = usb("1-7:1.0", "0403:6001", "ff0000", "ftdi_sio", 30, nodes=[tty("ttyUSB9", 9)])
"""Another stick that is given the tty of one that left."""


@pytest.fixture
def kept(build: Build, tmp_path: Path) -> Keeping:
    return Keeping(build(machine([root_hub(1, 2), STICK, OTHER])), tmp_path)


def claim(*devices: str, uid: str = UID, **more: Any) -> Claim:
    return Claim(
        reference=ClaimReference(namespace="default", name="c", uid=uid),
        allocated=tuple(
            Allocated(request="r0", pool=more.pop("pool", NODE), device=device, **more)
            for device in devices
        ),
    )


def held(
    kept: Keeping, *devices: str, uid: str = UID, known: dict[str, Prepared] | None = None
) -> Prepared:
    found = kept.writer.hold(claim(*devices, uid=uid), NODE, known or {})
    assert isinstance(found, Rewritten), found
    return found.prepared


def rewritten(kept: Keeping, *claims: Prepared, **announced: str) -> dict[str, Rewritten]:
    """What becomes of claims when the loop has found the machine as it is."""
    paths = {f"/dev/{name}": path for name, path in announced.items()}
    return kept.writer.rewrite(claims, inventory(kept.tree.snapshot), paths)


def nodes(kept: Keeping, uid: str = UID, device: str = STICK_NAME) -> list[Any]:
    return kept.specs.nodes(uid, device)


def test_what_is_held_stands_with_its_numbers(kept: Keeping) -> None:
    found = kept.writer.hold(claim(STICK_NAME, OTHER_NAME), NODE, {})
    assert isinstance(found, Rewritten)
    assert found.is_written
    assert nodes(kept) == [BUS, TTY]
    assert [device.name for device in found.prepared.devices] == [OTHER_NAME, STICK_NAME]
    assert {sight.presence for sight in found.sights.values()} == {Presence.THERE}
    again = kept.writer.hold(claim(STICK_NAME, OTHER_NAME), NODE, {UID: found.prepared})
    assert again == Rewritten(prepared=found.prepared, sights=found.sights, is_written=False)


@pytest.mark.parametrize(
    ("devices", "more", "reason"),
    [
        (["usb-5-5-1-0"], {}, "usb-5-5-1-0 is not on this machine now"),
        ([STICK_NAME], {"pool": "n2\x1b"}, f"{STICK_NAME} is a device of the node n2\\x1b, not"),
        (["usb-1-0-1-0"], {}, "usb-1-0-1-0 is withheld: bus-structure"),
        ([STICK_NAME, "usb-5-5-1-0"], {}, "usb-5-5-1-0 is not on this machine now"),
    ],
)
def test_what_cannot_be_held_is_refused_and_nothing_written(
    kept: Keeping, devices: list[str], more: dict[str, Any], reason: str
) -> None:
    found = kept.writer.hold(claim(*devices, **more), NODE, {})
    assert isinstance(found, Refused)
    assert found.reason.startswith(reason)
    assert kept.left == []


def test_what_cannot_be_looked_at_is_refused_by_its_name(kept: Keeping) -> None:
    kept.looks.failing.add(STICK.key)
    found = kept.writer.hold(claim(STICK_NAME), NODE, {})
    assert found == Refused(reason=f"{STICK_NAME} cannot be looked at: Input/output error")
    assert kept.left == []


def test_what_another_claim_holds_for_itself_is_a_conflict(kept: Keeping) -> None:
    first = held(kept, STICK_NAME)
    known = {UID: first}
    found = kept.writer.hold(claim(STICK_NAME, uid=SECOND), NODE, known)
    assert found == Conflict(device=STICK_NAME, other=first.reference)
    admin = kept.writer.hold(claim(STICK_NAME, uid=SECOND, is_admin=True), NODE, known)
    assert isinstance(admin, Rewritten)


def test_what_may_be_shared_is_no_conflict(build: Build, tmp_path: Path) -> None:
    gpu = pci("0000:00:02.0", "8086:3e92", "030000", "i915",
              nodes=[drm("card0", 0), drm("renderD128", 128)])  # fmt: skip
    kept = Keeping(build(machine([gpu])), tmp_path)
    first = held(kept, "pci-0000-00-02-0")
    held(kept, "pci-0000-00-02-0", uid=SECOND, known={UID: first})
    screen = held(kept, "pci-0000-00-02-0-display", uid=SECOND, known={UID: first})
    found = kept.writer.hold(claim("pci-0000-00-02-0-display"), NODE, {SECOND: screen})
    assert isinstance(found, Conflict)


@pytest.mark.parametrize("place", ["cdi", "records"])
@pytest.mark.parametrize("step", ["open", "replace"])
@pytest.mark.parametrize("error", [errno.EROFS, errno.ENOSPC])
def test_a_claim_that_could_not_be_written_leaves_nothing(
    kept: Keeping, place: str, step: str, error: int
) -> None:
    held(kept, OTHER_NAME, uid=SECOND)  # both directories are there
    before = kept.left
    below = f"{kept.root}/{place}"
    with failing(step, error, below=below), pytest.raises(OSError, match=UID) as raised:
        kept.writer.hold(claim(STICK_NAME), NODE, {})
    assert raised.value.errno == error
    assert kept.left == before
    held(kept, STICK_NAME)


def test_a_directory_that_refuses_removal_too_leaves_nothing(kept: Keeping) -> None:
    held(kept, OTHER_NAME, uid=SECOND)
    before = kept.left
    with (
        failing("open", errno.EROFS, below=kept.cdi),
        failing("unlink", errno.EROFS, below=kept.cdi),
        pytest.raises(OSError, match="Read-only"),
    ):
        kept.writer.hold(claim(STICK_NAME), NODE, {})
    assert kept.left == before


def test_a_spec_of_which_nothing_was_known_is_left_where_it_cannot_be_written(
    kept: Keeping,
) -> None:
    held(kept, STICK_NAME)
    before = kept.specs.read(UID)
    with failing("open", errno.ENOSPC, below=kept.cdi), pytest.raises(OSError, match=UID):
        kept.writer.hold(claim(STICK_NAME, OTHER_NAME), NODE, {})
    assert kept.specs.read(UID) == before


def test_a_claim_that_could_not_be_written_anew_is_as_it_was(kept: Keeping) -> None:
    first = held(kept, STICK_NAME)
    record = Path(kept.records, f"{UID}.json").read_text()
    kept.tree.renumber("1-9", 40)
    with failing("open", errno.ENOSPC, below=kept.cdi), pytest.raises(OSError, match=UID):
        kept.writer.hold(claim(STICK_NAME), NODE, {UID: first})
    assert nodes(kept) == [BUS, TTY]
    assert Path(kept.records, f"{UID}.json").read_text() == record


def test_a_claim_that_is_held_again_while_detached_has_the_bus_node(kept: Keeping) -> None:
    first = held(kept, STICK_NAME)
    kept.tree.unbind(STICK.key)
    found = kept.writer.hold(claim(STICK_NAME), NODE, {UID: first})
    assert isinstance(found, Rewritten)
    assert found.sights[STICK_NAME].presence is Presence.DETACHED
    assert nodes(kept) == [BUS]


def test_a_device_that_left_has_its_paths_alone(kept: Keeping) -> None:
    item = held(kept, STICK_NAME)
    kept.tree.unplug("1-9")
    assert rewritten(kept, item)[UID].sights[STICK_NAME].presence is Presence.AWAY
    assert nodes(kept) == [(BUS[0],), (TTY[0],)]
    assert not rewritten(kept, item)[UID].is_written


def test_a_device_that_came_back_under_other_numbers_has_those(kept: Keeping) -> None:
    item = held(kept, STICK_NAME)
    kept.tree.renumber("1-9", 40, {STICK.key: [tty("ttyUSB4", 4)]})
    new = rewritten(kept, item)[UID]
    assert nodes(kept) == [("/dev/bus/usb/001/040", "c", 189, 39), ("/dev/ttyUSB4", "c", 188, 4)]
    assert [node.path for node in new.prepared.devices[0].nodes] == [n[0] for n in nodes(kept)]
    assert new.prepared.devices[0].given == item.devices[0].given
    assert kept.anew().files.load().prepared == (new.prepared,)


def test_a_path_that_another_device_of_a_bus_has_is_given_to_nobody(kept: Keeping) -> None:
    item = held(kept, STICK_NAME)
    kept.tree.unplug("1-9")
    kept.tree.plug(STRANGER)
    rewritten(kept, item)
    assert nodes(kept) == [
        (BUS[0],), (f"{NOWHERE}usb-1-9-1-0-is-away-and-ttyUSB9-belongs-to-usb-1-7-1-0",)
    ]  # fmt: skip


def test_a_stranger_is_seen_although_the_inventory_still_has_the_one_that_left(
    kept: Keeping,
) -> None:
    item = held(kept, STICK_NAME)
    kept.tree.unplug("1-9")
    stranger = usb("1-10:1.0", "0403:6001", "ff0000", "ftdi_sio", 30, nodes=[tty("ttyUSB9", 9)])
    old = inventory(machine([*kept.tree.snapshot.devices, STICK, stranger]))
    kept.writer.rewrite([item], old, {})
    assert nodes(kept)[1][0].endswith("ttyUSB9-belongs-to-usb-1-10-1-0")


def test_a_path_that_was_announced_with_another_device_is_given_to_nobody(kept: Keeping) -> None:
    item = held(kept, STICK_NAME)
    kept.tree.unplug("1-9")
    virtual = "/devices/virtual/tty/ttyUSB9"
    os.makedirs(kept.tree.sys + virtual)
    Path(f"{kept.tree.sys}{virtual}/uevent").write_text("MAJOR=4\nMINOR=1\nDEVNAME=ttyUSB9\n")
    rewritten(kept, item, ttyUSB9=virtual)
    assert nodes(kept)[1] == (f"{NOWHERE}usb-1-9-1-0-is-away-and-ttyUSB9-belongs-to-ttyUSB9",)
    os.unlink(f"{kept.tree.sys}{virtual}/uevent")
    rewritten(kept, item, ttyUSB9=virtual)
    assert nodes(kept)[1] == (TTY[0],)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root makes device nodes")
def test_a_path_that_something_has_under_the_dev_root_is_given_to_nobody(kept: Keeping) -> None:
    item = held(kept, STICK_NAME)
    kept.tree.unplug("1-9")
    os.mknod(f"{kept.tree.dev}/ttyUSB9", 0o020660, os.makedev(188, 8))  # the number of OTHER
    rewritten(kept, item)
    assert nodes(kept)[1] == (f"{NOWHERE}usb-1-9-1-0-is-away-and-ttyUSB9-belongs-to-ttyUSB8",)


def test_another_model_in_the_slot_is_given_to_nobody(kept: Keeping) -> None:
    item = held(kept, STICK_NAME)
    kept.tree.unplug("1-9")
    kept.tree.plug(
        usb("1-9:1.0", "0403:6001", "ff0000", "ftdi_sio", 12, nodes=[tty("ttyUSB9", 9)])
    )
    found = rewritten(kept, item)[UID]
    assert found.sights[STICK_NAME].presence is Presence.REPLACED
    assert [path.split("-is-away")[0] for path in kept.specs.paths(UID, STICK_NAME)] == [
        f"{NOWHERE}usb-1-9-1-0"
    ] * 2
    refused = kept.writer.hold(claim(STICK_NAME), NODE, {UID: item})
    assert refused == Refused(
        reason=f"{STICK_NAME} is another model now: 0403:6001 instead of 10c4:ea60"
    )


def test_a_model_that_is_listed_as_the_same_is_the_device(build: Build, tmp_path: Path) -> None:
    same = Aliases(groups=(frozenset({"10c4:ea60", "0403:6001"}),))
    kept = Keeping(build(machine([STICK])), tmp_path, aliases=same)
    item = held(kept, STICK_NAME)
    kept.tree.unplug("1-9")
    kept.tree.plug(
        usb("1-9:1.0", "0403:6001", "ff0000", "ftdi_sio", 13, nodes=[tty("ttyUSB7", 7)])
    )
    rewritten(kept, item)
    assert nodes(kept) == [("/dev/bus/usb/001/013", "c", 189, 12), ("/dev/ttyUSB7", "c", 188, 7)]


def test_one_claim_that_cannot_be_looked_at_or_written_harms_no_other(kept: Keeping) -> None:
    first, second = held(kept, STICK_NAME), held(kept, OTHER_NAME, uid=SECOND)
    kept.tree.renumber("1-9", 40)
    kept.tree.renumber("1-8", 41)
    kept.looks.failing.add(STICK.key)
    assert rewritten(kept, first, second).keys() == {SECOND}
    kept.looks.failing.clear()
    os.unlink(kept.specs.path(SECOND))
    os.mkdir(kept.specs.path(SECOND))
    found = rewritten(kept, first, second)
    assert {uid: item.is_right for uid, item in found.items()} == {UID: True, SECOND: False}
    assert nodes(kept)[0] == ("/dev/bus/usb/001/040", "c", 189, 39)


def test_a_device_of_several_claims_is_looked_at_once(kept: Keeping) -> None:
    first = held(kept, STICK_NAME)
    found = kept.writer.hold(claim(STICK_NAME, uid=SECOND, is_admin=True), NODE, {UID: first})
    assert isinstance(found, Rewritten)
    kept.looks.looked.clear()
    rewritten(kept, first, found.prepared)
    assert kept.looks.looked == [STICK.key]
