"""Disks: offered while the machine does not stand on them, withdrawn the moment it does."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.vm.attributes import DISK, NVME, pci, usb
from tests.vm.desk import Desk, kinds
from tests.vm.hardware import Hardware

NAME, ADDRESS = "usb-2-1-1-0", "2-1:1.0"
NVME_NAME, NVME_ADDRESS = "pci-0000-01-00-0", "0000:01:00.0"
MOUNT = "/run/mnt"


@pytest.fixture
def disk(desk: Desk, hardware: Hardware) -> str:
    """A USB disk that is plugged in and published; its node."""
    hardware.usb_disk("1", "D1")
    return until_node(desk, NAME, "/dev/sd")


@pytest.fixture
def tidy(desk: Desk) -> Iterator[None]:
    """Ends every use of a disk, also if the test failed."""
    yield
    desk.control.shell(
        f"umount {MOUNT} 2>/dev/null || true; swapoff -a; "
        "dmsetup remove_all 2>/dev/null || true; udevadm settle"
    )


def until_node(desk: Desk, name: str, prefix: str) -> str:
    """Waits until a disk is published, and returns its block node."""
    desk.until(lambda: desk.nodes(name), f"{name} to be published")
    (node,) = [path for path in desk.nodes(name)[0] if path.startswith(prefix)]
    return node


def assert_use_withdraws(desk: Desk, name: str, attributes: dict[str, Any], why: str) -> None:
    """The device was there, was withdrawn by its use, and came back; nothing else ever."""
    here = {name: attributes}
    assert desk.states(name) == [{}, here, {}, here]
    assert desk.why(name) == [why]


def test_a_usb_disk_is_offered_with_all_its_nodes(
    desk: Desk, hardware: Hardware, disk: str
) -> None:
    nodes = desk.delivered(ADDRESS)
    hardware.pull_all()
    desk.until_gone(NAME)
    assert kinds(nodes) == ["/dev/bsg/#:#:#:#", "/dev/bus/usb/#/#", "/dev/sda", "/dev/sg#"]
    assert desk.nodes(NAME) == [nodes]
    assert desk.states("usb-2-1-") == [{}, {NAME: usb(ADDRESS, DISK, serial="D1")}, {}]


@pytest.mark.usefixtures("tidy")
def test_a_mount_withdraws_a_disk_and_an_unmount_offers_it(desk: Desk, disk: str) -> None:
    desk.control.shell(f"mkfs.ext4 -q {disk}; mkdir -p {MOUNT}; mount {disk} {MOUNT}")
    desk.until_gone(NAME)
    desk.control.run("umount", MOUNT)
    desk.until_offered(NAME)
    why = f"in-use: {disk} is mounted on {MOUNT}"
    assert_use_withdraws(desk, NAME, usb(ADDRESS, DISK, serial="D1"), why)


@pytest.mark.usefixtures("tidy")
def test_swap_withdraws_a_disk(desk: Desk, disk: str) -> None:
    desk.control.shell(f"mkswap -q {disk}; swapon {disk}")
    desk.until_gone(NAME)
    desk.control.run("swapoff", disk)
    desk.until_offered(NAME)
    why = f"in-use: {disk} is an active swap area"
    assert_use_withdraws(desk, NAME, usb(ADDRESS, DISK, serial="D1"), why)


@pytest.mark.usefixtures("tidy")
def test_a_mounted_logical_volume_withdraws_the_disk_below_it(desk: Desk, disk: str) -> None:
    desk.control.shell(
        f"pvcreate -q {disk}; vgcreate -q vg {disk}; lvcreate -q -y -l 4 -n lv vg; "
        f"mkfs.ext4 -q /dev/vg/lv; mkdir -p {MOUNT}; mount /dev/vg/lv {MOUNT}"
    )
    desk.until_gone(NAME)
    desk.control.shell(f"umount {MOUNT}; vgchange -q -an vg")
    desk.until_offered(NAME)
    why = f"in-use: {disk} carries /dev/mapper/vg-lv, which is mounted on {MOUNT}"
    assert_use_withdraws(desk, NAME, usb(ADDRESS, DISK, serial="D1"), why)


@pytest.mark.usefixtures("tidy")
def test_an_nvme_disk_is_plugged_in_mounted_and_pulled(desk: Desk, hardware: Hardware) -> None:
    device = hardware.pci("nvme", 0, drive=hardware.disk(), serial="N1")
    node = until_node(desk, NVME_NAME, "/dev/nvme0n")
    nodes = desk.delivered(NVME_ADDRESS)
    desk.control.shell(f"mkfs.ext4 -q {node}; mkdir -p {MOUNT}; mount {node} {MOUNT}")
    desk.until_gone(NVME_NAME)
    desk.control.run("umount", MOUNT)
    desk.until_offered(NVME_NAME)
    hardware.pull(device)
    desk.until_gone(NVME_NAME)
    here = {NVME_NAME: pci(NVME_ADDRESS, NVME)}
    assert kinds(nodes) == ["/dev/ng#n#", "/dev/nvme#", "/dev/nvme#n#"]
    assert desk.nodes(NVME_NAME) == [nodes, nodes]
    assert desk.states("pci-0000-01-") == [{}, here, {}, here, {}]
    assert desk.why(NVME_NAME) == [f"in-use: {node} is mounted on {MOUNT}", "gone"]
