import json
import os
import re
import signal
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Protocol

import pytest

from liken_events.core.model.publish import inventory
from liken_events.core.model.snapshot import Use
from liken_events.simulate.tree import MachineTree
from tests.fakes.agents import QUICK, Build
from tests.fakes.following import Following
from tests.fakes.machines import empty_vm, homelab
from tests.fakes.network import PrivateNetwork
from tests.fakes.screen import CTRL_C, Screen
from tests.fakes.typed import at

STICK = "usb-1-1-1-0"
PLAIN = ("--uevents=kernel", "--log-level=warning", *QUICK)


class Start(Protocol):
    """Starts a command that follows a machine."""

    def __call__(
        self, command: str, tree: MachineTree, *flags: str, screen: Screen | None = None
    ) -> Following: ...


@pytest.fixture
def start(network: PrivateNetwork) -> Iterator[Start]:
    """Starts a command in a private network namespace; it is ended with the test."""
    with ExitStack() as stack:

        def started(
            command: str, tree: MachineTree, *flags: str, screen: Screen | None = None
        ) -> Following:
            words = (command, *at(tree), *PLAIN, *flags)
            return stack.enter_context(Following(network, *words, screen=screen))

        yield started


def offered(tree: MachineTree) -> list[str]:
    """Names of what a machine offers, in order."""
    return [device.name for device in inventory(tree.snapshot).offered]


async def test_watch_first_prints_what_is_offered_and_then_each_change(
    build: Build, start: Start, network: PrivateNetwork
) -> None:
    tree = build(homelab())
    first = offered(tree)
    watch = start("watch", tree)
    await watch.until(lambda: len(watch.lines) == len(first))
    assert [line.split()[1:3] for line in watch.lines] == [["+", name] for name in first]

    network.send(tree.unplug("1-1"))
    await watch.until(lambda: len(watch.lines) == len(first) + 1)
    tree.mount(Use(what="/mnt", fstype="ext4", source="/dev/sdb1", number="8:17"))
    await watch.until(lambda: len(watch.lines) == len(first) + 2)
    tree.unmount("/mnt")
    await watch.until(lambda: len(watch.lines) == len(first) + 3)
    network.send(tree.renumber("1-2", 77))
    await watch.until(lambda: len(watch.lines) == len(first) + 4)

    told = [
        rf"- {STICK}  gone  \[remove 1-1:1\.0, \d+ ms\]",
        r"- usb-2-2-1-0  in-use: /dev/sdb1 is mounted on /mnt  \[mounts changed, \d+ ms\]",
        r"\+ usb-2-2-1-0  /dev/bsg/1:0:0:0 .*/dev/sg1  \[mounts changed, \d+ ms\]",
        r"~ usb-1-2-1-0  .*/077 /dev/ttyUSB1  changed: nodes  \[bind 1-2:1\.0, \d+ ms\]",
    ]
    for line, pattern in zip(watch.lines[len(first) :], told, strict=True):
        assert re.fullmatch(rf"\d\d:\d\d:\d\d  {pattern}", line), line
    assert watch.err == ""


async def test_watch_prints_one_json_object_for_each_change(
    build: Build, start: Start, network: PrivateNetwork
) -> None:
    tree = build(homelab())
    first, whole = offered(tree), tree.snapshot
    watch = start("watch", tree, "-o", "json")

    def objects() -> list[dict[str, Any]]:
        return [json.loads(line) for line in watch.lines]

    await watch.until(lambda: len(watch.lines) == len(first))
    assert [(item["change"], item["device"]) for item in objects()] == [
        ("added", name) for name in first
    ]
    assert all((item["cause"], item["milliseconds"]) == ("", None) for item in objects())

    network.send(tree.unplug("1-1"))
    await watch.until(lambda: len(watch.lines) == len(first) + 1)
    network.send(tree.plug(*(d for d in whole.devices if d.key.address == "1-1:1.0")))
    await watch.until(lambda: len(watch.lines) == len(first) + 2)
    gone, back = objects()[len(first) :]
    for item in (gone, back):
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d[+-]\d{4}", item.pop("time"))
        assert 0 < item.pop("milliseconds") < 20_000
    nodes = ["/dev/bus/usb/001/002", "/dev/ttyUSB0"]
    assert gone == {
        "change": "removed",
        "device": STICK,
        "nodes": nodes,
        "details": ["gone"],
        "cause": "remove 1-1:1.0",
    }
    assert back == {
        "change": "added",
        "device": STICK,
        "nodes": nodes,
        "details": [],
        "cause": "bind 1-1:1.0",
    }


async def test_watch_writes_nothing_anywhere(build: Build, start: Start, tmp_path: Path) -> None:
    tree, home = build(homelab()), tmp_path / "slices"
    watch = start("watch", tree, "--cluster=directory", f"--cluster-dir={home}")
    await watch.until(lambda: watch.lines)
    assert not home.exists()


@pytest.mark.parametrize("form", ["table", "json"])
async def test_watch_ends_by_ctrl_c_without_a_word(build: Build, start: Start, form: str) -> None:
    with Screen() as screen:
        watch = start("watch", build(homelab()), "-o", form, screen=screen)
        await watch.until(lambda: STICK in watch.out)
        screen.type(CTRL_C)
        assert await watch.ended() == 130
        screen.finish()
        assert screen.text.rpartition("^C")[2].strip() == ""
        assert "Traceback" not in screen.text


def test_watch_ends_when_nobody_reads_any_more(build: Build, network: PrivateNetwork) -> None:
    words = ("watch", *at(build(homelab())), *PLAIN)
    reader, writer = os.pipe()
    ours, theirs = os.pipe()
    os.close(reader)
    pid = network.start(words, theirs, writer)
    os.close(writer)
    os.close(theirs)
    with open(ours, encoding="utf-8") as errors:
        assert errors.read() == ""
    status = None
    while status is None:
        status = network.poll(pid)
    assert status == 0


async def test_run_shows_a_terminal_both_tables_and_then_logs_each_change(
    build: Build, start: Start, network: PrivateNetwork, tmp_path: Path
) -> None:
    tree = build(homelab())
    flags = ("--cluster=directory", f"--cluster-dir={tmp_path}", "--log-level=info")
    with Screen(100) as screen:
        run = start("run", tree, *flags, screen=screen)
        await run.until(lambda: "offer.published" in run.out)
        assert "6 devices offered, 5 withheld, 11 devices seen" in run.out
        assert run.out.index("Offered") < run.out.index("Withheld")
        network.send(tree.unplug("1-1"))
        await run.until(lambda: "device.removed" in run.out)
        assert re.search(rf"device\.removed .*cause='remove 1-1:1\.0'.*device={STICK}", run.out)
        screen.type(CTRL_C)
        assert await run.ended() == 0


async def test_run_prints_nothing_under_a_supervisor_and_ends_well_by_sigterm(
    build: Build, start: Start, tmp_path: Path
) -> None:
    flags = ("--cluster=directory", f"--cluster-dir={tmp_path}", "--log-level=info")
    run = start("run", build(homelab()), *flags)
    await run.until(lambda: '"offer.published"' in run.err)
    assert await run.stop(signal.SIGTERM) == 0
    assert run.out == ""
    events = [json.loads(line)["event"] for line in run.err.splitlines()]
    assert events[0] == "agent.starting"
    assert events[-2:] == ["agent.stopping", "agent.stopped"]


async def test_run_goes_on_where_nothing_can_be_claimed(
    build: Build, start: Start, network: PrivateNetwork, tmp_path: Path
) -> None:
    tree = build(empty_vm())
    run = start(
        "run", tree, "--cluster=directory", f"--cluster-dir={tmp_path}", "--log-level=info"
    )
    await run.until(lambda: '"offer.published"' in run.err)
    network.send(tree.plug(*(d for d in homelab().devices if d.key.address == "1-1:1.0")))
    await run.until(lambda: '"device.added"' in run.err)
    assert await run.stop(signal.SIGINT) == 0
