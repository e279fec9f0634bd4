"""`liken-events` with a simulation that does not wait for anybody to read along, and what that
tells."""

import re
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import pytest

from liken_events import cli
from liken_events.commands import demo
from liken_events.core.model.recording import to_json
from liken_events.core.model.snapshot import Snapshot
from liken_events.simulate.script import Step
from tests.fakes.devices import tty, usb
from tests.fakes.machines import machine

SMALL = machine([usb("1-1:1.0", "10c4:ea60", "ff0000", "cp210x", 2, nodes=[tty("ttyUSB0", 0)])])
"""A machine with one stick, for claims that do not depend on what happens."""
STICK = "usb-1-1-1-0"

CHANGE = re.compile(r" {4}[-+~] (\S+)  .*\[.+, \d+ ms\]")
"""One line of what a step changed: the device, what is new, why, and how long it took."""


def main(words: Sequence[str]) -> int:
    """Runs one command; returns its exit status."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(demo, "simulate", partial(demo.simulate, pause=0, spread=0))
        return cli.main(list(words))


def saved(snapshot: Snapshot, where: Path) -> str:
    """A file with a recorded machine."""
    path = where / "machine.json"
    path.write_text(to_json(snapshot), "utf-8")
    return str(path)


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
