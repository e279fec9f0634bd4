"""The watcher says what is wrong with the records of a guest, and nothing else."""

import json
import socket
from collections.abc import Iterator
from typing import Any

import pytest

from liken_events.cluster.slice_file import dump_slice
from tests.fakes.agents import NODE, SLICE
from tests.vm.control import Control
from tests.vm.desk import CDI, SLICES
from tests.vm.soak.invariants import Broken, Watcher

AGENT, NODES, KUBELET = 10, 11, 12
SHAPES = {"usb-1-1-1-0": {"bus": "usb"}, "gpu": {"bus": "pci"}}


@pytest.fixture
def watcher() -> Iterator[Watcher]:
    """Watches records that a test puts in."""
    ours, theirs = socket.socketpair()
    control = Control(ours)
    watcher = Watcher(control)
    watcher.is_agent(AGENT)
    watcher.tells_nodes(NODES)
    yield watcher
    theirs.close()
    control.close()


def say(watcher: Watcher, *records: dict[str, Any]) -> None:
    """The guest tells this."""
    watcher.control.records.extend({"time": 1.0, **record} for record in records)
    watcher.take()
    assert watcher.control.records == []


def version(generation: int, **devices: dict[str, str]) -> dict[str, Any]:
    """A record of a slice; underscores stand for dashes."""
    body: dict[str, Any] = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": SLICE},
        "spec": {
            "driver": "liken.sh",
            "nodeName": NODE,
            "pool": {"name": NODE, "generation": generation, "resourceSliceCount": 1},
            "devices": [
                {
                    "name": name.replace("_", "-"),
                    "attributes": {key: {"string": value} for key, value in attributes.items()},
                }
                for name, attributes in devices.items()
            ],
        },
    }
    return {"kind": "file", "directory": SLICES, "name": f"{SLICE}.yaml", "text": dump_slice(body)}


def line(pid: int, **facts: Any) -> dict[str, Any]:
    """A record of what a program said."""
    return {"kind": "line", "pid": pid, "text": json.dumps(facts)}


def test_versions_that_follow_each_other_are_right(watcher: Watcher) -> None:
    watcher.learn(SHAPES)
    say(watcher, version(4, gpu={"bus": "pci"}))
    say(watcher, version(5, gpu={"bus": "pci"}, usb_1_1_1_0={"bus": "usb"}))
    watcher.judge_generation()
    say(watcher, version(6, gpu={"bus": "pci"}))
    watcher.judge_generation()
    assert watcher.offered == {"gpu": {"bus": "pci"}}
    assert watcher.counts["slices"] == 3


def test_a_version_that_was_read_when_the_next_was_there_is_right(watcher: Watcher) -> None:
    say(watcher, version(4), version(6), version(6))
    watcher.judge_generation()


@pytest.mark.parametrize("generations", [(4, 6), (4, 5, 7)])
def test_a_generation_that_was_left_out_is_wrong(
    watcher: Watcher, generations: tuple[int, ...]
) -> None:
    say(watcher, *map(version, generations))
    with pytest.raises(Broken, match="it is"):
        watcher.judge_generation()


@pytest.mark.parametrize("generations", [(4, 3), (4, 4)])
def test_a_generation_that_does_not_grow_is_wrong(
    watcher: Watcher, generations: tuple[int, int]
) -> None:
    first, second = generations
    with pytest.raises(Broken, match="generation"):
        say(watcher, version(first), version(second, gpu={"bus": "pci"}))


def test_a_half_shape_is_wrong(watcher: Watcher) -> None:
    watcher.learn(SHAPES)
    with pytest.raises(Broken, match="gpu was published as"):
        say(watcher, version(1, gpu={"bus": "pci", "driver": "x"}))


def test_a_half_shape_is_wrong_also_before_the_whole_one_is_known(watcher: Watcher) -> None:
    say(watcher, version(1, gpu={}), version(2, gpu={"bus": "pci"}))
    with pytest.raises(Broken, match="gpu was published as"):
        watcher.learn(SHAPES)


def test_the_slice_does_not_go(watcher: Watcher) -> None:
    with pytest.raises(Broken, match="deleted"):
        say(watcher, {**version(1), "text": None})


@pytest.mark.parametrize(
    ("facts", "is_right"),
    [
        ({"event": "machine.read", "level": "info"}, True),
        ({"event": "machine.resync", "level": "warning"}, True),
        ({"event": "machine.resync", "level": "error"}, False),
        ({"event": "claim.refresh_failed", "level": "warning"}, False),
        ({"event": "part.failed", "level": "error", "exception": "…"}, False),
        ({"event": "rpc.failed", "level": "info", "exception": "…"}, False),
    ],
)
def test_what_the_log_may_say(watcher: Watcher, facts: dict[str, str], is_right: bool) -> None:
    if is_right:
        say(watcher, line(AGENT, **facts))
    else:
        with pytest.raises(Broken):
            say(watcher, line(AGENT, **facts))


def test_what_is_no_log_is_wrong_but_for_one_that_was_killed(watcher: Watcher) -> None:
    half = {"kind": "line", "pid": AGENT, "text": "Traceback"}
    with pytest.raises(Broken, match="no JSON"):
        say(watcher, half)
    watcher.is_killed(AGENT)
    say(watcher, half)


def test_an_end_that_nobody_wanted_is_wrong(watcher: Watcher) -> None:
    watcher.is_killed(KUBELET)
    say(watcher, {"kind": "ended", "pid": KUBELET, "status": -9})
    with pytest.raises(Broken, match="ended"):
        say(watcher, {"kind": "ended", "pid": AGENT, "status": 1})


def test_specs_are_held_against_the_nodes(watcher: Watcher) -> None:
    spec = {
        "devices": [
            {
                "name": "u-usb-1-1-1-0",
                "containerEdits": {"deviceNodes": [{"path": "/dev/ttyUSB0"}]},
            }
        ]
    }
    file = {"kind": "file", "directory": CDI, "name": "liken.sh-u.json"}
    came = {"came": True, "path": "/dev/ttyUSB0", "numbers": [188, 0], "owner": "1-2", "time": 2.0}
    say(watcher, {**file, "text": json.dumps(spec)}, line(NODES, **came))
    assert len(watcher.ownership.judge(9.0)) == 1
    say(watcher, {**file, "text": None, "time": 9.0})
    assert watcher.specs == {}
