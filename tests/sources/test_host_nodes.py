"""Real inotify on a made-up `/dev` with real nodes, and on this machine's own."""

import os
from pathlib import Path
from typing import Self

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from liken_events.core.model.host_devices import HostDevice
from liken_events.inotify import FALLBACK_SECONDS, DirectoryWatch
from liken_events.latest import Latest
from liken_events.sources import host_nodes
from liken_events.sources.host_nodes import HostNodes, HostNodesSource
from tests.fakes.faults import no_descriptors
from tests.fakes.host_dev import NULL, TUN, ZERO, HostDev, first_look, following, need_nodes, sees

KVM, NET = "/dev/kvm", "/dev/net/tun"


@pytest.fixture
def dev(tmp_path: Path) -> HostDev:
    """One in which nodes can be made."""
    need_nodes(tmp_path)
    return HostDev(tmp_path / "dev")


@pytest.fixture
def bare_dev(tmp_path: Path) -> HostDev:
    """One for a test that makes no nodes."""
    return HostDev(tmp_path / "dev")


async def test_a_node_that_comes_and_goes_is_seen_each_time(dev: HostDev) -> None:
    """DP-9: the module is loaded late, then unloaded and loaded again."""
    async with following(dev.root, (KVM,)) as nodes:
        await sees(nodes)
        for _ in range(3):
            dev.char("kvm")
            await sees(nodes, {KVM: NULL})
            dev.remove("kvm")
            await sees(nodes)


async def test_a_node_that_is_made_anew_has_its_new_number(dev: HostDev) -> None:
    dev.char("kvm", NULL)
    async with following(dev.root, (KVM,)) as nodes:
        await sees(nodes, {KVM: NULL})
        dev.char("new", ZERO)
        dev.move("new", "kvm")
        await sees(nodes, {KVM: ZERO})


async def test_this_machine_s_own_nodes_are_seen() -> None:
    async with following("/dev", ("/dev/null", "/dev/zero", "/dev/missing")) as nodes:
        await sees(nodes, {"/dev/null": NULL, "/dev/zero": ZERO})


async def test_only_the_host_s_dev_is_looked_at(dev: HostDev) -> None:
    """CT-3: the process's own `/dev` has a node that the host lacks, and lacks one that it has."""
    dev.char("on-the-host")
    assert os.path.exists("/dev/null")
    assert await first_look(dev, "/dev/null", "/dev/on-the-host") == HostNodes(
        present={"/dev/on-the-host": NULL}
    )


async def test_a_dev_root_may_itself_be_a_link(tmp_path: Path) -> None:
    (tmp_path / "dev").symlink_to("/dev")
    async with following(f"{tmp_path}/dev", ("/dev/null",), ("/dev/zer?",)) as nodes:
        await sees(nodes, {"/dev/null": NULL, "/dev/zero": ZERO})


async def test_what_is_no_character_device_is_strange(bare_dev: HostDev) -> None:
    bare_dev.file("a")
    bare_dev.directory("b")
    os.mkfifo(f"{bare_dev.root}/c")
    found = await first_look(bare_dev, "/dev/a", "/dev/b", "/dev/c")
    assert found == HostNodes(
        strange={
            "/dev/a": "a regular file",
            "/dev/b": "a directory",
            "/dev/c": "neither a device nor a regular file",
        }
    )


async def test_a_block_device_is_strange(dev: HostDev) -> None:
    dev.block("kvm")
    assert await first_look(dev, KVM) == HostNodes(strange={KVM: "a block device"})


async def test_a_file_that_gives_way_to_a_node_is_forgotten(dev: HostDev) -> None:
    async with following(dev.root, (KVM,)) as nodes:
        dev.file("kvm")
        await sees(nodes, strange={KVM: "a regular file"})
        dev.char("new")
        dev.move("new", "kvm")
        await sees(nodes, {KVM: NULL})
        dev.remove("kvm")
        await sees(nodes)


async def test_a_directory_may_come_later_and_go_and_come_back(dev: HostDev) -> None:
    async with following(dev.root, (NET,)) as nodes:
        await sees(nodes)
        for _ in range(3):
            dev.directory("net")
            dev.char("net/tun", TUN)
            await sees(nodes, {NET: TUN})
            dev.remove("net/tun")
            dev.remove("net")
            await sees(nodes)


async def test_a_directory_above_that_is_moved_away_takes_the_node_along(dev: HostDev) -> None:
    for name in ("a", "a/b", "a/b/c"):
        dev.directory(name)
    dev.char("a/b/c/node")
    async with following(dev.root, ("/dev/a/b/c/node",)) as nodes:
        await sees(nodes, {"/dev/a/b/c/node": NULL})
        dev.move("a", "away")
        await sees(nodes)
        dev.move("away", "a")
        await sees(nodes, {"/dev/a/b/c/node": NULL})


async def test_a_dev_root_may_be_taken_away_and_come_back(dev: HostDev) -> None:
    dev.char("kvm")
    away = f"{dev.root}-away"
    async with following(dev.root, (KVM,)) as nodes:
        os.rename(dev.root, away)
        await sees(nodes)
        os.rename(away, dev.root)
        await sees(nodes, {KVM: NULL})


async def test_what_matches_a_pattern_comes_and_goes(dev: HostDev) -> None:
    async with following(dev.root, ("/dev/tty[A-Z]*", KVM)) as nodes:
        await sees(nodes)
        dev.char("ttyUSB0")
        await sees(nodes, {"/dev/ttyUSB0": NULL})
        dev.char("tty0")
        dev.char("kvm", ZERO)
        await sees(nodes, {"/dev/ttyUSB0": NULL, KVM: ZERO})
        dev.remove("ttyUSB0")
        dev.char("ttyACM0", ZERO)
        await sees(nodes, {"/dev/ttyACM0": ZERO, KVM: ZERO})


@pytest.mark.parametrize("directory", ["", "sub/"])
async def test_the_first_match_in_an_empty_directory_is_heard_of(
    dev: HostDev, directory: str
) -> None:
    if directory:
        dev.directory(directory)
    async with following(dev.root, (f"/dev/{directory}tty*",)) as nodes:
        await sees(nodes)
        dev.char(f"{directory}tty0")
        await sees(nodes, {f"/dev/{directory}tty0": NULL})


async def test_a_node_made_between_the_look_and_the_watch_is_not_missed(
    dev: HostDev, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Late(DirectoryWatch):
        def __enter__(self) -> Self:
            if not os.path.exists(f"{dev.root}/kvm"):
                dev.char("kvm")
            return super().__enter__()

    monkeypatch.setattr(host_nodes, "DirectoryWatch", Late)
    assert await first_look(dev, KVM) == HostNodes(present={KVM: NULL})


async def test_directories_are_not_what_a_pattern_means(bare_dev: HostDev) -> None:
    """`/dev/snd/*` and `/dev/input/*` match `by-path`, which is no mistake of anybody's."""
    bare_dev.directory("snd")
    bare_dev.directory("snd/by-path")
    bare_dev.link("snd/by-id", "by-path")
    bare_dev.file("snd/notes")
    assert await first_look(bare_dev, "/dev/snd/*") == HostNodes(
        strange={"/dev/snd/notes": "a regular file"}
    )


async def test_a_pattern_in_a_directory_that_is_a_link_out_of_dev_finds_nothing(
    dev: HostDev,
) -> None:
    dev.link("fd", "/proc/self/fd")
    dev.char("kvm")
    assert await first_look(dev, "/dev/fd/*") == HostNodes()


@pytest.mark.parametrize("name", [b"tty\xff", b"tty\n", b"tty\xe2\x80\xae"])
async def test_a_node_whose_name_cannot_be_shown_is_strange(dev: HostDev, name: bytes) -> None:
    dev.char(os.fsdecode(name))
    found = await first_look(dev, "/dev/tty*")
    path = f"/dev/{os.fsdecode(name)}"
    assert found == HostNodes(strange={path: "a node with a name that cannot be shown"})


async def test_other_files_change_nothing(dev: HostDev) -> None:
    dev.char("kvm")
    dev.char("null")
    async with following(dev.root, (KVM, NET), ("/dev/tty*",)) as nodes:
        for number in range(300):
            dev.file(f"other{number}")
            dev.remove(f"other{number}")
        Path(f"{dev.root}/null").write_text("x")
        await wait_all_tasks_blocked(0.02)
        assert nodes.number == 1
        dev.char("tty0", ZERO)
        await sees(nodes, {KVM: NULL, "/dev/tty0": ZERO})
        assert nodes.number == 2


async def test_what_is_written_into_files_beside_wakes_nobody(
    dev: HostDev, monkeypatch: pytest.MonkeyPatch
) -> None:
    woken = 0

    class Counting(DirectoryWatch):
        async def changed(self, *names: str) -> bool:
            nonlocal woken
            answer = await super().changed(*names)
            woken += 1
            return answer

    monkeypatch.setattr(host_nodes, "DirectoryWatch", Counting)
    dev.file("log")
    async with following(dev.root, (KVM,)) as nodes:
        for _ in range(100):
            dev.file("log")
        await wait_all_tasks_blocked(0.02)
        assert woken == 0
        dev.char("kvm")
        await sees(nodes, {KVM: NULL})
        assert woken == 1


async def test_two_resources_may_have_one_node(dev: HostDev) -> None:
    dev.char("kvm")
    async with following(dev.root, (KVM,), (KVM, NET), ("/dev/k*",)) as nodes:
        await sees(nodes, {KVM: NULL})
        dev.remove("kvm")
        await sees(nodes)


async def test_nothing_is_followed_that_is_not_needed_any_more(dev: HostDev) -> None:
    def opened() -> int:
        return len(os.listdir("/proc/self/fd"))

    before = opened()
    dev.link("kvm", "/dev/none")
    async with following(dev.root, (KVM,)) as nodes:
        start = opened()
        for number in range(5):
            dev.directory(f"sub{number}")
            dev.char(f"sub{number}/node")
            dev.link("new", f"sub{number}/node")
            dev.move("new", "kvm")
            await sees(nodes, {KVM: NULL})
            dev.remove(f"sub{number}/node")
            await sees(nodes)
        assert opened() <= start + 2
    assert opened() == before


async def test_without_inotify_it_looks_every_few_seconds(dev: HostDev, clock: MockClock) -> None:
    nodes: Latest[HostNodes] = Latest()
    source = HostNodesSource(dev.root, [HostDevice(resource="a.b/c", paths=(KVM,))])
    async with trio.open_nursery() as nursery:
        with no_descriptors():
            await nursery.start(source.run, nodes)
        dev.char("kvm")
        with trio.fail_after(2 * FALLBACK_SECONDS):
            await nodes.wait_newer(nodes.number)
        assert nodes.get() == HostNodes(present={KVM: NULL})
        assert trio.current_time() == pytest.approx(FALLBACK_SECONDS)
        nursery.cancel_scope.cancel()
