"""Block devices of a made-up sysfs: what lies on what."""

import os
from pathlib import Path

import pytest

from liken_events.core.model.snapshot import Disk
from liken_events.simulate.directories import Directories
from liken_events.simulate.disks import Disks, disks_of
from liken_events.simulate.hardware import children
from tests.fakes.devices import pci, scsi_disk

HOLDER = pci("0000:00:17.0", "8086:a352", "010601", "ahci", nodes=scsi_disk("ata1/", 0, 0, 2))
VIRTUAL = "devices/virtual/block"


@pytest.fixture
def directories(tmp_path: Path) -> Directories:
    made = Directories(f"{tmp_path}/sys", clutter=False)
    for item in children(HOLDER):
        made.put(item)
    return made


@pytest.fixture
def disks(directories: Directories) -> Disks:
    made = Disks(directories)
    made.learn(HOLDER)
    return made


def test_the_block_devices_of_a_device_are_known_with_their_partitions() -> None:
    assert list(disks_of(HOLDER)) == [
        Disk(name="sda", number="8:0"),
        Disk(name="sda1", number="8:1", whole="sda"),
        Disk(name="sda2", number="8:2", whole="sda"),
    ]


def test_a_stack_is_shown_from_both_ends(disks: Disks, tmp_path: Path) -> None:
    disks.add([Disk(name="dm-0", number="253:0", slaves=("sda2",), mapper="vault")])

    top = tmp_path / "sys" / VIRTUAL / "dm-0"
    assert (top / "dm/name").read_text() == "vault\n"
    below = os.path.realpath(top / "slaves/sda2")
    assert below.endswith("/block/sda/sda2")
    assert os.path.realpath(f"{below}/holders/dm-0") == str(top)


def test_what_a_disk_is_made_of_may_come_later_in_the_list(disks: Disks, tmp_path: Path) -> None:
    disks.add(
        [
            Disk(name="dm-0", number="253:0", slaves=("md0",)),
            Disk(name="md0", number="9:0", slaves=("sda1", "gone")),
            Disk(name="md0p1", number="259:0", whole="md0"),
        ]
    )

    block = tmp_path / "sys" / VIRTUAL
    assert os.path.realpath(block / "dm-0/slaves/md0") == str(block / "md0")
    assert os.path.lexists(block / "md0/slaves/gone")
    assert (block / "md0/md0p1/partition").read_text() == "1\n"
    assert (block / "md0/md0p1/holders").exists() is False


def test_members_of_a_filesystem_are_listed_until_they_are_gone(
    disks: Disks, directories: Directories, tmp_path: Path
) -> None:
    disks.add([Disk(name="sda1", number="8:1", whole="sda", btrfs=("pool",))])
    member = tmp_path / "sys/fs/btrfs/pool/devices/sda1"
    assert os.path.realpath(member).endswith("/block/sda/sda1")

    disks.forget(directories.drop(HOLDER.path + "/ata1/host0"))

    assert not os.path.lexists(member)
    assert list(disks.values()) == []


def test_a_disk_that_was_described_is_not_learnt_anew(disks: Disks) -> None:
    described = Disk(name="sda1", number="8:1", whole="sda", btrfs=("pool",))
    disks.add([described])

    disks.learn(HOLDER)

    assert described in disks.values()


def test_the_disk_of_a_hidden_path_lies_in_its_subsystem(disks: Disks, tmp_path: Path) -> None:
    disks.learn(pci("0000:41:00.0", "144d:a824", "010802", "nvme", hidden_disks=["nvme0c0n1"]))

    disks.add([Disk(name="nvme0n1", number="259:0"), Disk(name="loop0", number="7:0")])

    sys = tmp_path / "sys"
    served, other = (os.path.realpath(sys / "class/block" / name) for name in ("nvme0n1", "loop0"))
    assert served == str(sys / "devices/virtual/nvme-subsystem/nvme-subsys0/nvme0n1")
    assert other == str(sys / VIRTUAL / "loop0")
