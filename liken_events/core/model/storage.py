"""Which block devices the machine stands on.

A mounted filesystem or an active swap area names one block device, but may lie on many: a logical
volume on an encrypted partition on a RAID of four disks. The kernel shows each step: a partition's
disk, the `slaves` of a device-mapper, md or bcache device, the members of a btrfs filesystem.

This file follows the steps down. A device with one of those block devices in its delivery is never
published, and if the mounts cannot be told, no block device is: the one that the machine stands on
could be among them.

Reading mounts, swap areas and block devices is left to `sources.storage` and `core.decode.mounts`.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from liken_events.core.model.delivery import served_disk
from liken_events.core.model.device import Reason, Withheld
from liken_events.core.model.names import printable
from liken_events.core.model.snapshot import Device, Disk, Storage, Use

MULTI_DISK = frozenset({"btrfs", "bcachefs", "zfs"})
"""Filesystems that span disks and so show a device number that no disk has."""

NO_DEVICE = "0:"
"""What the number of a mount starts with that lies on no single block device."""

SWAP = "swap"
PROTECTED = "protected"
"""`fstype` of a use that is no mount."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stake:
    """What the machine has in one block device.

    Attributes:
        clause: such as `is mounted on /home`.
        via: path of the block device that the clause is about, if it only lies on this one.
    """

    clause: str
    via: str | None = None

    def __str__(self) -> str:
        return self.clause if self.via is None else f"carries {self.via}, which {self.clause}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Dependence:
    """What the machine depends on.

    Attributes:
        disks: kernel name of each block device that something stands on, to the reason.
        unknown: why it could not be told, or None.
    """

    disks: Mapping[str, Stake] = field(default_factory=dict)
    unknown: str | None = None

    def withhold(self, device: Device) -> Withheld | None:
        """Why this device must stay with the machine; None if nothing is known to stand on it."""
        found = [node.path for node in device.nodes if node.block]
        names = {path: path.removeprefix("/dev/") for path in found}
        for hidden in device.hidden_disks:
            found.append(hidden)
            names[hidden] = served_disk(hidden) or hidden
        if found and self.unknown is not None:
            return Withheld(
                reason=Reason.STORAGE_UNKNOWN,
                detail=printable(f"{found[0]} may be in use: {self.unknown}"),
            )
        # sysfs writes a slash in a name as `!` (cciss!c0d0), /dev as a directory.
        stakes = [(path, self.disks.get(names[path].replace("/", "!"))) for path in found]
        known = [(path, stake) for path, stake in stakes if stake is not None]
        if not known:
            return None
        path, stake = min(known, key=lambda item: item[1].via is not None)
        return Withheld(reason=Reason.IN_USE, detail=printable(f"{path} {stake}"))


def has_disks(device: Device) -> bool:
    """Whether what the machine stands on can matter to this device at all."""
    return bool(device.hidden_disks) or any(node.block for node in device.nodes)


def dependence(storage: Storage) -> Dependence:
    """Follows every use down to the disks below it."""
    if storage.unknown is not None:
        return Dependence(unknown=storage.unknown)
    table = _Table(storage.disks)
    stakes: dict[str, Stake] = {}
    for use in storage.uses:
        first = table.resolve(use)
        if not first and _must_have_disk(use):
            return Dependence(unknown=f"what {_clause(use)} lies on could not be told")
        for disk in first:
            for name in table.below(disk):
                via = None if name == disk.name else table.path(disk)
                stake = Stake(clause=_clause(use), via=via)
                if name not in stakes or (stakes[name].via is not None and via is None):
                    stakes[name] = stake
    return Dependence(disks=stakes)


def may_lie_on_disk(use: Use) -> bool:
    """Whether a mount can lie on a block device at all. A container host has hundreds that do not.

    Major 0 stands for no device (proc, tmpfs, overlay, network filesystems), and for filesystems
    over several disks.
    """
    return (
        (use.number is not None and not use.number.startswith(NO_DEVICE))
        or use.fstype in MULTI_DISK
        or use.source.startswith("/dev/")
    )


def _must_have_disk(use: Use) -> bool:
    """Whether a use that leads to no known disk means that some unknown disk is in use."""
    if use.fstype == SWAP:
        return use.source.startswith(
            "/dev/"
        )  # a swap file lies on a filesystem that is mounted itself
    return use.fstype in MULTI_DISK


def _clause(use: Use) -> str:
    if use.fstype == SWAP:
        return "is an active swap area"
    if use.fstype == PROTECTED:
        return "is protected by the configuration"
    return f"is mounted on {use.what}"


def _node_path(disk: Disk) -> str:
    """sysfs writes a slash in a name as `!` (cciss!c0d0), `/dev` as a directory."""
    return "/dev/" + disk.name.replace("!", "/")


class _Table:
    """The block devices of a machine, by every name that a mount may use."""

    def __init__(self, disks: Iterable[Disk]) -> None:
        self._by_name = {disk.name: disk for disk in disks}
        self._by_number = {disk.number: disk for disk in self._by_name.values()}
        self._by_path = {_node_path(disk): disk for disk in self._by_name.values()}
        self._by_path |= {
            f"/dev/mapper/{disk.mapper}": disk for disk in self._by_name.values() if disk.mapper
        }

    def path(self, disk: Disk) -> str:
        """The path of a disk that people know it by."""
        return f"/dev/mapper/{disk.mapper}" if disk.mapper else _node_path(disk)

    def resolve(self, use: Use) -> tuple[Disk, ...]:
        """The block devices that a use names itself."""
        if use.number is not None and use.number in self._by_number:
            named = [self._by_number[use.number]]
        else:
            # bcachefs writes all its members into the source, with colons between.
            parts = use.source.split(":") if use.fstype == "bcachefs" else [use.source]
            named = [self._by_path[part] for part in parts if part in self._by_path]
        pools = {pool for disk in named for pool in disk.btrfs}
        members = [disk for disk in self._by_name.values() if pools.intersection(disk.btrfs)]
        return tuple({disk.name: disk for disk in [*named, *members]}.values())

    def below(self, disk: Disk) -> Iterable[str]:
        """The disk itself and all that it lies on, by name."""
        seen: set[str] = set()
        waiting = [disk.name]
        while waiting:
            name = waiting.pop()
            if name in seen:
                continue
            seen.add(name)
            found = self._by_name.get(name)
            if found is not None:
                waiting += found.slaves
                if found.whole is not None:
                    waiting.append(found.whole)
        return sorted(seen)
