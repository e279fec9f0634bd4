"""What the machine's own filesystems and swap stand on, read from procfs and sysfs.

The mounts of the host are those of process 1: an agent in a container has a mount namespace of its
own. The block devices are in `/sys/class/block`, each with its number, its partitions' disk and
its `slaves`; mounted btrfs filesystems list their members in `/sys/fs/btrfs`.

This file reads all of it. If the mounts cannot be read, the storage says so, and nobody may be
offered a block device. Following uses down to disks is left to `core.model.storage`, the text
formats to `core.decode.mounts`.
"""

import os
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace

from liken_events.core.decode.mounts import Unreadable, mounts, swaps
from liken_events.core.model.snapshot import Disk, Storage, Use, sort_disks, sort_uses
from liken_events.core.model.storage import NO_DEVICE, PROTECTED, SWAP, may_lie_on_disk
from liken_events.sources.attributes import Files


class StorageReader:
    """Reads one machine's storage. Methods block."""

    def __init__(
        self, *, sys: str, dev: str, proc: str, protect: Sequence[str], files: Files
    ) -> None:
        self._sys = sys
        self._dev = dev
        self._proc = proc
        self._protect = protect
        self._files = files
        self._virtual = f"{sys}/devices/virtual/"
        self._fixed: dict[str, tuple[int, Disk]] = {}

    def read(self, *, anew: bool = False) -> Storage:
        """Everything, in one look.

        Args:
            anew: read also what does not change while a block device exists: number and disk of
                those that lie on a bus. A large machine has hundreds, and each of a disk's dozen
                events may be followed by a look.
        """
        if anew:
            self._fixed = {}
        uses, unknown = self.uses()
        try:
            pools = self._pools()
            links = self._files.inodes(f"{self._sys}/class/block")
            numbers = frozenset(self._files.names(f"{self._sys}/dev/block"))
            disks = [self._disk(name, inode, numbers) for name, inode in links.items()]
        except OSError as error:
            return Storage(uses=uses, unknown=f"the block devices could not be read ({error})")
        found = (disk for disk in disks if disk is not None)
        return Storage(
            uses=uses,
            disks=sort_disks(
                replace(disk, btrfs=tuple(pools[disk.name])) if disk.name in pools else disk
                for disk in found
            ),
            unknown=unknown,
        )

    def uses(self) -> tuple[tuple[Use, ...], str | None]:
        """Mounts and swap areas on block devices, or none and why they could not be read."""
        try:
            return sort_uses(self._uses()), None
        except (OSError, Unreadable) as error:
            return (), f"the mounts could not be read ({error})"

    def _disk(self, name: str, inode: int, numbers: Collection[str]) -> Disk | None:
        """A block device; None if it is gone or has no number.

        Args:
            name: of its link.
            inode: of the link; another one means another block device.
            numbers: all that are in use. On a file system that gives inode numbers again, which a
                made-up tree may lie on, they tell nearly as much.
        """
        known, disk = self._fixed.get(name, (None, None))
        if disk is not None and known == inode and disk.number in numbers:
            return disk
        path = self._files.target(f"{self._sys}/class/block/{name}")
        disk = None if path is None else self._read(name, path)
        if path is not None and disk is not None and not path.startswith(self._virtual):
            self._fixed[name] = inode, disk
        return disk

    def _read(self, name: str, path: str) -> Disk | None:
        number = self._files.text(f"{path}/dev")
        if number is None:
            return None  # gone, or hidden: a path of a multipath disk has no number
        partition = self._files.text(f"{path}/partition") is not None
        mapper = self._files.text(f"{path}/dm/name")
        return Disk(
            name=name,
            number=number.strip(),
            whole=os.path.basename(os.path.dirname(path)) if partition else None,
            slaves=tuple(self._files.names(f"{path}/slaves")),
            mapper=mapper.strip() if mapper else None,
        )

    def _pools(self) -> dict[str, list[str]]:
        """Block device name to the ids of the mounted btrfs filesystems that it is a member of."""
        found: dict[str, list[str]] = {}
        top = f"{self._sys}/fs/btrfs"
        for pool in self._files.names(top):
            for member in self._files.names(f"{top}/{pool}/devices"):
                found.setdefault(member, []).append(pool)
        return found

    def _uses(self) -> Iterable[Use]:
        yield from filter(may_lie_on_disk, map(self._located, self._mounts()))
        yield from map(self._located, self._swaps())
        for path in self._protect:
            yield self._located(Use(what=path, fstype=PROTECTED, source=path))

    def _mounts(self) -> list[Use]:
        return [
            Use(what=mount.point, fstype=mount.fstype, source=mount.source, number=mount.number)
            for mount in mounts(self._mountinfo())
        ]

    def _mountinfo(self) -> str:
        """The host's mount table.

        Everybody may read that of process 1, unless procfs hides other users' processes
        (`hidepid`:
        ENOENT, or EACCES by a security module). Then our own is the next best: without a container
        it is the same one.
        """
        try:
            return self._files.whole(f"{self._proc}/1/mountinfo")
        except (PermissionError, FileNotFoundError):
            return self._files.whole(f"{self._proc}/self/mountinfo")

    def _swaps(self) -> list[Use]:
        try:
            text = self._files.whole(f"{self._proc}/swaps")
        except FileNotFoundError:
            return []  # a kernel without swap has no such file
        return [Use(what=SWAP, fstype=SWAP, source=path) for path in swaps(text)]

    def _located(self, use: Use) -> Use:
        """The use with the number of its block device.

        The mount table has it for ordinary filesystems. Otherwise the source may be a link such as
        `/dev/disk/by-id/…`, which only a look below the host's `/dev` can follow.
        """
        if use.number is not None and not use.number.startswith(NO_DEVICE):
            return use
        number = None
        if use.source.startswith("/dev/"):
            number = self._files.block_number(self._dev + use.source.removeprefix("/dev"))
        return Use(what=use.what, fstype=use.fstype, source=use.source, number=number)
