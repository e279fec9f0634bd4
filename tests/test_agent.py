import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest
import trio
from structlog.typing import EventDict

from liken_events import agent
from liken_events.agent import choose_cluster, follow_machine, policy_of, run_agent, sources_of
from liken_events.cluster import Unavailable
from liken_events.cluster.directory import DirectoryCluster
from liken_events.cluster.slice_file import load_slice
from liken_events.config import Config, ConfigError
from liken_events.core.backlog import Backlog
from liken_events.core.events import DeviceChanged
from liken_events.core.model.device import Inventory
from liken_events.core.model.publish import MAX_OFFERED, inventory
from liken_events.inbox import Inbox
from liken_events.latest import Latest
from liken_events.reconcile import Reconciler
from liken_events.simulate.tree import MachineTree
from liken_events.sources import SourceLost
from tests.fakes.agents import QUICK, STICK, STICK_NAME, Build, Launch, devices
from tests.fakes.cluster import FakeCluster
from tests.fakes.machines import desktop, homelab, machine
from tests.fakes.network import ROOT
from tests.fakes.waiting import until

ODD = "\x1b[31m\ufffd\u00e9\0\0"
"""A serial number that a stick may have."""


def config_of(tree: MachineTree, **more: object) -> Config:
    return Config(
        node_name="n1",
        sys_root=tree.sys,
        dev_root=tree.dev,
        proc_root=tree.proc,
        pci_ids=tree.pci_ids,
        cdi_dir=f"{tree.root}/cdi",
        record_dir=f"{tree.root}/records",
        kubelet="off",
        settle_quiet=0.05,
        **more,  # type: ignore[arg-type]
    )


class Told:
    """A source that says what a test tells it to.

    Attributes:
        before: done when it is asked to watch, before it says that it does.
        fails: what it ends with instead of watching.
    """

    name = "told"

    def __init__(
        self, before: Callable[[], object] = lambda: None, *, fails: Exception | None = None
    ) -> None:
        self.before = before
        self.fails = fails

    async def run(self, inbox: Inbox, *, task_status: trio.TaskStatus[None]) -> None:
        if self.fails is not None:
            raise self.fails
        self.inbox = inbox
        task_status.started()
        self.before()
        await trio.sleep_forever()

    def say(self, action: str, path: str) -> None:
        self.inbox.mark(DeviceChanged(path=path, action=action))


def started(*flags: str) -> subprocess.Popen[bytes]:
    line = [sys.executable, "-m", "liken_events", "run", *flags]
    return subprocess.Popen(line, cwd=ROOT, stderr=subprocess.PIPE, stdout=subprocess.PIPE)


async def test_the_program_publishes_follows_and_stops(
    build: Build, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The real thing, started as a supervisor does, under a locale without any characters."""
    tree = build(machine([*desktop().devices, replace(STICK, serial=ODD)]), clutter=True)
    file = tmp_path / "cluster" / "resourceslices" / "n1-liken.sh.yaml"
    for name, value in (("LC_ALL", "C"), ("PYTHONUTF8", "0"), ("PYTHONCOERCECLOCALE", "0")):
        monkeypatch.setenv(name, value)
    flags = {
        "node-name": "n1", "cluster": "directory", "cluster-dir": str(tmp_path / "cluster"),
        "sys-root": tree.sys, "dev-root": tree.dev, "proc-root": tree.proc,
        "pci-ids": tree.pci_ids, "uevents": "kernel", "cdi-dir": str(tmp_path / "cdi"),
    }  # fmt: skip
    with started(*(f"--{name}={value}" for name, value in flags.items())) as run:
        try:
            await until(lambda: file.exists() or run.poll() is not None)
            run.send_signal(signal.SIGTERM)
            output, log = await trio.to_thread.run_sync(run.communicate)
        finally:
            run.kill()
    assert (run.returncode, output) == (0, b""), log.decode()
    body = load_slice(file.read_text(encoding="utf-8"))
    assert body is not None
    offered = inventory(tree.snapshot).offered
    assert devices(body) == {device.name: dict(device.attributes) for device in offered}
    assert b"agent.stopped" in log


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_stop_is_prompt_and_leaves_the_slice_for_the_next_start(
    build: Build, launch: Launch, number: signal.Signals
) -> None:
    tree = build(homelab())
    first = launch(tree, *QUICK)
    await first.until_ready()
    os.kill(first.pid, number)
    await first.until(lambda: first.status is not None, seconds=5)
    assert first.status == 0
    assert first.stray == []
    written = os.stat(first.path)
    second = launch(tree, *QUICK)
    await second.until_ready()
    assert os.stat(second.path) == written
    assert not second.logged("slice.created")
    assert not second.logged("slice.patched")
    assert await second.stop() == 0


async def test_what_changed_while_it_was_away_is_made_good_in_one_change(
    build: Build, launch: Launch
) -> None:
    tree = build(homelab())
    first = launch(tree, *QUICK)
    await first.until_true()
    await first.stop()
    tree.unplug("1-1")
    tree.plug(STICK)
    second = launch(tree, *QUICK)
    await second.until_true()
    await second.until(lambda: second.logged("slice.patched"))
    assert second.generation == 2


@asynccontextmanager
async def following(
    config: Config, *sources: Told
) -> AsyncIterator[tuple[Latest[Inventory], list[list[str]]]]:
    """Follows a machine; also collects the names of what every inventory offered."""
    inventories: Latest[Inventory] = Latest()
    seen: list[list[str]] = []

    async def collect() -> None:
        number = 0
        while True:
            number = await inventories.wait_newer(number)
            seen.append([device.name for device in inventories.get().offered])

    async def follow(task_status: trio.TaskStatus[Reconciler]) -> None:
        await follow_machine(config, inventories, sources=list(sources), task_status=task_status)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(collect)
        await nursery.start(follow)
        yield inventories, seen
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("when", ["before the watch", "between watch and look", "after the look"])
async def test_a_device_is_offered_once_whenever_it_is_plugged_in(build: Build, when: str) -> None:
    tree = build(machine([]))

    def plug() -> None:
        for said in tree.plug(STICK):
            source.say(said.action, said.devpath)

    source = Told(plug if when == "between watch and look" else lambda: None)
    if when == "before the watch":
        tree.plug(STICK)
    async with following(config_of(tree), source) as (inventories, seen):
        if when == "after the look":
            plug()
        await until(lambda: [STICK_NAME] in seen)
        tree.unplug("1-9")
        source.say("remove", STICK.path)
        await until(lambda: not inventories.get().offered)
    assert [names for names in seen if names] == [[STICK_NAME]]


async def test_nothing_is_looked_at_before_it_is_watched(
    build: Build, logs: list[EventDict]
) -> None:
    before: list[str] = []
    source = Told(lambda: before.extend(line["event"] for line in logs))
    async with following(config_of(build(homelab())), source):
        assert "machine.read" in [line["event"] for line in logs]
    assert "machine.read" not in before


async def test_a_source_that_cannot_watch_does_not_keep_the_machine_from_being_read(
    build: Build, logs: list[EventDict]
) -> None:
    sources = [Told(fails=SourceLost("no netlink")), Told(fails=KeyError("bug")), Told()]
    tree = build(machine([]))
    async with following(config_of(tree), *sources) as (inventories, _):
        for said in tree.plug(STICK):
            sources[2].say(said.action, said.devpath)
        await until(lambda: inventories.get().offered)
    assert {line["part"] for line in logs if line["event"] == "part.restarting"} == {"told"}
    reasons = {line["reason"] for line in logs if line["event"] == "source.lost"}
    assert reasons == {"no netlink"}


class Run:
    """An agent in this process, on a cluster in memory."""

    def __init__(self, tree: MachineTree) -> None:
        self.tree = tree
        self.cluster = FakeCluster()
        self.source = Told()
        self.inventories: Latest[Inventory] = Latest()

    @property
    def stored(self) -> set[str]:
        """Names of the devices that the cluster holds."""
        body = self.cluster.slices.get("n1-liken.sh")
        return set() if body is None else set(devices(body))

    async def run(self, task_status: trio.TaskStatus[None]) -> None:
        await run_agent(
            config_of(self.tree),
            self.cluster,
            inventories=self.inventories,
            sources=[self.source],
            task_status=task_status,
        )

    async def plug(self) -> None:
        """Plugs in the stick and waits until the agent knows."""
        for said in self.tree.plug(STICK):
            self.source.say(said.action, said.devpath)
        await until(lambda: STICK_NAME in self.inventories.get().by_name())


@asynccontextmanager
async def running(run: Run) -> AsyncIterator[None]:
    """Runs an agent to its own end, which the block has to bring about."""
    with trio.fail_after(5):
        async with trio.open_nursery() as nursery:
            await nursery.start(run.run)
            yield


def terminate() -> None:
    os.kill(os.getpid(), signal.SIGTERM)


async def test_a_stop_still_carries_out_the_last_inventory(build: Build) -> None:
    run = Run(build(homelab()))
    run.cluster.free = trio.Event()
    async with running(run):
        await until(lambda: run.cluster.writes)
        await run.plug()
        terminate()
        await until(lambda: run.inventories.closed)
        run.cluster.free.set()
    assert STICK_NAME in run.stored
    assert len(run.cluster.writes) == 2


async def test_a_stop_does_not_wait_for_a_cluster_that_is_away(
    build: Build, logs: list[EventDict]
) -> None:
    run = Run(build(homelab()))
    run.cluster.faults = [Unavailable("connection refused")] * 100
    async with running(run):
        await until(lambda: len(run.cluster.writes) >= 2)
        terminate()
        with trio.fail_after(1):
            await until(lambda: run.inventories.closed)
    assert "agent.stopped_early" not in [line["event"] for line in logs]


async def test_a_stop_waits_only_so_long_for_a_cluster_that_hangs(
    build: Build, logs: list[EventDict], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(agent, "STOP_SECONDS", 0.1)
    run = Run(build(homelab()))
    run.cluster.free = trio.Event()
    async with running(run):
        await until(lambda: run.cluster.writes)
        terminate()
    assert [line["event"] for line in logs][-2:] == ["agent.stopped_early", "agent.stopped"]


async def test_a_bug_on_the_way_to_the_cluster_is_survived(
    build: Build, logs: list[EventDict]
) -> None:
    run = Run(build(homelab()))
    run.cluster.faults = [KeyError("spec")]
    async with running(run):
        await run.plug()
        await until(lambda: STICK_NAME in run.stored)
        terminate()
    assert [line["part"] for line in logs if line["event"] == "part.failed"] == ["slices"]


async def test_a_cluster_that_hangs_holds_up_neither_events_nor_the_newest_state(
    build: Build,
) -> None:
    run = Run(build(homelab()))
    run.cluster.free = trio.Event()
    async with running(run):
        await until(lambda: run.cluster.writes)
        paths = [device.path for device in run.tree.snapshot.devices]
        for number in range(5000):
            run.source.say("change", f"{paths[number % len(paths)]}/child-{number % 40}")
        run.tree.unplug("1-1")
        run.source.say("remove", f"{paths[-1].rpartition('/')[0]}")
        await run.plug()
        assert len(run.cluster.writes) == 1
        run.cluster.free.set()
        await until(lambda: STICK_NAME in run.stored)
        terminate()
    assert run.stored == set(run.inventories.get().by_name())
    assert len(run.cluster.writes) <= 3


def test_a_directory_is_the_cluster_of_a_machine_without_one(tmp_path: Path) -> None:
    found = choose_cluster(Config(cluster_dir=f"{tmp_path}/home"), {})
    assert isinstance(found, DirectoryCluster)
    assert (tmp_path / "home" / "resourceslices").is_dir()


@pytest.mark.parametrize(
    ("environ", "complaint"),
    [
        ({"KUBECONFIG": "/missing/config"}, "/missing/config"),
        (
            {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "KUBERNETES_SERVICE_PORT": "443"},
            "serviceaccount",
        ),
    ],
)
def test_a_cluster_that_is_named_is_not_replaced_by_a_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, environ: dict[str, str], complaint: str
) -> None:
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(ConfigError, match="--cluster kubernetes") as caught:
        choose_cluster(Config(cluster_dir=f"{tmp_path}/home"), environ)
    assert complaint in str(caught.value)
    assert not (tmp_path / "home").exists()
    forced = Config(cluster="directory", cluster_dir=f"{tmp_path}/home")
    assert isinstance(choose_cluster(forced, environ), DirectoryCluster)


def test_a_directory_that_cannot_be_written_is_named_with_its_flag(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match=rf"--cluster-dir: {tmp_path}/file.* another directory"):
        choose_cluster(Config(cluster_dir=f"{tmp_path}/file/below"), {})


def test_the_configuration_decides_what_is_published() -> None:
    policy = policy_of(Config(ignore=("driver=i915",)))
    assert (policy.ignore, policy.limit) == (("driver=i915",), MAX_OFFERED)
    assert policy_of(Config(divide_pool=True)).limit is None


@pytest.mark.parametrize("group", ["auto", "kernel", "udev"])
def test_uevents_and_mounts_are_watched(group: str, logs: list[EventDict]) -> None:
    names = [source.name for source in sources_of(Config(uevents=group), Backlog())]
    beside_udevd = ["early"] if names[1:] == ["early", "mounts"] else []
    assert names == ["uevent", *beside_udevd, "mounts"]
    if group != "auto":  # that depends on whether udevd runs here
        assert bool(beside_udevd) == (group == "udev")
    assert [line["event"] for line in logs] == (["uevent.group"] if group == "auto" else [])
