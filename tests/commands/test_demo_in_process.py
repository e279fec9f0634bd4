"""The demonstration where no namespace can be had, or none is needed."""

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from liken_events.agent import run_agent
from liken_events.commands import CommandError, demo
from liken_events.core.model.snapshot import Device, Disk, Node, Snapshot, Storage
from liken_events.simulate import namespace
from liken_events.simulate.script import desk_script, generic_script
from liken_events.sources import Source
from liken_events.sources.mounts import MountsSource
from tests.fakes import quick_demo
from tests.fakes.agents import QUICK, Build
from tests.fakes.machines import empty_vm, homelab, machine
from tests.fakes.quick_demo import SMALL, STICK, saved, told
from tests.fakes.screen import STYLES
from tests.fakes.typed import Ran, at, typed


@pytest.fixture
def no_namespace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No program can be started that makes namespaces."""
    monkeypatch.setenv("PATH", str(tmp_path))


def quick(*words: str, columns: int | None = None) -> Ran:
    """Runs a command in this process, without pauses."""
    return typed(*words, columns=columns, run=quick_demo.main)


@pytest.mark.usefixtures("no_namespace")
def test_without_a_namespace_the_same_happens_within_the_process_and_the_reason_is_told(
    temporary: Path,
) -> None:
    ran = quick("run", "--simulate", "desk", *QUICK)
    assert (ran.status, ran.err) == (0, "")
    assert "(uevents are handed over in-process: unshare " in ran.out
    assert all(told(ran.out, desk_script()))
    assert os.listdir(temporary) == []


@pytest.mark.usefixtures("no_namespace", "temporary")
def test_without_a_namespace_nobody_listens_to_the_machine_s_own_events(
    monkeypatch: pytest.MonkeyPatch, small: str
) -> None:
    listening: list[object] = []

    async def noted(*args: Any, sources: Sequence[Source] | None, **kwargs: Any) -> None:
        listening.append(None if sources is None else [type(source) for source in sources])
        await run_agent(*args, sources=None if sources is None else [*sources], **kwargs)

    monkeypatch.setattr(demo, "run_agent", noted)
    assert quick("run", "--simulate", small, *QUICK).status == 0
    assert listening == [[MountsSource]]


@pytest.mark.usefixtures("no_namespace", "temporary")
def test_without_a_namespace_a_terminal_gets_colours_too(small: str) -> None:
    ran = quick("run", "--simulate", small, *QUICK, columns=200)
    assert ran.status == 0
    assert f"\x1b[1;31m- {STICK}\x1b[0m  gone" in ran.out
    assert told(STYLES.sub("", ran.out), generic_script(SMALL)) == [{STICK}] * 5


@pytest.mark.usefixtures("no_namespace", "temporary")
def test_a_machine_from_a_file_has_a_script_of_its_own(tmp_path: Path) -> None:
    adapter = machine(d for d in homelab().devices if d.key.address.startswith("1-4"))
    ran = quick("run", "--simulate", saved(adapter, tmp_path), *QUICK)
    assert ran.status == 0
    both = {"usb-1-4-1-0", "usb-1-4-1-1"}
    assert told(ran.out, generic_script(adapter)) == [
        *([both] * 3),  # out, in, and under a new number
        *([{"usb-1-4-1-0"}] * 2),  # without its driver, and with it
        *([{"usb-1-4-1-1"}] * 2),
    ]


@pytest.mark.usefixtures("no_namespace", "temporary")
def test_a_machine_with_nothing_to_claim_is_shown_and_nothing_happens(tmp_path: Path) -> None:
    ran = quick("run", "--simulate", saved(empty_vm(), tmp_path), *QUICK)
    assert ran.status == 0
    assert "\n0 steps, 0 changes\n" in ran.out


@pytest.mark.usefixtures("no_namespace", "temporary")
def test_a_machine_with_nothing_to_claim_is_replaced_by_a_simulated_one(
    standing: Build, small: str
) -> None:
    ran = quick("run", "--simulate-if-empty", small, *at(standing(empty_vm())), *QUICK)
    assert ran.status == 0
    assert ran.out.splitlines()[0] == (
        "Nothing on this machine can be claimed (0 devices offered, 3 withheld, 3 devices seen), "
        f"so here is a simulated one: '{small}'."
    )
    assert told(ran.out, generic_script(SMALL)) == [{STICK}] * 5


def test_a_machine_that_cannot_be_simulated_is_told_before_anything_starts(
    standing: Build, temporary: Path
) -> None:
    ran = typed("run", "--simulate-if-empty", "moon", *at(standing(empty_vm())))
    assert ran.status == 1
    assert ran.err == ("liken-events: 'moon' is neither the recorded machine 'desk' nor a file\n")
    assert os.listdir(temporary) == []


OUT = "../" * 12
"""More steps up than any tree has; at the root of all there are none left."""

[_STICK] = SMALL.devices


def made_of(device: Device = _STICK, *disks: Disk) -> Snapshot:
    return Snapshot(devices=(device,), storage=Storage(disks=disks))


def with_node(**facts: str) -> Snapshot:
    node = {"path": "/dev/x0", "subsystem": "tty", "place": "tty/x0", **facts}
    return made_of(replace(_STICK, nodes=(Node(major=1, minor=2, **node),)))


def hostile(where: str) -> dict[str, Snapshot]:
    """Machines that say of each thing with a place in sysfs that it is at an absolute path; and
    those with texts that can be no name or in no file."""
    out = f"{OUT}{where.lstrip('/')}"
    disk = Disk(name="dm-0", number="253:0")
    key = replace(_STICK.key, address=f"{out}:1.0")
    return {
        "path": made_of(replace(_STICK, path=f"/devices/{out}")),
        "path of its own": made_of(replace(_STICK, path=where)),
        "PCI path": made_of(
            replace(_STICK, key=replace(key, bus="pci"), path=f"/devices/{out}", driver=None)
        ),
        "path of NUL": made_of(replace(_STICK, path="/devices/\0/1-1:1.0")),
        "path of half a character": made_of(replace(_STICK, path="/devices/\ud800/1-1:1.0")),
        "long path": made_of(replace(_STICK, path=f"/devices/{'x' * 300}/1-1:1.0")),
        "driver": made_of(replace(_STICK, driver=f"{out}/sub")),
        "driver of NUL": made_of(replace(_STICK, driver="a\0b")),
        "driver of half a character": made_of(replace(_STICK, driver="\ud800")),
        "place": with_node(place=out),
        "subsystem": with_node(subsystem=out),
        "place behind a link": with_node(place="subsystem/a/b/c/d/e/f/g/h"),
        "hidden disk": made_of(replace(_STICK, hidden_disks=(out,))),
        "disk": made_of(_STICK, replace(disk, name=out)),
        "number": made_of(_STICK, replace(disk, number=out)),
        "whole": made_of(_STICK, replace(disk, whole=out)),
        "slave": made_of(_STICK, replace(disk, slaves=(out,))),
        "btrfs": made_of(_STICK, replace(disk, btrfs=(out,))),
        "mapper of half a character": made_of(_STICK, replace(disk, mapper="\ud800")),
        "PCI maker of half a character": made_of(
            replace(_STICK, key=replace(key, bus="pci"), maker="\ud800")
        ),
    }


def everything(top: Path) -> dict[str, bytes]:
    return {
        str(path): path.read_bytes() if path.is_file() else os.fsencode(os.path.realpath(path))
        for path in top.rglob("*")
    }


@pytest.mark.usefixtures("no_namespace")
@pytest.mark.parametrize("what", hostile("/"))
def test_a_recorded_machine_that_reaches_out_of_its_tree_changes_nothing(
    temporary: Path, tmp_path: Path, what: str
) -> None:
    victim = tmp_path / "victim"
    for name in ("1-1:1.0", "x0", "dm-0", "sub/1-1:1.0"):
        (victim / name).parent.mkdir(exist_ok=True, parents=True)
        (victim / name).write_text("precious", "utf-8")
    path = saved(hostile(str(victim))[what], tmp_path)
    before = everything(tmp_path)
    ran = typed("run", "--simulate", path, *QUICK)
    assert everything(tmp_path) == before
    assert (ran.status, ran.out) == (1, "")
    assert ran.err.startswith(f"liken-events: {path}: no machine can be made of it: ")
    assert len(ran.err.splitlines()) == 1
    assert ran.err.removesuffix("\n").isprintable()
    assert os.listdir(temporary) == []


@pytest.mark.usefixtures("no_namespace", "temporary")
def test_a_slice_that_does_not_come_to_say_what_happened_is_a_failure(
    monkeypatch: pytest.MonkeyPatch, small: str
) -> None:
    monkeypatch.setattr(demo, "decode", lambda _: None)  # the agent is deaf
    monkeypatch.setattr(demo, "PATIENCE_SECONDS", 0.01)
    ran = quick("run", "--simulate", small, *QUICK)
    assert ran.status == 1
    assert "\n    the slice does not say so after 0.01 s\n" in ran.out


@pytest.mark.usefixtures("no_namespace", "temporary")
def test_a_step_that_changes_nothing_says_so(small: str) -> None:
    ran = quick("run", "--simulate", small, "--ignore", "driver=cp210x", *QUICK)
    assert ran.status == 0
    assert ran.out.count("\n    nothing that is offered changes\n") == 5


@pytest.mark.usefixtures("no_namespace", "temporary")
def test_the_log_is_silent_unless_it_is_asked_for(tmp_path: Path) -> None:
    words = ("run", "--simulate", saved(empty_vm(), tmp_path), *QUICK)
    assert quick(*words).err == ""
    assert '"machine.read"' in quick(*words, "--log-level=debug").err


@pytest.mark.parametrize(
    ("typed_words", "again"),
    [
        (["--simulate", "desk"], ["--simulate", "desk"]),
        (["--simulate=desk", "--keep"], ["--keep", "--simulate", "desk"]),
        (
            ["--simulate-if-empty", "desk", "--settle-quiet", "1"],
            ["--settle-quiet", "1", "--simulate", "desk"],
        ),
        (["--simulate-if-empty=desk"], ["--simulate", "desk"]),
        (
            ["--simulate-if-empty", "x.json", "--simulate", "desk"],
            ["--simulate", "desk"],
        ),
    ],
)
def test_what_is_typed_again_in_a_namespace_means_the_simulated_machine(
    standing: Build,
    monkeypatch: pytest.MonkeyPatch,
    typed_words: list[str],
    again: list[str],
) -> None:
    seen: list[list[str]] = []

    def reexec(words: list[str]) -> None:
        seen.append(words)
        raise CommandError("this process is another program now")

    monkeypatch.setattr(namespace, "reexec", reexec)
    flags = at(standing(empty_vm()))
    assert quick("run", *flags, *typed_words).status == 1
    assert seen == [["run", *flags, *again]]
