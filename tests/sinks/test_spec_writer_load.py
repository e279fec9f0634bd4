"""What is taken over at a start."""

import errno
import os
from pathlib import Path

import pytest

from liken_events.core.model.claims import Allocated, Claim, ClaimReference
from liken_events.core.model.prepared import Prepared
from liken_events.sinks.spec_writer import Rewritten
from tests.fakes.agents import Build
from tests.fakes.claims import NODE
from tests.fakes.crashes import failing
from tests.fakes.keeping import OTHER, OTHER_NAME, STICK, STICK_NAME, Keeping
from tests.fakes.machines import machine

UID, SECOND = "3f1c2a9e-7d5b-4f0a-9c1e-2b8d6a4e0f13", "0c2d6a4e-7d5b-4f0a-9c1e-2b8d6a4e0f13"


@pytest.fixture
def kept(build: Build, tmp_path: Path) -> Keeping:
    return Keeping(build(machine([STICK, OTHER])), tmp_path)


def held(kept: Keeping, *devices: str, uid: str = UID) -> Prepared:
    claim = Claim(
        reference=ClaimReference(namespace="default", name="c", uid=uid),
        allocated=tuple(Allocated(request="r0", pool=NODE, device=name) for name in devices),
    )
    found = kept.writer.hold(claim, NODE, {})
    assert isinstance(found, Rewritten), found
    return found.prepared


def test_a_spec_without_a_record_that_says_what_is_there_is_adopted(kept: Keeping) -> None:
    held(kept, STICK_NAME, OTHER_NAME)
    os.unlink(f"{kept.records}/{UID}.json")
    found = kept.anew().writer.load()
    assert [item.reference.uid for item in found.prepared] == [UID]
    assert (found.dropped, found.problems) == ((), ())
    assert kept.anew().files.load().prepared == found.prepared


@pytest.mark.parametrize("change", ["left", "renumbered", "unreadable", "withheld"])
def test_a_spec_without_a_record_that_says_anything_else_is_removed(
    kept: Keeping, change: str
) -> None:
    held(kept, STICK_NAME)
    os.unlink(f"{kept.records}/{UID}.json")
    new = kept.anew()
    match change:
        case "left":
            kept.tree.unplug("1-9")
        case "renumbered":
            kept.tree.renumber("1-9", 40)
        case "unreadable":
            new.looks.failing.add(STICK.key)
        case "withheld":
            kept.tree.unbind(STICK.key)
    found = new.writer.load()
    assert (found.prepared, found.dropped) == ((), (UID,))
    assert kept.left == []


def test_a_spec_that_names_no_device_of_ours_is_removed(kept: Keeping) -> None:
    held(kept, STICK_NAME)
    os.rename(kept.specs.path(UID), kept.specs.path(SECOND))
    os.unlink(f"{kept.records}/{UID}.json")
    assert kept.anew().writer.load().dropped == (SECOND,)
    assert kept.left == []


def test_what_cannot_be_tidied_keeps_no_other_claim_from_being_taken_over(kept: Keeping) -> None:
    item = held(kept, OTHER_NAME, uid=SECOND)
    held(kept, STICK_NAME)
    os.unlink(f"{kept.records}/{UID}.json")
    kept.tree.unplug("1-9")
    with failing("unlink", errno.EROFS):
        found = kept.anew().writer.load()
    assert found.prepared == (item,)
    assert [path for path, _ in found.problems] == [kept.specs.path(UID)]


def test_a_claim_is_adopted_although_its_record_cannot_be_written(kept: Keeping) -> None:
    held(kept, STICK_NAME)
    os.unlink(f"{kept.records}/{UID}.json")
    with failing("open", errno.ENOSPC, below=kept.records):
        found = kept.anew().writer.load()
    assert [item.reference.uid for item in found.prepared] == [UID]
    assert [reason for _, reason in found.problems] == ["No space left on device"]
