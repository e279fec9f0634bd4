"""Hardware that is given back, and hardware that is not."""

import errno
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import trio
from structlog.typing import EventDict

from liken_events.core.model.prepared import Aliases
from liken_events.sinks import usb_drivers
from liken_events.sinks.usb_drivers import UsbDrivers
from tests.fakes.agents import Build
from tests.fakes.devices import drm, pci, tty, usb
from tests.fakes.held import held
from tests.fakes.keeping import OTHER, OTHER_NAME, STICK, STICK_NAME, Keeping
from tests.fakes.machines import machine
from tests.fakes.waiting import until

GPU = pci("0000:00:02.0", "8086:3e92", "030000", "i915", nodes=[drm("renderD128", 128)])


@pytest.fixture
def kept(build: Build, tmp_path: Path) -> Keeping:
    found = Keeping(build(machine([STICK, OTHER, GPU])), tmp_path)
    found.look()
    return found


def asked(kept: Keeping) -> str:
    """What was written to `drivers_probe` last."""
    return Path(kept.tree.sys, "bus/usb/drivers_probe").read_text()


def told(logs: list[EventDict]) -> list[str]:
    return [line["event"] for line in logs if line["event"].startswith("claim.g")]


async def test_an_interface_without_a_driver_is_given_back(
    kept: Keeping, logs: list[EventDict]
) -> None:
    claim = await kept.prepared(STICK_NAME)
    kept.tree.unbind(STICK.key)
    assert await kept.keeper.unprepare(claim) is None
    assert asked(kept) == "1-9:1.0"
    assert told(logs) == ["claim.gave_back"]


async def test_it_is_given_back_by_an_agent_that_was_started_since(kept: Keeping) -> None:
    claim = await kept.prepared(STICK_NAME)
    kept.delete(claim)
    kept.tree.unbind(STICK.key)
    new = kept.anew()
    await new.holdings.restore()
    assert await new.keeper.unprepare(claim) is None
    assert asked(kept) == "1-9:1.0"


async def test_it_is_given_back_while_its_spec_still_names_it(kept: Keeping) -> None:
    claim = await kept.prepared(STICK_NAME)
    kept.tree.unbind(STICK.key)
    seen: list[bool] = []
    kept.looks.before = lambda: seen.append(os.path.exists(kept.spec_path(claim)))
    await kept.keeper.unprepare(claim)
    assert seen == [True]


@pytest.mark.parametrize("state", ["bound", "gone", "replaced", "unknown claim"])
async def test_anything_else_is_left_alone(
    kept: Keeping, logs: list[EventDict], state: str
) -> None:
    claim = await kept.prepared(STICK_NAME)
    match state:
        case "gone":
            kept.tree.unplug("1-9")
        case "replaced":
            kept.tree.unplug("1-9")
            kept.tree.plug(usb("1-9:1.0", "0403:6001", "ff0000", None, 12))
        case "unknown claim":
            kept.tree.unbind(STICK.key)
            claim = kept.claim(STICK_NAME)
    assert await kept.keeper.unprepare(claim) is None
    assert asked(kept) == ""
    assert told(logs) == []


async def test_a_model_that_is_listed_as_the_same_is_given_back(kept: Keeping) -> None:
    stick = held(STICK)
    kept.tree.unplug("1-9")
    kept.tree.plug(usb("1-9:1.0", "0403:6001", "ff0000", None, 13))
    same = Aliases(groups=(frozenset({"10c4:ea60", "0403:6001"}),))
    await UsbDrivers(kept.tree.sys, kept.looks, same).give_back(stick)
    assert asked(kept) == "1-9:1.0"


async def test_pci_functions_are_nobodys_to_give_back(kept: Keeping) -> None:
    claim = await kept.prepared("pci-0000-00-02-0")
    kept.tree.unbind(GPU.key)
    kept.looks.looked.clear()
    assert await kept.keeper.unprepare(claim) is None
    assert kept.looks.looked == []
    assert asked(kept) == ""


async def test_what_another_claim_holds_is_given_back_by_the_last(kept: Keeping) -> None:
    first = await kept.prepared(STICK_NAME)
    second = await kept.prepared(STICK_NAME, adminAccess=True)
    kept.tree.unbind(STICK.key)
    assert await kept.keeper.unprepare(first) is None
    assert asked(kept) == ""
    assert await kept.keeper.unprepare(second) is None
    assert asked(kept) == "1-9:1.0"


async def test_each_interface_of_a_claim_is_given_back(
    kept: Keeping, monkeypatch: pytest.MonkeyPatch
) -> None:
    probed: list[str] = []
    monkeypatch.setattr(UsbDrivers, "probe", lambda _, address: probed.append(address))
    claim = await kept.prepared(STICK_NAME, OTHER_NAME)
    kept.tree.unbind(STICK.key)
    kept.tree.unbind(OTHER.key)
    await kept.keeper.unprepare(claim)
    assert probed == ["1-8:1.0", "1-9:1.0"]


@pytest.mark.parametrize("failure", ["probe", "look"])
async def test_what_fails_is_told_and_ends_nothing(
    kept: Keeping, logs: list[EventDict], failure: str
) -> None:
    claim = await kept.prepared(STICK_NAME)
    kept.tree.unbind(STICK.key)
    if failure == "probe":
        os.unlink(f"{kept.tree.sys}/bus/usb/drivers_probe")
    else:
        kept.looks.failing.add(STICK.key)
    assert await kept.keeper.unprepare(claim) is None
    assert told(logs) == ["claim.give_back_failed"]
    assert kept.left == []


@pytest.fixture
def gate() -> Iterator[threading.Event]:
    """Opened in the end, so that no thread stays behind."""
    event = threading.Event()
    yield event
    event.set()


async def test_a_probe_that_hangs_is_not_waited_for(
    kept: Keeping, logs: list[EventDict], monkeypatch: pytest.MonkeyPatch, gate: threading.Event
) -> None:
    monkeypatch.setattr(usb_drivers, "GIVE_BACK_SECONDS", 0.05)
    monkeypatch.setattr(UsbDrivers, "probe", lambda *_: gate.wait(30))
    claim, other = await kept.prepared(STICK_NAME), kept.claim(OTHER_NAME)
    kept.tree.unbind(STICK.key)
    with trio.fail_after(10):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(kept.keeper.unprepare, claim)
            nursery.start_soon(kept.keeper.prepare, other)
    assert [line["reason"] for line in logs if line["event"] == "claim.give_back_failed"] == [
        "the probe takes long"
    ]
    assert claim.uid not in kept.holdings.prepared
    assert other.uid in kept.holdings.prepared


async def test_a_probe_that_takes_long_delays_no_other_claim(
    kept: Keeping, monkeypatch: pytest.MonkeyPatch, gate: threading.Event
) -> None:
    monkeypatch.setattr(UsbDrivers, "probe", lambda *_: gate.wait(30))
    claim = await kept.prepared(STICK_NAME)
    kept.tree.unbind(STICK.key)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(kept.keeper.unprepare, claim)
        await until(lambda: kept.looks.looked[-2:] == [STICK.key, STICK.key])
        with trio.fail_after(5):
            await kept.prepared(OTHER_NAME)
        assert claim.uid in kept.holdings.prepared
        gate.set()
    assert claim.uid not in kept.holdings.prepared


async def test_a_call_that_is_given_up_while_it_gives_back_can_be_made_again(
    kept: Keeping, monkeypatch: pytest.MonkeyPatch, gate: threading.Event
) -> None:
    monkeypatch.setattr(UsbDrivers, "probe", lambda *_: gate.wait(30))
    claim = await kept.prepared(STICK_NAME)
    kept.tree.unbind(STICK.key)
    with trio.move_on_after(0.05):
        await kept.keeper.unprepare(claim)
    assert claim.uid in kept.holdings.prepared
    gate.set()
    assert await kept.keeper.unprepare(claim) is None
    assert kept.left == []


def test_an_interface_that_is_gone_is_an_error(kept: Keeping) -> None:
    """A real kernel answers ENODEV; a made-up sysfs that is read-only refuses the file."""
    drivers = UsbDrivers(f"{kept.tree.root}/none", kept.looks, Aliases())
    with pytest.raises(OSError, match="No such file") as raised:
        drivers.probe("1-9:1.0")
    assert raised.value.errno == errno.ENOENT


async def test_a_driver_that_comes_back_gives_its_nodes(kept: Keeping) -> None:
    claim = await kept.prepared(STICK_NAME)
    kept.tree.unbind(STICK.key)
    await kept.refresh()
    await kept.keeper.unprepare(claim)
    kept.tree.bind(STICK.key, "cp210x", [tty("ttyUSB3", 3)])
    kept.look()
    again = await kept.prepared(STICK_NAME)
    assert kept.specs.paths(again.uid, STICK_NAME) == ["/dev/bus/usb/001/012", "/dev/ttyUSB3"]
