"""The whole agent on recordings of a real kernel, and on what that kernel might have done as well.

What was published, said and written was recorded with the events, and the recorded test asserted
it then (`tests/vm`). How recordings are made is said in `tests/data/hotplug/README.md`.
"""

from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeAlias

import pytest
from structlog.typing import EventDict
from trio.testing import MockClock

from tests.fakes.host_dev import need_nodes
from tests.fakes.recordings import Devices, Recording, Told, hurried, load, lossy, names, told
from tests.fakes.replay import Replay, nodes_in

MOST_LATE = 0.25
"""Seconds between an event and the look at its device in a recording, at most: what an agent waits
before it looks itself."""

SCENARIOS = pytest.mark.parametrize("name", names())


Prepare: TypeAlias = Callable[[Recording, str], Replay]


@pytest.fixture
def prepare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Prepare:
    """Makes a replay that has not begun."""
    need_nodes(tmp_path)
    return lambda recording, group: Replay(str(tmp_path), recording, group, monkeypatch)


@SCENARIOS
@pytest.mark.parametrize("group", ["kernel", "udev"])
async def test_it_is_as_it_was(
    prepare: Prepare, clock: MockClock, logs: list[EventDict], name: str, group: str
) -> None:
    recording = load(name)
    replay = prepare(recording, group)
    await replay.run(recording.steps)
    assert_as_recorded(recording, replay, logs)
    assert is_among(recording.resting, replay.versions)


@SCENARIOS
async def test_a_kernel_that_hurries_and_repeats_itself_changes_nothing(
    prepare: Prepare, clock: MockClock, logs: list[EventDict], name: str
) -> None:
    recording = load(name)
    replay = prepare(recording, "kernel")
    await replay.run(hurried(recording))
    assert_as_recorded(recording, replay, logs)


@SCENARIOS
async def test_what_was_waited_for_is_found_though_every_event_is_lost(
    prepare: Prepare, clock: MockClock, name: str
) -> None:
    recording = load(name)
    replay = prepare(recording, "udev")
    await replay.run(lossy(recording))
    waited_for = histories([*recording.pauses.values(), recording.states[-1]])
    found, known = histories(replay.versions), histories(recording.states)
    for address, history in found.items():
        assert is_among(history, known[address])
        assert is_among(waited_for.get(address, []), history)
    assert waited_for.keys() <= found.keys()
    assert replay.versions[-1] == recording.states[-1]


@SCENARIOS
def test_a_recording_is_worth_its_while(name: str) -> None:
    recording = load(name)
    assert recording.late <= MOST_LATE
    assert len(recording.states) > 2
    assert recording.told


def test_every_kind_of_change_is_recorded() -> None:
    steps = [step for name in names() for step in load(name).steps]
    assert {step.group for step in steps} == {"", "kernel", "udev"}
    assert {step.table[0] for step in steps if step.table} == {"/proc/1/mountinfo", "/proc/swaps"}
    assert any(step.claim for step in steps)


def assert_as_recorded(recording: Recording, replay: Replay, logs: list[EventDict]) -> None:
    """Each device goes through the same states, the log says the same of it, and specs name the
    same nodes and no others. Devices that come or go at one time may do so in another order."""
    assert histories(replay.versions) == histories(recording.states)
    assert all(old != new for old, new in pairwise(replay.versions))
    said = [told(line["event"], line) for line in logs if line["event"].startswith("device.")]
    assert by_device(said) == by_device(recording.told)
    assert [line for line in logs if line["log_level"] not in {"debug", "info"}] == []
    texts = [(uid, None if text is None else nodes_in(text)) for uid, text in replay.specs]
    assert delivered(texts) == delivered(recording.specs)
    assert replay.strangers == []


def histories(states: Sequence[Devices]) -> dict[str, list[Devices]]:
    """For each piece of hardware all that it was published as, one after the other. Its parts are
    one: a GPU with one of its two nodes is a state of its own."""
    addresses = {device["address"] for state in states for device in state.values()}
    found: dict[str, list[Devices]] = {address: [] for address in addresses}
    for state in states:
        for address, history in found.items():
            parts = {name: it for name, it in state.items() if it["address"] == address}
            if not history or history[-1] != parts:
                history.append(parts)
    return found


def is_among(wanted: Iterable[Devices], states: Iterable[Devices]) -> bool:
    """Whether all of these states were there, in this order."""
    rest = iter(states)
    return all(state in rest for state in wanted)


def by_device(lines: Iterable[Told]) -> dict[str, list[Told]]:
    """What was said of each device."""
    found: dict[str, list[Told]] = {}
    for line in lines:
        found.setdefault(line.device, []).append(line)
    return found


def delivered(specs: Iterable[tuple[str, Any]]) -> dict[str, list[Any]]:
    """For each claim all nodes that its spec ever gave, with their numbers, one set after the
    other. What it names while a device is away, a runtime refuses; those words depend on the
    moment."""
    found: dict[str, list[Any]] = {}
    for uid, nodes in specs:
        history = found.setdefault(uid, [])
        given = nodes and {
            name: [node for node in paths if len(node) > 1] for name, paths in nodes.items()
        }
        if not history or history[-1] != given:
            history.append(given)
    return found
