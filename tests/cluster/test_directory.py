import os
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio
from structlog.typing import EventDict

from liken_events.cluster import Conflict, SliceView, Unavailable
from liken_events.cluster.directory import DirectoryCluster
from liken_events.cluster.slice_file import dump_slice, load_slice
from liken_events.core.model.claims import ClaimReference
from liken_events.core.plan.slices import CreateSlice, DeleteSlice, ObservedSlice, PatchSlice
from tests.cluster.claim_bodies import OTHER_UID, UID, claim_body
from tests.fakes.mount_namespace import MountNamespace
from tests.fakes.slices import NAME, NODE, device_names, slice_body


class Home:
    """A prepared directory and its cluster."""

    def __init__(self, path: Path) -> None:
        self.cluster = DirectoryCluster(str(path))
        self.cluster.prepare()
        self.slices = path / "resourceslices"
        self.file = self.slices / f"{NAME}.yaml"

    def write(self, text: str, name: str = NAME) -> None:
        (self.slices / f"{name}.yaml").write_text(text)

    def stored(self, name: str = NAME) -> list[str] | None:
        """Names of the devices in a file; None without one."""
        try:
            return device_names(load_slice((self.slices / f"{name}.yaml").read_text()))
        except FileNotFoundError:
            return None

    def names(self) -> list[str]:
        return sorted(os.listdir(self.slices))

    async def create(self, *devices: str) -> ObservedSlice:
        return await self.cluster.create_slice(CreateSlice(name=NAME, body=slice_body(*devices)))

    async def patch(self, old: ObservedSlice, *devices: str) -> ObservedSlice:
        return await self.cluster.patch_slice(patch_of(old, *devices))

    async def delete(self, name: str = NAME) -> None:
        await self.cluster.delete_slice(DeleteSlice(name=name, uid="", version=""))


def patch_of(old: ObservedSlice, *devices: str) -> PatchSlice:
    body = slice_body(*devices)
    return PatchSlice(name=NAME, uid=old.uid, version=old.version, operations=(), body=body)


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path / "liken-events")


class Followed:
    """What a watch was seen to tell."""

    def __init__(self) -> None:
        self.view = SliceView()

    @property
    def devices(self) -> dict[str, list[str]]:
        return {item.name: device_names(item.body) for item in self.view.latest.get()}

    async def until(self, devices: dict[str, list[str]]) -> None:
        with trio.fail_after(5):
            while self.devices != devices:
                await self.view.latest.wait_newer(self.view.latest.number)

    async def is_quiet(self) -> None:
        number = self.view.latest.number
        with trio.move_on_after(0.02):
            await self.view.latest.wait_newer(number)
        assert self.view.latest.number == number


@asynccontextmanager
async def followed(home: Home, cluster: DirectoryCluster | None = None) -> AsyncIterator[Followed]:
    found = Followed()

    async def watch(task_status: trio.TaskStatus[None]) -> None:
        follower = cluster or home.cluster
        await follower.watch_slices(NODE, found.view, task_status=task_status)

    async with trio.open_nursery() as nursery:
        await nursery.start(watch)
        yield found
        nursery.cancel_scope.cancel()


async def test_a_slice_is_created_changed_and_deleted(home: Home) -> None:
    first = await home.create("a")
    assert home.stored() == ["a"]
    second = await home.patch(first, "a", "b")
    assert home.stored() == ["a", "b"]
    assert second.version != first.version
    await home.patch(second, "b")
    await home.delete()
    assert home.names() == []
    await home.delete()


async def test_the_file_holds_the_object_and_no_version(home: Home) -> None:
    outcome = await home.create("a")
    metadata: Any = outcome.body["metadata"]
    assert metadata["resourceVersion"] == outcome.version
    assert "resourceVersion" not in home.file.read_text()
    await home.patch(outcome, "b")
    assert "resourceVersion" not in home.file.read_text()


async def test_a_change_is_one_rename_and_leaves_nothing_else(home: Home) -> None:
    first = await home.create("a")
    inode = home.file.stat().st_ino
    with home.file.open() as reader:
        await home.patch(first, "b")
        assert device_names(load_slice(reader.read())) == ["a"], "who reads is not disturbed"
    assert home.file.stat().st_ino != inode
    assert home.names() == [f"{NAME}.yaml"]


async def test_somebody_else_s_change_is_a_conflict(home: Home) -> None:
    first = await home.create("a")
    home.write(dump_slice(slice_body("somebody", "else")))
    with pytest.raises(Conflict):
        await home.patch(first, "b")
    assert home.stored() == ["somebody", "else"]
    with pytest.raises(Conflict):
        await home.create("b")
    os.unlink(home.file)
    with pytest.raises(Conflict):
        await home.patch(first, "b")
    assert home.stored() is None


@pytest.mark.parametrize("text", ["", "{broken", "kind: Other\n", "\x00"])
async def test_a_broken_file_of_ours_is_replaced(home: Home, text: str) -> None:
    home.write(text)
    await home.create("a")
    assert home.stored() == ["a"]


async def test_what_is_there_is_told_before_anything_else(home: Home) -> None:
    async with followed(home) as seen:
        assert seen.devices == {}
    await home.create("a")
    async with followed(home, DirectoryCluster(str(home.slices.parent))) as seen:
        assert seen.devices == {NAME: ["a"]}


async def test_every_change_of_somebody_else_is_told(home: Home) -> None:
    async with followed(home) as seen:
        home.write(dump_slice(slice_body("a")))
        await seen.until({NAME: ["a"]})
        home.write(dump_slice(slice_body("b")))
        await seen.until({NAME: ["b"]})
        home.write("{broken")
        await seen.until({})
        home.write(dump_slice(slice_body("c")))
        await seen.until({NAME: ["c"]})
        os.unlink(home.file)
        await seen.until({})


async def test_our_own_writes_are_no_news(home: Home) -> None:
    async with followed(home) as seen:
        outcome = await home.create("a")
        seen.view.put(outcome.body)
        await seen.is_quiet()
        outcome = await home.patch(outcome, "b")
        seen.view.put(outcome.body)
        await seen.is_quiet()
        assert seen.devices == {NAME: ["b"]}


async def test_only_this_node_s_slices_of_our_driver_are_told(home: Home) -> None:
    home.write(dump_slice(slice_body("x", name="n2-liken.sh", node="n2")), "n2-liken.sh")
    home.write(dump_slice(slice_body("x", name="gpu", driver="gpu.example.com")), "gpu")
    home.write(dump_slice(slice_body("x", name="other")), "named-otherwise")
    home.write("text", "broken")
    (home.slices / ".hidden.yaml").write_text(dump_slice(slice_body("x", name=".hidden")))
    (home.slices / "slice.json").write_text("{}")
    async with followed(home) as seen:
        assert seen.devices == {}
        home.write(dump_slice(slice_body("x", name=f"{NAME}-1")), f"{NAME}-1")
        await seen.until({f"{NAME}-1": ["x"]})


async def test_a_broken_file_is_complained_of_once(home: Home, logs: list[EventDict]) -> None:
    home.write("{broken", "theirs")
    async with followed(home) as seen:
        for device in ("a", "b", "c"):
            home.write(dump_slice(slice_body(device)))
            await seen.until({NAME: [device]})
    complaints = [line for line in logs if "theirs" in line.get("path", "")]
    assert len(complaints) == 1


async def test_what_stands_where_our_slice_has_to_be_is_told(home: Home) -> None:
    home.write(dump_slice(slice_body("x", node="n2", driver="other")))
    async with followed(home) as seen:
        assert seen.devices == {NAME: ["x"]}


async def test_a_directory_that_is_removed_is_an_empty_one_and_followed(home: Home) -> None:
    await home.create("a")
    async with followed(home) as seen:
        shutil.rmtree(home.slices.parent)
        await seen.until({})
        with pytest.raises(Conflict, match="was removed, and is there again"):
            await home.create("b")
        await home.create("b")
        await seen.until({NAME: ["b"]})
        home.write(dump_slice(slice_body("c")))
        await seen.until({NAME: ["c"]})


async def test_a_doubt_is_answered_by_a_look(home: Home) -> None:
    outcome = await home.create("a")
    async with followed(home) as seen:
        wrong = slice_body("wrong")
        seen.view.put({**wrong, "metadata": {"name": NAME, "resourceVersion": "x"}})
        assert seen.devices == {NAME: ["wrong"]}
        seen.view.doubt()
        await seen.until({NAME: ["a"]})
        assert seen.view.latest.get()[0].version == outcome.version


async def test_a_doubt_is_answered_also_if_nothing_is_different(home: Home) -> None:
    await home.create("a")
    async with followed(home) as seen:
        number = seen.view.latest.number
        seen.view.doubt()
        with trio.fail_after(10):
            await seen.view.latest.wait_newer(number)
        assert seen.devices == {NAME: ["a"]}


async def test_a_file_in_place_of_the_directory_is_waited_out(home: Home) -> None:
    shutil.rmtree(home.slices)
    home.slices.write_text("")
    with pytest.raises(Unavailable, match=r"cannot write .*: Not a directory"):
        await home.create("a")
    async with followed(home) as seen:
        assert seen.devices == {}
        os.unlink(home.slices)
        with pytest.raises(Conflict):
            await home.create("a")
        await home.create("a")
        await seen.until({NAME: ["a"]})


def test_a_directory_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for path in (f"{tmp_path}/file", f"{tmp_path}/file/below", "/proc/liken-events"):
        with pytest.raises(OSError) as caught:  # noqa: PT011  # which one depends on the path
            DirectoryCluster(path).prepare()
        assert str(caught.value.filename).startswith(path)


def test_preparing_leaves_no_trace_and_may_be_repeated(home: Home) -> None:
    home.cluster.prepare()
    assert home.names() == []
    assert sorted(os.listdir(home.slices.parent)) == ["resourceclaims", "resourceslices"]


@pytest.fixture
def small_disk(mounts: MountNamespace) -> Home:
    """A directory on a disk of 64 KiB."""
    mounts.run("mount", "-t", "tmpfs", "-o", "size=64k", "none", "/mnt")
    return Home(Path(f"{mounts.root}/mnt/liken-events"))


async def test_a_full_disk_leaves_the_old_slice_whole(small_disk: Home) -> None:
    home = small_disk
    first = await home.create("a")
    (home.slices.parent / "filler").write_bytes(b"x" * 32_768)
    many = [f"device-{number:05}" for number in range(3000)]
    with pytest.raises(Unavailable, match="No space left on device"):
        await home.patch(first, *many)
    assert home.stored() == ["a"]
    assert home.names() == [f"{NAME}.yaml"]
    os.unlink(home.slices.parent / "filler")
    await home.patch(first, "a", "b")
    assert home.stored() == ["a", "b"]


async def test_a_disk_without_room_for_one_file_leaves_the_old_slice_whole(
    mounts: MountNamespace,
) -> None:
    mounts.run("mount", "-t", "tmpfs", "-o", "nr_inodes=6", "none", "/mnt")
    home = Home(Path(f"{mounts.root}/mnt/liken-events"))
    first = await home.create("a")
    (home.slices.parent / "filler").write_bytes(b"")
    with pytest.raises(Unavailable, match="No space left on device"):
        await home.patch(first, "b")
    assert home.stored() == ["a"]


async def test_a_read_only_directory_is_said_to_be_one(
    small_disk: Home, mounts: MountNamespace
) -> None:
    first = await small_disk.create("a")
    mounts.run("mount", "-o", "remount,ro", "/mnt")
    with pytest.raises(Unavailable, match="Read-only file system"):
        await small_disk.patch(first, "b")
    with pytest.raises(Unavailable, match="Read-only file system"):
        await small_disk.delete()
    with pytest.raises(OSError, match="Read-only file system"):
        small_disk.cluster.prepare()
    assert small_disk.stored() == ["a"]


async def test_nothing_owns_a_slice_without_a_cluster(home: Home) -> None:
    assert await home.cluster.node_uid(NODE) is None
    assert home.cluster.description == f"directory {home.slices.parent}"


async def test_a_claim_is_read_from_its_file_as_it_is_now(home: Home) -> None:
    camera = ClaimReference(namespace="default", name="camera", uid=UID)
    assert await home.cluster.read_claim(camera) is None
    home.cluster.claims.write(claim_body("a"))
    assert await home.cluster.read_claim(camera) == claim_body("a")
    path = home.slices.parent / "resourceclaims" / "default" / "camera.yaml"
    path.write_text(path.read_text().replace(UID, OTHER_UID))
    assert await home.cluster.read_claim(camera) == claim_body("a", uid=OTHER_UID)
    path.write_text("{broken")
    with pytest.raises(Unavailable, match=r"camera\.yaml cannot be understood"):
        await home.cluster.read_claim(camera)
    home.cluster.claims.remove("default", "camera")
    assert await home.cluster.read_claim(camera) is None


@pytest.mark.parametrize("name", ["", "..", "../resourceslices/n1-liken.sh", "/etc/passwd", "A"])
async def test_no_claim_has_a_name_that_leads_elsewhere(home: Home, name: str) -> None:
    await home.create("a")
    for namespace, claim in (("default", name), (name, "n1-liken.sh")):
        reference = ClaimReference(namespace=namespace, name=claim, uid=UID)
        assert await home.cluster.read_claim(reference) is None


async def test_a_file_that_yaml_can_make_endless_is_no_slice(home: Home) -> None:
    laughs = "a0: &a0 [x]\n" + "".join(
        f"a{number}: &a{number} [{', '.join([f'*a{number - 1}'] * 9)}]\n"
        for number in range(1, 30)
    )
    text = dump_slice(slice_body("x", name="theirs"))
    home.write(text + laughs, "theirs")
    home.write(text + "more: !!bool perhaps\n", "odd")
    async with followed(home) as seen:
        home.write(text + "# a remark\n" + laughs, "theirs")
        home.write(dump_slice(slice_body("a")))
        await seen.until({NAME: ["a"]})
