"""Recordings of a real kernel, as they are in `tests/data/hotplug`.

What the lines of one mean is said there. This file reads them, and makes others of them that a
kernel might have caused as well: faster and with every event twice, or with all events lost.
"""

import json
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeAlias

from tests.fakes.recorded_tree import Files

DIRECTORY = Path(__file__).parents[1] / "data" / "hotplug"

Devices: TypeAlias = Mapping[str, Mapping[str, Any]]
"""Published devices: name to attributes."""

PAUSE_SECONDS = 0.2
"""No test reacts faster, and hardly a burst has such gaps."""

RESTING_SECONDS = 1.0
"""What was published for so long was not on its way to something else."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """Something that happened.

    Attributes:
        at: seconds since the first event.
        changed: directories that are other ones from now on; None for one that is gone.
        group: whose event it is: `kernel`, `udev`, or none.
        message: the event's bytes; empty for one that is lost.
        table: a table of `/proc` that is another one from now on, and its lines.
        claim: the file of a claim that comes, or goes, and its text.
    """

    at: float
    changed: Mapping[str, Files | None] = field(default_factory=dict)
    group: str = ""
    message: bytes = b""
    table: tuple[str, Sequence[str]] | None = None
    claim: tuple[str, str | None] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """A line of the log about one device: `device.added`, its nodes, and what differs or why."""

    word: str
    device: str
    nodes: tuple[str, ...]
    details: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Recording:
    """What happened during one test on a real kernel.

    Attributes:
        late: how much later than its event a device was looked at, at most, in seconds.
        there: the directories that were there at the start.
        tables: the tables of `/proc` at the start.
        steps: what happened.
        moments, states: what was published: at the start, and each version since.
        told: what the log said of devices.
        specs: each version of each claim's CDI spec: its uid, and the nodes of its devices; None
            for one that went.
    """

    late: float
    there: Mapping[str, Files]
    tables: Mapping[str, Sequence[str]]
    steps: Sequence[Step]
    moments: Sequence[float]
    states: Sequence[Devices]
    told: Sequence[Told]
    specs: Sequence[tuple[str, Any]]

    @property
    def kernel_moments(self) -> list[float]:
        """When something happened, other than that udevd told of it."""
        return sorted({step.at for step in self.steps if step.group != "udev"})

    @property
    def pauses(self) -> dict[tuple[float, float], Devices]:
        """Where the kernel was quiet and something was published, which the recorded test waited
        for before it did more: start and end of each such time, and what was published last."""
        found = {}
        for before, after in pairwise(self.kernel_moments):
            waited_for = [
                state
                for moment, state in zip(self.moments, self.states, strict=True)
                if before <= moment < after
            ]
            if waited_for and after - before >= PAUSE_SECONDS:
                found[before, after] = waited_for[-1]
        return found

    @property
    def resting(self) -> list[Devices]:
        """The states that lasted."""
        ends = [*self.moments[1:], float("inf")]
        return [
            state
            for state, start, end in zip(self.states, self.moments, ends, strict=True)
            if end - start >= RESTING_SECONDS
        ]


def names() -> list[str]:
    """The scenarios."""
    return sorted(path.stem for path in DIRECTORY.glob("*.jsonl"))


def load(name: str) -> Recording:
    """Reads a recording."""
    text = (DIRECTORY / f"{name}.jsonl").read_text("utf-8")
    head, *lines = [json.loads(line) for line in text.splitlines()]
    moments, states = [float("-inf")], [head["published"]]
    for line in lines:
        if "published" in line:
            merged = {**states[-1], **line["published"]}
            moments.append(line["at"])
            states.append({key: value for key, value in merged.items() if value is not None})
    return Recording(
        late=head["late"],
        there={line["there"]: line["files"] for line in lines if "there" in line},
        tables={
            line["table"]: line["lines"] for line in lines if line.keys() == {"table", "lines"}
        },
        steps=[_step(line) for line in lines if _is_step(line)],
        moments=moments,
        states=states,
        told=[told(line["told"], line) for line in lines if "told" in line],
        specs=[(line["spec"], line["nodes"]) for line in lines if "spec" in line],
    )


def told(word: str, line: Mapping[str, Any]) -> Told:
    """What a line of the log says."""
    return Told(
        word=word,
        device=line["device"],
        nodes=tuple(line["nodes"]),
        details=tuple(line.get("details", ())),
    )


def hurried(recording: Recording) -> list[Step]:
    """Bursts at ten times the speed, and every event twice in a row."""
    made = []
    for step in _paced(recording, 10):
        made.append(step)
        if step.group:
            made.append(replace(step, changed={}))
    return made


def lossy(recording: Recording) -> list[Step]:
    """No event fits into the listener's buffer."""
    return [replace(step, message=b"") for step in _paced(recording, 1)]


def _paced(recording: Recording, speed: float) -> list[Step]:
    """The steps with less time between them, but a second at least for each pause. What udevd says
    keeps its place between two events of the kernel's."""
    moments = recording.kernel_moments
    shifted = [0.0]
    for before, after in pairwise(moments):
        is_pause = (before, after) in recording.pauses
        gap = after - before
        shifted.append(shifted[-1] + (max(gap, RESTING_SECONDS) if is_pause else gap / speed))
    made = []
    for step in recording.steps:
        number = min(max(1, bisect_right(moments, step.at)), len(moments) - 1)
        start, end = moments[number - 1 : number + 1]
        part = (step.at - start) / (end - start)
        at = shifted[number - 1] + part * (shifted[number] - shifted[number - 1])
        made.append(replace(step, at=at))
    return made


def _is_step(line: Mapping[str, Any]) -> bool:
    return "at" in line and not line.keys().isdisjoint({"kernel", "udev", "table", "claim"})


def _step(line: Mapping[str, Any]) -> Step:
    group = next((name for name in ("kernel", "udev") if name in line), "")
    return Step(
        at=line["at"],
        changed=line.get("changed", {}),
        group=group,
        message=_message(line[group], line.get("header", "")) if group else b"",
        table=(line["table"], line["lines"]) if "table" in line else None,
        claim=(line["claim"], line["text"]) if "claim" in line else None,
    )


def _message(texts: Sequence[str], header: str) -> bytes:
    """A message as it came: udevd's has a header of numbers before its texts."""
    body = "".join(f"{text}\0" for text in texts)
    return bytes.fromhex(header) + body.encode("utf-8", "surrogateescape")
