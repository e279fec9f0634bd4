"""The agent's part for claims, with real files for a cluster and a kubelet that listens."""

import os
import stat
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio
from structlog.typing import EventDict

from liken_events.agent import policy_of, roots_of
from liken_events.claims import (
    ClaimsPart,
    check_kubelet_dir,
    is_registering,
    spec_files_of,
)
from liken_events.cluster import Cluster
from liken_events.cluster.directory import DirectoryCluster
from liken_events.config import Config, ConfigError
from liken_events.core.model.device import Inventory
from liken_events.core.model.publish import inventory
from liken_events.core.model.snapshot import Key
from liken_events.latest import Latest
from liken_events.node_watch import NodeWatch
from liken_events.simulate.tree import MachineTree
from liken_events.sources.looks import Looks
from tests.fakes.agents import Build
from tests.fakes.claims import NODE, Specs, claim_body, uid_of, write_claim
from tests.fakes.cluster import FakeCluster
from tests.fakes.keeping import BUS, STICK, STICK_NAME, TTY
from tests.fakes.machines import machine
from tests.fakes.waiting import until


class Part:
    """One run of the part, on a made-up machine whose inventory a test makes."""

    def __init__(self, tree: MachineTree, top: Path, cluster: Cluster, kubelet: str) -> None:
        self.tree = tree
        self.config = Config(
            node_name=NODE,
            sys_root=tree.sys,
            dev_root=tree.dev,
            proc_root=tree.proc,
            pci_ids=tree.pci_ids,
            cdi_dir=f"{top}/cdi",
            record_dir=f"{top}/records",
            kubelet=kubelet,
            kubelet_dir=f"{top}/kubelet",
            device_plugin_dir=f"{top}/kubelet/device-plugins",
        )
        self.specs = Specs(self.config.cdi_dir)
        self.inventories: Latest[Inventory] = Latest()
        self.nodes = NodeWatch()
        self.claims = ClaimsPart(
            self.config,
            cluster,
            Looks(roots_of(self.config), policy_of(self.config)),
            inventories=self.inventories,
            nodes=self.nodes,
            unsettled=lambda: frozenset[Key](),
        )

    def look(self) -> None:
        self.inventories.set(inventory(self.tree.snapshot))

    @asynccontextmanager
    async def following(self) -> AsyncIterator[trio.Nursery]:
        """Follows until the end of the block; gives a nursery for what serves."""
        await self.claims.restore()
        async with trio.open_nursery() as nursery:
            self.claims.start_following(nursery)
            self.look()
            yield nursery
            nursery.cancel_scope.cancel()


class Bench:
    def __init__(self, build: Build, top: Path) -> None:
        self.top = top
        self.tree = build(machine([STICK]))
        self.home = DirectoryCluster(f"{top}/cluster")
        self.home.prepare()

    def part(self, cluster: Cluster | None = None, kubelet: str = "off") -> Part:
        return Part(self.tree, self.top, cluster or self.home, kubelet)


@pytest.fixture
def bench(build: Build, tmp_path: Path) -> Bench:
    return Bench(build, tmp_path)


def test_the_kubelet_is_told_where_there_is_one() -> None:
    home, cluster = DirectoryCluster("/nowhere"), FakeCluster()
    assert not is_registering(Config(), home)
    assert is_registering(Config(), cluster)
    assert is_registering(Config(kubelet="on"), home)
    assert not is_registering(Config(kubelet="off"), cluster)


def test_a_directory_that_is_too_deep_for_sockets_is_told_in_time() -> None:
    deep = "/deep" * 40
    for config in (Config(kubelet_dir=deep), Config(device_plugin_dir=deep)):
        check_kubelet_dir(config, DirectoryCluster("/nowhere"))
        with pytest.raises(ConfigError, match="bytes"):
            check_kubelet_dir(config, FakeCluster())
    check_kubelet_dir(Config(), FakeCluster())


def test_specs_and_records_are_where_the_configuration_says(tmp_path: Path) -> None:
    files = spec_files_of(Config(cdi_dir=f"{tmp_path}/a", record_dir=f"{tmp_path}/b"))
    assert files.spec_path("u") == f"{tmp_path}/a/liken.sh-u.json"


async def test_claims_of_files_are_prepared_and_specs_come_before_the_slice(bench: Bench) -> None:
    body = claim_body(STICK_NAME)
    uid = uid_of(body)
    part = bench.part()
    async with part.following() as nursery:
        await until(lambda: part.claims.ready.number == 1)
        part.claims.start_serving(nursery)
        write_claim(f"{bench.top}/cluster", body)
        await until(lambda: part.specs.nodes(uid, STICK_NAME) == [BUS, TTY])
        bench.tree.unplug("1-9")
        part.look()
        await until(lambda: part.claims.ready.number == 2)
        assert part.specs.nodes(uid, STICK_NAME) == [(BUS[0],), (TTY[0],)]
        virtual = "/devices/virtual/tty/ttyUSB9"
        os.makedirs(bench.tree.sys + virtual)
        Path(f"{bench.tree.sys}{virtual}/uevent").write_text("DEVNAME=ttyUSB9\n")
        part.nodes.announce("/dev/ttyUSB9", virtual)
        await until(lambda: "belongs-to" in part.specs.paths(uid, STICK_NAME)[1])
        os.unlink(part.specs.path(uid))
        await until(lambda: part.specs.nodes(uid, STICK_NAME))
        part.inventories.close()
        await part.claims.ready.wait_closed()


async def test_what_an_earlier_run_left_is_right_before_anything_is_published(
    bench: Bench,
) -> None:
    body = claim_body(STICK_NAME)
    uid = uid_of(body)
    write_claim(f"{bench.top}/cluster", body)
    first = bench.part()
    async with first.following() as nursery:
        first.claims.start_serving(nursery)
        await until(lambda: first.specs.nodes(uid, STICK_NAME))
    bench.tree.renumber("1-9", 40)
    second = bench.part()
    async with second.following():
        await second.claims.ready.wait_newer(0)
        assert second.specs.nodes(uid, STICK_NAME)[0] == ("/dev/bus/usb/001/040", "c", 189, 39)


async def test_claims_that_a_cluster_has_no_more_are_ended(bench: Bench) -> None:
    body = claim_body(STICK_NAME)
    write_claim(f"{bench.top}/cluster", body)
    first = bench.part()
    async with first.following() as nursery:
        first.claims.start_serving(nursery)
        await until(lambda: first.specs.nodes(uid_of(body), STICK_NAME))
    second = bench.part(FakeCluster())
    async with second.following() as nursery:
        await second.claims.ready.wait_newer(0)
        assert len(second.specs.files) == 1
        second.claims.start_serving(nursery)
        await until(lambda: second.specs.files == [])


async def test_the_kubelet_finds_the_sockets(bench: Bench) -> None:
    part = bench.part(FakeCluster(), kubelet="on")
    registry = f"{part.config.kubelet_dir}/plugins_registry"
    os.makedirs(registry)
    os.makedirs(f"{part.config.kubelet_dir}/plugins")
    async with part.following() as nursery:
        await part.claims.ready.wait_newer(0)
        part.claims.start_serving(nursery)
        await until(lambda: os.listdir(registry))
        [name] = os.listdir(registry)
        assert stat.S_ISSOCK(os.stat(f"{registry}/{name}").st_mode)
        part.claims.close()


async def test_a_part_that_fails_is_started_again(
    bench: Bench, logs: list[EventDict], monkeypatch: pytest.MonkeyPatch
) -> None:
    part = bench.part()
    broken = [True]
    real = part.nodes.wait

    async def wait() -> None:
        if broken.pop():
            broken.append(False)
            raise RuntimeError("a bug")
        await real()

    monkeypatch.setattr(part.nodes, "wait", wait)
    async with part.following():
        await until(lambda: [item for item in logs if item["event"] == "part.restarting"])
        await until(lambda: not broken, seconds=5)
    assert [item["part"] for item in logs if item["event"] == "part.failed"] == ["node watch"]
