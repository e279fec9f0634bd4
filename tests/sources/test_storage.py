import errno
import os
import stat
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from liken_events.core.model.publish import inventory
from liken_events.core.model.snapshot import Device, Snapshot, Storage, Use
from liken_events.core.model.storage import PROTECTED
from liken_events.simulate.tree import MachineTree
from liken_events.sources.attributes import Files
from liken_events.sources.storage import StorageReader
from liken_events.sources.sysfs import Roots, Scanner
from tests.fakes import machines
from tests.fakes.agents import Build
from tests.fakes.devices import scsi_disk, usb
from tests.fakes.faults import CountingFiles

MOUNTED = Use(what="/", fstype="ext4", source="/dev/sda1", number="8:1")
MADE = [machines.desktop, machines.server, machines.homelab, machines.empty_vm]


def reader(tree: MachineTree, files: Files | None = None, *protect: str) -> StorageReader:
    return StorageReader(
        sys=tree.sys, dev=tree.dev, proc=tree.proc, protect=protect, files=files or Files()
    )


def disks_offered(snapshot: Snapshot) -> set[str]:
    """Names of offered devices that deliver a block device."""
    return {
        device.name
        for device in inventory(snapshot).offered
        if any(node.block for node in device.nodes)
    }


@pytest.mark.parametrize("made", MADE, ids=lambda made: made.__name__)
def test_disks_and_their_uses_are_read_as_they_are(
    build: Build, made: Callable[[], Snapshot]
) -> None:
    assert reader(build(made(), clutter=True)).read() == made().storage


def test_the_machine_that_the_tests_run_on_can_be_read() -> None:
    roots = Roots()
    found = StorageReader(
        sys=roots.sys, dev=roots.dev, proc=roots.proc, protect=(), files=Files()
    ).read()
    assert found.unknown is None
    assert all(disk.number.count(":") == 1 for disk in found.disks)


def test_only_mounts_that_can_lie_on_a_disk_are_kept(build: Build) -> None:
    tree = build(machines.homelab(), clutter=True)
    with open(f"{tree.proc}/1/mountinfo", encoding="utf-8") as table:
        lines = len(table.readlines())
    uses, unknown = reader(tree).uses()
    assert unknown is None
    assert {use.what for use in uses} == {"/", "/mnt/my backup"}
    assert lines > len(uses)


def test_the_host_s_mounts_are_those_of_process_1_and_ours_where_that_is_hidden(
    build: Build,
) -> None:
    tree = build(machines.homelab())
    expected = reader(tree).uses()
    os.unlink(f"{tree.proc}/self")
    os.mkdir(f"{tree.proc}/self")
    os.rename(f"{tree.proc}/1/mountinfo", f"{tree.proc}/self/mountinfo")
    assert reader(tree).uses() == expected


def test_a_kernel_without_swap_has_no_list_of_it(build: Build) -> None:
    tree = build(machines.server())
    os.unlink(f"{tree.proc}/swaps")
    found = reader(tree).read()
    assert found.unknown is None
    assert {use.fstype for use in found.uses} == {"ext4", "xfs", "btrfs"}


def hide_mounts(tree: MachineTree) -> None:
    os.unlink(f"{tree.proc}/1/mountinfo")


def spoil_mounts(tree: MachineTree) -> None:
    Path(f"{tree.proc}/1/mountinfo").write_text("22 1 8:1 / / rw - ext4 /dev/sda1 rw\nnonsense\n")


def spoil_swaps(tree: MachineTree) -> None:
    Path(f"{tree.proc}/swaps").write_text("Filename Type\n/dev/sda2\n")


def spoil_disks(tree: MachineTree) -> None:
    os.rename(f"{tree.sys}/class/block", f"{tree.sys}/class/old")
    Path(f"{tree.sys}/class/block").write_text("")


def spoil_slaves(tree: MachineTree) -> None:
    slaves = f"{tree.sys}/devices/virtual/block/dm-0/slaves"
    os.rename(slaves, f"{slaves}-old")
    Path(slaves).write_text("")


@pytest.mark.parametrize(
    "spoil", [hide_mounts, spoil_mounts, spoil_swaps, spoil_disks, spoil_slaves]
)
def test_what_cannot_be_told_takes_every_disk_out_of_the_offer(
    build: Build, spoil: Callable[[MachineTree], None]
) -> None:
    tree = build(machines.server())
    roots = Roots(sys=tree.sys, dev=tree.dev, proc=tree.proc, pci_ids=tree.pci_ids)
    assert disks_offered(Scanner(roots).scan()) == {"pci-0000-44-00-0"}
    spoil(tree)
    found = Scanner(roots).scan()
    assert found.storage.unknown is not None
    assert disks_offered(found) == set()
    assert inventory(found).offered, "what is no disk is offered all the same"


def test_running_out_of_something_never_makes_a_disk_look_free(build: Build) -> None:
    tree = build(machines.server())
    files = CountingFiles()
    whole = reader(tree, files).read()
    steps = files.steps
    files.error = OSError(errno.ENFILE, os.strerror(errno.ENFILE))
    for step in range(1, steps + 1):
        files.steps, files.at = 0, step
        found = reader(tree, files).read()
        assert found == whole or found.unknown is not None, f"at step {step}"


def test_a_disk_that_goes_in_the_middle_of_a_look_leaves_the_others(build: Build) -> None:
    disks = [
        usb(
            f"2-{index + 1}:1.0",
            "0781:5581",
            "080650",
            "usb-storage",
            index + 2,
            nodes=scsi_disk("", index, index, 1),
        )
        for index in range(2)
    ]
    tree = build(machines.machine(disks, [MOUNTED]))
    files = CountingFiles()
    reader(tree, files).read()
    kept = reader(tree)
    for step in range(1, files.steps + 1):
        files.steps, files.at = 0, step
        files.happens = lambda: tree.unplug("2-2")
        found = reader(tree, files).read()
        assert kept.read() == reader(tree).read()
        assert found.unknown is None
        assert {disk.name for disk in found.disks} - {"sdb", "sdb1"} == {"sda", "sda1"}
        assert found.uses == (MOUNTED,)
        tree.plug(disks[1])
        assert kept.read() == reader(tree).read()


def test_a_disk_that_has_the_name_of_an_earlier_one_is_another_disk(build: Build) -> None:
    def stick(index: int, partitions: int) -> Device:
        nodes = scsi_disk("", 0, index, partitions)
        renamed = [
            replace(
                node, path=node.path.replace("sdc", "sda"), place=node.place.replace("sdc", "sda")
            )
            for node in nodes
        ]
        return usb("2-1:1.0", "0781:5581", "080650", "usb-storage", 2, nodes=renamed)

    tree = build(machines.machine([stick(0, 1)]))
    look = reader(tree)
    for index, partitions in ((2, 2), (0, 1), (2, 0)):
        look.read()
        tree.unplug("2-1")
        tree.plug(stick(index, partitions))
        assert look.read() == reader(tree).read()
        assert {disk.number for disk in look.read().disks} == {
            f"8:{index * 16 + minor}" for minor in range(partitions + 1)
        }


def test_a_protected_disk_is_found_by_any_of_its_names(build: Build) -> None:
    tree = build(machines.homelab())
    os.makedirs(f"{tree.dev}/disk/by-id")
    try:
        os.mknod(f"{tree.dev}/sdb", stat.S_IFBLK | 0o600, os.makedev(8, 16))
    except PermissionError as error:
        pytest.skip(f"no block device can be made: {error}")
    os.symlink("../../sdb", f"{tree.dev}/disk/by-id/usb-SanDisk")
    name = "/dev/disk/by-id/usb-SanDisk"
    uses, _ = reader(tree, None, name).uses()
    assert Use(what=name, fstype=PROTECTED, source=name, number="8:16") in uses
    roots = Roots(sys=tree.sys, dev=tree.dev, proc=tree.proc, protect=(name,))
    assert disks_offered(Scanner(roots).scan()) == set()


def test_looking_at_the_uses_alone_tells_whether_they_changed(build: Build) -> None:
    tree = build(machines.homelab())
    scanner = Scanner(Roots(sys=tree.sys, dev=tree.dev, proc=tree.proc))
    known = scanner.storage()
    assert not scanner.uses_changed(known)
    tree.mount(Use(what="/mnt/x", fstype="vfat", source="/dev/sdb1", number="8:17"))
    assert scanner.uses_changed(known)
    tree.unmount("/mnt/x")
    assert not scanner.uses_changed(known)
    hide_mounts(tree)
    assert scanner.uses_changed(known)
    assert scanner.uses_changed(Storage())
