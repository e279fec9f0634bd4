"""What is held when work on files was given up or failed, and after a restart."""

import errno
import os
import threading
from pathlib import Path

import pytest
import trio
from structlog.typing import EventDict

from liken_events.core.model.claims import Allocated, Claim, ClaimReference, Refused
from liken_events.core.model.prepared import Prepared
from tests.fakes.agents import Build
from tests.fakes.claims import NODE
from tests.fakes.crashes import failing
from tests.fakes.keeping import BUS, OTHER, STICK, STICK_NAME, TTY, Keeping
from tests.fakes.machines import machine
from tests.fakes.waiting import until

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


async def test_a_write_that_was_cancelled_is_known_all_the_same(kept: Keeping) -> None:
    gate = kept.looks.gates[STICK.key] = threading.Event()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(kept.holdings.hold, claim(STICK_NAME), NODE)
        await until(lambda: kept.looks.looked)
        nursery.cancel_scope.cancel()
        gate.set()
    assert nodes(kept) == [BUS, TTY]
    assert UID in kept.holdings.prepared
    kept.looks.gates.clear()
    with trio.CancelScope() as scope:
        scope.cancel()
        await kept.holdings.end(UID)
    assert UID in kept.holdings.prepared, "what was cancelled before it began was not done"
    assert nodes(kept) == [BUS, TTY]


async def test_a_removal_that_was_cancelled_is_known_all_the_same(
    kept: Keeping, monkeypatch: pytest.MonkeyPatch
) -> None:
    await held(kept, STICK_NAME)
    began, gate, real = threading.Event(), threading.Event(), os.unlink

    def slow(path: str) -> None:
        began.set()
        assert gate.wait(30)
        real(path)

    monkeypatch.setattr(os, "unlink", slow)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(kept.holdings.end, UID)
        await until(began.is_set)
        nursery.cancel_scope.cancel()
        gate.set()
    assert kept.left == []
    assert kept.holdings.prepared == {}
    assert kept.holdings.health.get() == ()


async def test_a_refresh_that_was_cancelled_is_known_all_the_same(kept: Keeping) -> None:
    await held(kept, STICK_NAME)
    kept.tree.renumber("1-9", 40)
    gate = kept.looks.gates[STICK.key] = threading.Event()
    kept.looks.looked.clear()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(kept.holdings.refresh, kept.look())
        await until(lambda: kept.looks.looked)
        nursery.cancel_scope.cancel()
        gate.set()
    [device] = kept.holdings.prepared[UID].devices
    assert [node.path for node in device.nodes] == [node[0] for node in nodes(kept)]


async def test_what_cannot_be_removed_is_held_still(kept: Keeping) -> None:
    await held(kept, STICK_NAME)
    os.unlink(kept.specs.path(UID))
    os.mkdir(kept.specs.path(UID))
    refused = await kept.holdings.end(UID)
    assert refused == Refused(
        reason=f"{kept.specs.path(UID)} could not be removed: Is a directory"
    )
    assert UID in kept.holdings.prepared
    os.rmdir(kept.specs.path(UID))
    assert await kept.holdings.end(UID) is None
    assert kept.left == []


async def test_what_could_not_be_written_names_the_file(kept: Keeping) -> None:
    for place, path in (("records", f"{UID}.json"), ("cdi", f"liken.sh-{UID}.json")):
        with failing("open", errno.ENOSPC, below=f"{kept.root}/{place}"):
            outcome = await kept.holdings.hold(claim(STICK_NAME), NODE)
        assert outcome == Refused(
            reason=f"{kept.root}/{place}/{path} could not be written: No space left on device"
        )


async def test_a_record_without_its_spec_is_made_a_spec(kept: Keeping) -> None:
    await held(kept, STICK_NAME)
    os.unlink(kept.specs.path(UID))
    new = kept.anew()
    await new.holdings.restore()
    kept.tree.renumber("1-9", 40)
    assert await new.refresh()
    assert nodes(kept)[0] == ("/dev/bus/usb/001/040", "c", 189, 39)


async def test_nothing_of_another_boot_is_taken_over(kept: Keeping, logs: list[EventDict]) -> None:
    await held(kept, STICK_NAME)
    new = kept.anew(boot="boot-2")
    await new.holdings.restore()
    assert new.holdings.prepared == {}
    assert kept.left == []
    assert [line["uid"] for line in logs if line["event"] == "claims.dropped"] == [UID]


async def test_a_broken_record_is_told_once_and_the_spec_counts(
    kept: Keeping, logs: list[EventDict]
) -> None:
    await held(kept, STICK_NAME)
    Path(kept.records, f"{UID}.json").write_text("")
    new = kept.anew()
    await new.holdings.restore()
    assert [line["path"] for line in logs if line["event"] == "claims.broken_file"] == [
        f"{kept.records}/{UID}.json.broken"
    ]
    assert new.holdings.prepared.keys() == {UID}
    logs.clear()
    await kept.anew().holdings.restore()
    assert [line for line in logs if line["event"] == "claims.broken_file"] == []


async def test_a_directory_that_cannot_be_read_is_told_and_not_the_end(
    kept: Keeping, logs: list[EventDict], monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(path: str) -> list[str]:
        if path == kept.records:
            raise OSError(errno.EIO, os.strerror(errno.EIO), path)
        return []

    with monkeypatch.context() as patch:
        patch.setattr(os, "listdir", broken)
        await kept.holdings.restore()
        assert [line["event"] for line in logs] == ["claims.unreadable"]
        assert await kept.refresh(), "there is nothing to be done again"
        assert len(logs) == 1, "it is said once"
        cannot = await kept.holdings.hold(claim(STICK_NAME), NODE)
        assert isinstance(cannot, Refused)
        assert cannot.reason == f"{kept.records} could not be written: Input/output error"
    await held(kept, STICK_NAME)
