"""Block devices and what lies on what, in a made-up sysfs.

`/sys/class/block` has all block devices of a machine: disks and partitions of PCI and USB devices,
and those that the kernel makes of others. A RAID, a logical volume and an encrypted partition lie
below `/sys/devices/virtual` and name what they are made of in `slaves`, device-mapper tells its
name in `dm/name`, and a mounted btrfs filesystem lists its members in `/sys/fs/btrfs`.

This file shows all that, and knows which block devices there are. Disks of PCI and USB devices
come and go with the device, in `simulate.tree`.
"""

from collections.abc import Iterable

from liken_events.core.model.delivery import served_disk
from liken_events.core.model.snapshot import Device, Disk
from liken_events.simulate.directories import Directories
from liken_events.simulate.hardware import is_partition, virtual_disk
from liken_events.simulate.kobjects import BLOCK, Kobject

_VIRTUAL = "/devices/virtual/block"
_MULTIPATH = "/devices/virtual/nvme-subsystem/nvme-subsys0"


class Disks:
    """The block devices that a tree shows."""

    def __init__(self, directories: Directories) -> None:
        self._directories = directories
        self._known: dict[str, Disk] = {}
        self._paths: dict[str, str] = {}
        self._served: set[str] = set()

    def values(self) -> Iterable[Disk]:
        """All block devices that have a number, in no order."""
        return self._known.values()

    def learn(self, device: Device) -> None:
        """Takes up the block devices among a device's nodes."""
        self._served |= {served for name in device.hidden_disks if (served := served_disk(name))}
        for disk in disks_of(device):
            self._known.setdefault(disk.name, disk)
        for node in device.nodes:
            if node.block:
                path = f"{device.path}/{node.place}"
                self._paths[path.rpartition("/")[2]] = path

    def forget(self, objects: Iterable[Kobject]) -> None:
        """Forgets the block devices among objects that were dropped."""
        for item in objects:
            disk = self._known.pop(item.name, None) if item.subsystem == BLOCK else None
            if disk is not None:
                del self._paths[disk.name]
                for pool in disk.btrfs:
                    self._directories.unlink(_member(pool, disk))

    def add(self, disks: Iterable[Disk]) -> None:
        """Shows what lies on what, and makes those block devices that belong to no PCI or USB
        device."""
        ordered = sorted(disks, key=lambda disk: (disk.whole is not None, disk.name))
        for disk in ordered:
            if disk.name not in self._paths:
                self._paths[disk.name] = path = self._virtual_path(disk)
                self._directories.put(virtual_disk(disk, path))
            self._known[disk.name] = disk
        for disk in ordered:
            self._show_stack(disk)

    def _virtual_path(self, disk: Disk) -> str:
        if disk.whole is not None:
            return f"{self._path(disk.whole)}/{disk.name}"
        return f"{_MULTIPATH if disk.name in self._served else _VIRTUAL}/{disk.name}"

    def _path(self, name: str) -> str:
        return self._paths.get(name, f"{_VIRTUAL}/{name}")

    def _show_stack(self, disk: Disk) -> None:
        path = self._paths[disk.name]
        if disk.mapper is not None:
            self._directories.write(f"{path}/dm/name", disk.mapper)
        for slave in disk.slaves:
            self._directories.link(f"{path}/slaves/{slave}", self._path(slave))
            if slave in self._paths:
                self._directories.link(f"{self._paths[slave]}/holders/{disk.name}", path)
        for pool in disk.btrfs:
            self._directories.link(_member(pool, disk), path)


def disks_of(device: Device) -> Iterable[Disk]:
    """The block devices among a device's nodes, with nothing that lies on them yet."""
    for node in device.nodes:
        if node.block:
            above, _, name = f"/{node.place}".rpartition("/")
            whole = above.rpartition("/")[2] if is_partition(node, device.nodes) else None
            yield Disk(name=name, number=f"{node.major}:{node.minor}", whole=whole)


def _member(pool: str, disk: Disk) -> str:
    return f"/fs/btrfs/{pool}/devices/{disk.name}"
