import os
import re
import signal
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from liken_events.commands import CommandError, demo
from liken_events.core.model.recording import to_json
from liken_events.core.model.snapshot import Snapshot
from liken_events.simulate import namespace
from liken_events.simulate.recordings import desk
from liken_events.simulate.script import Played, Step, desk_script, generic_script, play
from liken_events.simulate.uevents import InProcessFeed
from tests.fakes import quick_demo
from tests.fakes.agents import QUICK, Build
from tests.fakes.devices import drm, pci, tty, usb
from tests.fakes.following import Following
from tests.fakes.machines import empty_vm, homelab, machine
from tests.fakes.network import PrivateNetwork
from tests.fakes.screen import CTRL_C, STYLES, Screen, process
from tests.fakes.typed import Ran, at, typed
from tests.fakes.waiting import until

QUICK_MAIN = "tests.fakes.quick_demo:main"
DESK = ("run", "--simulate", "desk", *QUICK)

SMALL = machine([usb("1-1:1.0", "10c4:ea60", "ff0000", "cp210x", 2, nodes=[tty("ttyUSB0", 0)])])
"""A machine with one stick, for claims that do not depend on what happens."""
STICK = "usb-1-1-1-0"

CHANGE = re.compile(r" {4}[-+~] (\S+)  .*\[.+, \d+ ms\]")
"""One line of what a step changed: the device, what is new, why, and how long it took."""


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The directory for temporary files, with nothing in it."""
    path = tmp_path / "temporary"
    path.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(path))
    return path


@pytest.fixture
def no_namespace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No program can be started that makes namespaces."""
    monkeypatch.setenv("PATH", str(tmp_path))


@pytest.fixture
def small(tmp_path: Path) -> str:
    """A file with the small machine."""
    return saved(SMALL, tmp_path)


def quick(*words: str, columns: int | None = None) -> Ran:
    """Runs a command in this process, without pauses."""
    return typed(*words, columns=columns, run=quick_demo.main)


def saved(snapshot: Snapshot, where: Path) -> str:
    """A file with a recorded machine."""
    path = where / "machine.json"
    path.write_text(to_json(snapshot), "utf-8")
    return str(path)


def left_in(directory: Path) -> list[str]:
    """What is still there."""
    return os.listdir(directory)


def in_file(path: str) -> Any:
    """The value in a YAML file."""
    return yaml.safe_load(Path(path).read_text("utf-8"))


async def expected(build: Build, snapshot: Snapshot, steps: Sequence[Step]) -> list[set[str]]:
    """For each step, the published devices that it changes."""
    found: list[set[str]] = []

    async def note(step: Played) -> None:
        found.append(set(step.expected))

    await play(build(snapshot), InProcessFeed(lambda _: None), note, steps=steps)
    return found


def told(out: str, steps: Sequence[Step]) -> list[set[str]]:
    """For each step that was told of under its number and title, the devices of the changes below
    it."""
    heads = [f"{n:2}/{len(steps)}  {step.title}" for n, step in enumerate(steps, 1)]
    lines = [line.rstrip() for line in out.splitlines()]
    places = [lines.index(head) for head in heads]
    assert places == sorted(places)
    ends = [*places[1:], lines.index("", places[-1])]
    blocks = [lines[place + 1 : end] for place, end in zip(places, ends, strict=True)]
    return [
        {found[1] for line in block if (found := CHANGE.fullmatch(line)) is not None}
        for block in blocks
    ]


async def test_every_step_is_told_with_what_it_changed_and_how_long_that_took(
    build: Build, network: PrivateNetwork, temporary: Path
) -> None:
    environ = {"TMPDIR": str(temporary)}
    with Following(network, *DESK, main=QUICK_MAIN, environ=environ) as run:
        assert await run.ended() == 0
        assert told(run.out, desk_script()) == await expected(build, desk(), desk_script())
        assert re.search(r"\n11 steps, 13 changes, each in the slice \d+ to \d+ ms", run.out)
        assert "in-process" not in run.out
        assert run.err == ""
    assert left_in(temporary) == []


async def test_a_terminal_gets_colours_and_lines_of_its_width(
    network: PrivateNetwork, small: str
) -> None:
    with Screen(100) as screen:
        words = ("run", "--simulate", small, *QUICK)
        with Following(network, *words, screen=screen, main=QUICK_MAIN) as run:
            assert await run.ended() == 0
        screen.finish()
        assert f"\x1b[1;31m- {STICK}\x1b[0m  gone" in screen.text
        assert max(len(line) for line in screen.plain.splitlines()) <= 100
        assert told(screen.plain, generic_script(SMALL)) == [{STICK}] * 5


async def test_the_real_thing_starts_itself_again_in_a_namespace_and_cleans_up(
    network: PrivateNetwork, tmp_path: Path, temporary: Path
) -> None:
    gpu = pci("0000:00:02.0", "8086:3e92", "030000", "i915", nodes=[drm("renderD128", 128)])
    words = ("run", "--simulate", saved(machine([gpu]), tmp_path), *QUICK)
    with Screen() as screen:
        run = process(screen, words, {"TMPDIR": str(temporary)})
        await until(lambda: run.poll() is not None, seconds=30)
        screen.finish()
        assert run.returncode == 0, screen.plain
        assert told(screen.plain, generic_script(machine([gpu]))) == [{"pci-0000-00-02-0"}] * 2
        assert "in-process" not in screen.plain
    assert left_in(temporary) == []


@pytest.mark.usefixtures("no_namespace")
def test_without_a_namespace_the_same_happens_within_the_process_and_the_reason_is_told(
    temporary: Path,
) -> None:
    ran = quick(*DESK)
    assert (ran.status, ran.err) == (0, "")
    assert "(uevents are handed over in-process: unshare " in ran.out
    assert all(told(ran.out, desk_script()))
    assert left_in(temporary) == []


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
    assert left_in(temporary) == []


async def test_a_machine_with_something_to_claim_is_no_simulation(
    build: Build, network: PrivateNetwork, tmp_path: Path
) -> None:
    home = tmp_path / "slices"
    words = ("--simulate-if-empty=desk", "--cluster=directory", f"--cluster-dir={home}")
    flags = (*at(build(homelab())), "--uevents=kernel", *QUICK)
    with Following(network, "run", *words, *flags) as run:
        await run.until(lambda: '"offer.published"' in run.err)
        assert await run.stop(signal.SIGTERM) == 0
        assert run.out == ""
    assert len(list(home.rglob("*.yaml"))) == 1


async def test_the_agent_goes_on_after_the_script_until_ctrl_c_if_that_is_wanted(
    network: PrivateNetwork, temporary: Path, small: str
) -> None:
    environ = {"TMPDIR": str(temporary)}
    with Screen(400) as screen:
        words = ("run", "--simulate", small, "--keep", *QUICK)
        with Following(network, *words, screen=screen, main=QUICK_MAIN, environ=environ) as run:
            await run.until(lambda: "The agent goes on until Ctrl-C." in run.out)
            path = re.findall(r"The slice is (\S+\.yaml)\.", run.out)[0]
            body = in_file(path)
            screen.type(CTRL_C)
            assert await run.ended() == 0
    assert [device["name"] for device in body["spec"]["devices"]] == [STICK]
    assert left_in(temporary) == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
async def test_a_simulation_can_be_stopped_in_the_middle(
    network: PrivateNetwork, temporary: Path, small: str, number: signal.Signals
) -> None:
    environ = {"TMPDIR": str(temporary)}
    with Following(network, "run", "--simulate", small, environ=environ) as run:
        await run.until(lambda: " 1/5  " in run.out)
        assert await run.stop(number) == 0
        assert "5/5" not in run.out
        assert run.err == ""
    assert left_in(temporary) == []


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
