"""The whole agent against what others do to its slice, and to the mounts of the machine."""

import os
import shutil
from pathlib import Path

import pytest

from liken_events.cluster.slice_file import load_slice
from liken_events.core.model.snapshot import Use
from tests.fakes.agents import QUICK, STICK, STICK_NAME, Agent, Build, Launch, devices
from tests.fakes.devices import scsi_disk, usb
from tests.fakes.machines import empty_vm, homelab, machine
from tests.fakes.mount_namespace import MountNamespace

DISK = usb("2-2:1.0", "0781:5581", "080650", "usb-storage", 3, nodes=scsi_disk("", 11, 7, 1))
DISK_NAME = "usb-2-2-1-0"
DISK_USE = Use(what="/mnt/stick", fstype="ext4", source="/dev/sdh1", number="8:113")


def text_of(agent: Agent) -> str | None:
    """The slice's file; None without one."""
    try:
        return Path(agent.path).read_text()
    except FileNotFoundError:
        return None


def on_disk(agent: Agent) -> set[str]:
    """The devices in the slice's file now; none if it is no slice."""
    body = load_slice(text_of(agent) or "")
    return set() if body is None else set(devices(body))


def edit(agent: Agent, text: str) -> None:
    Path(agent.path).write_text(text)


async def test_a_slice_that_somebody_deletes_is_back_at_once(build: Build, launch: Launch) -> None:
    agent = launch(build(homelab()), *QUICK)
    await agent.until_sliced()
    offered = agent.offered
    for generation in (2, 3):
        os.unlink(agent.path)
        await agent.until(lambda: agent.generation == generation, seconds=2)  # noqa: B023
        assert agent.offered == offered
    assert len(agent.logged("machine.read")) == 1


async def test_a_slice_that_somebody_edits_is_put_right_at_once(
    build: Build, launch: Launch
) -> None:
    agent = launch(build(homelab()), *QUICK)
    await agent.until_sliced()
    offered, text = on_disk(agent), text_of(agent) or ""
    for edited in (
        text.replace("usb-1-1-1-0", "usb-1-1-1-10"),
        text[: text.index("  - name: usb-1-3-1-0")],
        text.replace("driver: cp210x", "driver: other"),
        text.replace("nodeName: n1", "nodeName: other"),
        "{no yaml",
        "",
    ):
        known = agent.generation
        edit(agent, edited)
        await agent.until(lambda: agent.generation > known, seconds=2)  # noqa: B023
        await agent.until(lambda: on_disk(agent) == offered, seconds=2)
        assert "other" not in (text_of(agent) or "")


async def test_a_directory_that_somebody_removes_is_made_again_with_the_slice(
    build: Build, launch: Launch, tmp_path: Path
) -> None:
    agent = launch(build(homelab()), *QUICK)
    await agent.until_sliced()
    offered, slices = on_disk(agent), Path(agent.path).parent
    for removed in (slices, slices.parent, slices):
        shutil.rmtree(removed.rename(tmp_path / "removed"))  # in one step: the repair is quick
        await agent.until(lambda: on_disk(agent) == offered, seconds=3)
    agent.say(agent.tree.unplug("1-1"))
    await agent.until(lambda: on_disk(agent) == offered - {"usb-1-1-1-0"})


async def test_files_of_others_are_left_alone(build: Build, launch: Launch) -> None:
    agent = launch(build(homelab()), *QUICK)
    slices = Path(agent.path).parent
    others = {
        "n2-liken.sh.yaml": "kind: ResourceSlice\nmetadata: {name: n2-liken.sh}\n"
        "spec: {driver: liken.sh, nodeName: n2}\n",
        "gpu.example.com.yaml": "kind: ResourceSlice\nmetadata: {name: gpu.example.com}\n"
        "spec: {driver: gpu.example.com, nodeName: n1}\n",
        "README": "text\n",
    }
    for name, text in others.items():
        (slices / name).write_text(text)
    await agent.until_sliced()
    agent.say(agent.tree.plug(STICK))
    await agent.until_offered(present=[STICK_NAME])
    assert await agent.stop() == 0
    assert {path.name for path in slices.iterdir()} == {*others, "n1-liken.sh.yaml"}
    assert all((slices / name).read_text() == text for name, text in others.items())


async def test_the_slice_is_made_with_the_first_device_and_goes_with_the_last(
    build: Build, launch: Launch
) -> None:
    agent = launch(build(empty_vm()), *QUICK)
    await agent.until_ready()
    assert text_of(agent) is None
    agent.say(agent.tree.plug(STICK))
    await agent.until_offered(present=[STICK_NAME])
    agent.say(agent.tree.unplug("1-9"))
    await agent.until(lambda: text_of(agent) is None)
    agent.say(agent.tree.plug(STICK))
    await agent.until(lambda: agent.generation == 2)
    assert os.listdir(os.path.dirname(agent.path)) == ["n1-liken.sh.yaml"]


async def test_a_disk_is_withheld_while_it_is_mounted(build: Build, launch: Launch) -> None:
    agent = launch(build(machine([DISK, STICK])), *QUICK)
    before = await agent.until_sliced()
    assert DISK_NAME in agent.offered
    agent.tree.mount(DISK_USE)
    await agent.until_offered(absent=[DISK_NAME])
    details = ["in-use: /dev/sdh1 is mounted on /mnt/stick"]
    await agent.until(lambda: agent.logged("device.removed", details=details))
    agent.tree.unmount(DISK_USE.what)
    await agent.until_offered(present=[DISK_NAME])
    assert agent.generation == before + 2


@pytest.mark.skipif(
    os.geteuid() != 0,
    reason="an agent in a user namespace of its own may not look into another one",
)
async def test_a_disk_is_withheld_while_the_kernel_has_it_mounted(
    build: Build, launch: Launch, mounts: MountNamespace
) -> None:
    agent = launch(build(machine([DISK, STICK])), *QUICK, f"--proc-root={mounts.root}/proc")
    before = await agent.until_sliced()
    assert agent.logged("mounts.watching", by="poll")
    assert DISK_NAME in agent.offered, agent.logged("storage.unknown")
    for _ in range(2):
        mounts.run("mount", "-t", "tmpfs", "/dev/sdh1", "/mnt")
        await agent.until_offered(absent=[DISK_NAME])
        mounts.run("umount", "/mnt")
        await agent.until_offered(present=[DISK_NAME])
    assert agent.generation == before + 4


async def test_a_disk_that_is_plugged_in_mounted_is_never_offered(
    build: Build, launch: Launch
) -> None:
    agent = launch(build(homelab()), *QUICK)
    await agent.until_sliced()
    agent.say(agent.tree.unplug("2-2"))
    await agent.until_offered(absent=[DISK_NAME])
    seen = len(agent.shapes)
    agent.tree.mount(DISK_USE)
    agent.say(agent.tree.plug(DISK))
    agent.say(agent.tree.plug(STICK))
    await agent.until_offered(present=[STICK_NAME])
    assert all(DISK_NAME not in shape for shape in agent.shapes[seen:])
    await agent.until_true()
