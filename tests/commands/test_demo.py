import os
import re
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from liken_events.core.model.snapshot import Snapshot
from liken_events.simulate.recordings import desk
from liken_events.simulate.script import Played, Step, desk_script, generic_script, play
from liken_events.simulate.uevents import InProcessFeed
from tests.fakes import quick_demo
from tests.fakes.agents import QUICK, Build
from tests.fakes.devices import drm, pci
from tests.fakes.following import Following
from tests.fakes.machines import homelab, machine
from tests.fakes.network import PrivateNetwork
from tests.fakes.quick_demo import SMALL, STICK, saved, told
from tests.fakes.screen import CTRL_C, Screen, process
from tests.fakes.typed import at
from tests.fakes.waiting import until

QUICK_MAIN = f"{quick_demo.__name__}:main"
DESK = ("run", "--simulate", "desk", *QUICK)


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
