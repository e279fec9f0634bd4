"""The kubelet's calls: what is answered, and what is written for it."""

import errno
import json
import os
from pathlib import Path

import pytest
import trio
from structlog.typing import EventDict

from liken_events.cluster import Unavailable
from liken_events.core.model.claims import ClaimReference, Granted, Refused
from liken_events.sinks import cdi
from tests.fakes.agents import Build
from tests.fakes.cdi_rules import complaints
from tests.fakes.claims import NODE
from tests.fakes.crashes import failing
from tests.fakes.devices import drm, pci, tty
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

GPU = pci(
    "0000:00:02.0", "8086:3e92", "030000", "i915", nodes=[drm("card0", 0), drm("renderD128", 128)]
)
GPU_NAME = "pci-0000-00-02-0"


@pytest.fixture
async def kept(build: Build, tmp_path: Path) -> Keeping:
    found = Keeping(build(machine([STICK, OTHER, GPU])), tmp_path)
    await found.holdings.restore()
    found.look()
    return found


def reason_of(outcome: object) -> str:
    assert isinstance(outcome, Refused), outcome
    return outcome.reason


def granted(reference: ClaimReference, request: str, device: str) -> Granted:
    return Granted(
        request=request,
        pool=NODE,
        device=device,
        cdi_id=f"liken.sh/device={reference.uid}-{device}",
    )


async def test_a_claim_is_answered_with_its_devices_and_written_for_a_runtime(
    kept: Keeping,
) -> None:
    claim = kept.claim(STICK_NAME, f"{GPU_NAME}-display")
    assert await kept.keeper.prepare(claim) == (
        granted(claim, "r0", STICK_NAME), granted(claim, "r1", f"{GPU_NAME}-display"),
    )  # fmt: skip
    text = Path(kept.spec_path(claim)).read_text()
    assert complaints(text, newest="0.5.0") == []
    assert json.loads(text)["kind"] == "liken.sh/device"
    assert kept.nodes_of(claim) == [BUS, TTY]
    assert kept.nodes_of(claim, f"{GPU_NAME}-display") == [("/dev/dri/card0", "c", 226, 0)]
    assert kept.left == names_of([claim])


async def test_a_claim_that_is_asked_for_again_is_answered_the_same(kept: Keeping) -> None:
    claim = kept.claim(STICK_NAME)
    first = await kept.keeper.prepare(claim)
    before = os.stat(kept.spec_path(claim))
    for keeper in (kept.keeper, kept.anew().keeper):
        assert await keeper.prepare(claim) == first
    after = os.stat(kept.spec_path(claim))
    assert (before.st_ino, before.st_mtime_ns) == (after.st_ino, after.st_mtime_ns)


async def test_one_device_for_two_requests_is_answered_twice_and_written_once(
    kept: Keeping,
) -> None:
    claim = kept.claim(STICK_NAME, STICK_NAME, shareID="share")
    outcome = await kept.keeper.prepare(claim)
    assert isinstance(outcome, tuple)
    assert [(item.request, item.device, item.share_id) for item in outcome] == [
        ("r0", STICK_NAME, "share"), ("r1", STICK_NAME, "share"),
    ]  # fmt: skip
    assert len((kept.specs.read(claim.uid) or {})["devices"]) == 1


async def test_devices_of_other_drivers_are_theirs(kept: Keeping) -> None:
    claim = kept.claim(STICK_NAME, "gpu-0")
    results = kept.body(claim)["status"]["allocation"]["devices"]["results"]
    results[1]["driver"] = "gpu.vendor.com"
    assert await kept.keeper.prepare(claim) == (granted(claim, "r0", STICK_NAME),)
    results[0]["driver"] = "gpu.vendor.com"
    other = ClaimReference(namespace="default", name=claim.name, uid=claim.uid)
    assert await kept.keeper.prepare(other) == ()


async def test_a_claim_without_devices_of_ours_leaves_no_file(
    kept: Keeping, logs: list[EventDict]
) -> None:
    claim = kept.claim("gpu-0", driver="gpu.vendor.com")
    assert await kept.keeper.prepare(claim) == ()
    assert kept.left == []
    assert [line["event"] for line in logs] == []
    assert await kept.keeper.unprepare(claim) is None


async def test_what_cannot_be_prepared_says_why_and_leaves_no_file(
    kept: Keeping, logs: list[EventDict]
) -> None:
    gone = ClaimReference(namespace="default", name="none", uid="u1")
    anew = kept.claim(STICK_NAME, name="again")
    old = ClaimReference(namespace="default", name="again", uid="u0")
    waiting = kept.claim(STICK_NAME, name="waiting")
    del kept.body(waiting)["status"]
    missing = kept.claim(OTHER_NAME, "usb-7-7-1-0", name="missing")
    for claim, reason in {
        gone: "the claim default/none does not exist any more",
        old: "the claim default/again was made anew since: its uid is another",
        waiting: "the claim default/waiting has no allocation",
        missing: "usb-7-7-1-0 is not on this machine now",
        ClaimReference(namespace="default", name="c", uid="../x"): "the claim's uid is no uid",
    }.items():
        assert reason_of(await kept.keeper.prepare(claim)) == reason
    assert kept.left == []
    assert {line["event"] for line in logs} == {"claim.refused"}
    assert isinstance(await kept.keeper.prepare(anew), tuple)


async def test_a_claim_of_an_old_name_is_another_claim(kept: Keeping) -> None:
    first = await kept.prepared(STICK_NAME, name="c")
    kept.delete(first)
    second = await kept.prepared(STICK_NAME, name="c")
    assert first.uid != second.uid
    assert await kept.keeper.unprepare(first) is None
    assert kept.left == names_of([second])
    assert kept.nodes_of(second) == [BUS, TTY]


async def test_whatever_is_unprepared_is_gone_without_asking_anybody(kept: Keeping) -> None:
    first, second = await kept.prepared(STICK_NAME), await kept.prepared(OTHER_NAME)
    stuck = await kept.prepared(GPU_NAME)
    os.unlink(kept.spec_path(stuck))
    os.mkdir(kept.spec_path(stuck))
    kept.delete(first)
    kept.cluster.claims["default", second.name] = Unavailable("connection refused")
    kept.cluster.claims_read.clear()
    unknown = ClaimReference(namespace="a", name="b", uid="0c2d6a4e-7d5b-4f0a-9c1e-2b8d6a4e0f13")
    outcomes = [await kept.keeper.unprepare(item) for item in (first, second, unknown, stuck)]
    assert outcomes[:3] == [None, None, None]
    assert reason_of(outcomes[3]) == (
        f"{kept.spec_path(stuck)} could not be removed: Is a directory"
    )
    assert kept.cluster.claims_read == []
    assert kept.left == names_of([stuck])
    os.rmdir(kept.spec_path(stuck))
    assert await kept.keeper.unprepare(stuck) is None
    assert await kept.keeper.unprepare(ClaimReference(namespace="", name="", uid="../x")) is None
    assert kept.left == []


@pytest.mark.parametrize("error", [errno.EROFS, errno.ENOSPC])
async def test_a_directory_that_cannot_be_written_is_told_and_can_be_tried_again(
    kept: Keeping, error: int
) -> None:
    held = await kept.prepared(OTHER_NAME)
    claim = kept.claim(STICK_NAME)
    with failing("open", error, below=kept.cdi):
        reason = reason_of(await kept.keeper.prepare(claim))
        assert reason == f"{kept.spec_path(claim)} could not be written: {os.strerror(error)}"
    with failing("unlink", error, below=kept.cdi):
        reason = reason_of(await kept.keeper.unprepare(held))
        assert reason == f"{kept.spec_path(held)} could not be removed: {os.strerror(error)}"
    assert kept.left == names_of([held])
    assert isinstance(await kept.keeper.prepare(claim), tuple)
    assert await kept.keeper.unprepare(held) is None
    assert kept.left == names_of([claim])


async def test_one_claims_trouble_is_no_others(kept: Keeping) -> None:
    bad = kept.claim("usb-7-7-1-0")
    good = [kept.claim(STICK_NAME), kept.claim(OTHER_NAME), kept.claim(GPU_NAME)]
    outcomes: dict[ClaimReference, object] = {}

    async def prepare(claim: ClaimReference) -> None:
        outcomes[claim] = await kept.keeper.prepare(claim)

    async with trio.open_nursery() as nursery:
        for claim in (bad, *good):
            nursery.start_soon(prepare, claim)
    assert isinstance(outcomes.pop(bad), Refused)
    assert all(isinstance(outcome, tuple) for outcome in outcomes.values())
    assert kept.left == names_of(good)


async def test_many_claims_at_once_have_a_file_each(kept: Keeping) -> None:
    claims = [kept.claim(GPU_NAME, name=f"n{number}") for number in range(20)]
    async with trio.open_nursery() as nursery:
        for claim in claims:
            nursery.start_soon(kept.keeper.prepare, claim)
    assert kept.left == names_of(claims)
    for claim in claims:
        assert kept.nodes_of(claim, GPU_NAME) == [("/dev/dri/renderD128", "c", 226, 128)]


async def test_a_spec_that_was_wiped_is_written_again_before_the_answer(kept: Keeping) -> None:
    claim = await kept.prepared(STICK_NAME)
    os.unlink(kept.spec_path(claim))
    new = kept.anew()
    await new.holdings.restore()
    with failing("open", errno.EROFS, below=kept.cdi):
        assert isinstance(await new.keeper.prepare(claim), Refused)
    assert isinstance(await new.keeper.prepare(claim), tuple)
    assert kept.nodes_of(claim) == [BUS, TTY]


async def test_a_claim_of_another_boot_is_prepared_from_what_is_there_now(kept: Keeping) -> None:
    claim = await kept.prepared(STICK_NAME)
    kept.tree.unplug("1-9")
    new = kept.anew(boot="boot-2")
    await new.holdings.restore()
    assert kept.left == []
    new.look()
    assert reason_of(await new.keeper.prepare(claim)) == f"{STICK_NAME} is not on this machine now"
    kept.tree.plug(STICK)
    kept.tree.renumber("1-9", 3, {STICK.key: [tty("ttyUSB0", 0)]})
    new.look()
    for _ in range(2):
        assert await new.keeper.prepare(claim) == (granted(claim, "r0", STICK_NAME),)
    assert kept.nodes_of(claim) == [
        ("/dev/bus/usb/001/003", "c", 189, 2), ("/dev/ttyUSB0", "c", 188, 0),
    ]  # fmt: skip


async def test_a_home_that_never_answers_is_given_up_in_time(
    kept: Keeping, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cdi, "PREPARE_SECONDS", 0.1)
    kept.cluster.claims_free = trio.Event()
    claim = kept.claim(STICK_NAME)
    outcomes = []

    async def prepare() -> None:
        outcomes.append(reason_of(await kept.keeper.prepare(claim)))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(prepare)
        nursery.start_soon(prepare)  # waits for its turn, and no longer than that
    assert outcomes == [f"the claim {claim} took too long to prepare"] * 2
    kept.cluster.claims_free.set()
    monkeypatch.undo()
    assert isinstance(await kept.keeper.prepare(claim), tuple)
