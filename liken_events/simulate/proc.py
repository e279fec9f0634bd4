r"""The mount table and the list of swap areas of a made-up procfs.

`/proc/<pid>/mountinfo` and `/proc/swaps` are tables in the kernel's own format. Blanks, tabs,
newlines, backslashes and hash signs in names are written as octal escapes (`\040`), so that a line
can be taken to pieces at its blanks.

This file writes both tables from the uses of a snapshot, in place: whoever watches the files sees
them change, and whoever reads them never finds less than there is. Regular files raise no poll
condition as the kernel's do; a watcher needs inotify.

Reading such tables is left to `core.decode.mounts`.
"""

import os
from collections.abc import Collection, Iterable
from dataclasses import replace

from liken_events.core.model.snapshot import Use
from liken_events.core.model.storage import NO_DEVICE, SWAP

_ESCAPED = " \t\n\\#"
"""What `seq_escape` gets from `show_mountinfo`; `/proc/swaps` escapes the same without `#`."""

_SWAP_COLUMN = 40
"""Width of the name column of `/proc/swaps`."""

_OTHERS = (
    ("0:21", "/proc", "proc", "proc"),
    ("0:22", "/sys", "sysfs", "sysfs"),
    ("0:6", "/dev", "devtmpfs", "udev"),
    ("0:24", "/dev/shm", "tmpfs", "tmpfs"),  # noqa: S108 - a mount point to be named, not a file to be written
    ("0:25", "/run", "tmpfs", "tmpfs"),
    ("0:28", "/sys/fs/cgroup", "cgroup2", "cgroup2"),
    ("0:51", "/var/lib/containerd/rootfs", "overlay", "overlay"),
    ("0:4", "/run/netns/pod-1", "nsfs", "nsfs"),
)
"""Number, mount point, type and source of mounts that every machine has and that lie on no
disk."""


class Tables:
    """The two files.

    Args:
        proc: absolute path of the directory that stands for `/proc`.
        clutter: adds the mounts that every machine has and that lie on no disk.
    """

    def __init__(self, proc: str, *, clutter: bool) -> None:
        self._mountinfo = f"{proc}/1/mountinfo"
        self._swaps = f"{proc}/swaps"
        self._clutter = clutter
        os.makedirs(f"{proc}/1")
        os.symlink("1", f"{proc}/self")
        self.write(())

    def write(self, uses: Collection[Use]) -> None:
        """Shows these uses."""
        _write_in_place(self._mountinfo, mountinfo(uses, clutter=self._clutter))
        _write_in_place(self._swaps, swaps(uses))

    def hide(self) -> None:
        """Takes the mount table away, as from somebody who may not read it."""
        os.unlink(self._mountinfo)


def shown(use: Use) -> Use:
    """A use as the tables show it: only an ordinary filesystem on one disk has a number."""
    if use.fstype == SWAP or (use.number or NO_DEVICE).startswith(NO_DEVICE):
        return replace(use, number=None)
    return use


def mountinfo(uses: Iterable[Use], *, clutter: bool) -> str:
    """The mount table with these mounts in it.

    Args:
        uses: those that are swap areas are left out. A mount without a number gets `0:0`, which no
        disk has.
        clutter: adds the mounts that every machine has and that lie on no disk.
    """
    rows = [
        (use.number or "0:0", use.what, use.fstype, use.source)
        for use in uses
        if use.fstype != SWAP
    ]
    lines = []
    for number, (device, point, fstype, source) in enumerate(
        [*(_OTHERS if clutter else ()), *rows], start=22
    ):
        lines.append(
            f"{number} 1 {device} / {_escape(point)} rw,relatime shared:{number}"
            f" - {_escape(fstype)} {_escape(source)} rw\n"
        )
    return "".join(lines)


def swaps(uses: Iterable[Use]) -> str:
    """The list of swap areas among these uses, with its heading."""
    lines = ["Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority\n"]
    for priority, use in enumerate((use for use in uses if use.fstype == SWAP), start=2):
        name = _escape(use.source)
        kind = "partition" if use.source.startswith("/dev/") else "file\t"
        gap = " " * max(1, _SWAP_COLUMN - len(name))
        lines.append(f"{name}{gap}{kind}\t8388604\t\t0\t\t-{priority}\n")
    return "".join(lines)


def _escape(text: str) -> str:
    return "".join(f"\\{ord(char):03o}" if char in _ESCAPED else char for char in text)


def _write_in_place(path: str, text: str) -> None:
    """Replaces the content of a file that others read and watch.

    A reader that found an empty mount table would take every disk for unused. So lines that stay
    are not touched: a new one at the end is appended, the last one is cut off. If another one
    goes, those after it move up in one write, with newlines over what is left of the old text
    until that is cut off.
    """
    raw = text.encode("utf-8", "surrogateescape")
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        old = os.pread(handle, os.fstat(handle).st_size, 0)
        same = 0
        for line, known in zip(raw.splitlines(True), old.splitlines(True), strict=False):
            if line != known:
                break
            same += len(line)
        if len(raw) > same:
            os.pwrite(handle, raw[same:].ljust(len(old) - same, b"\n"), same)
        os.ftruncate(handle, len(raw))
    finally:
        os.close(handle)
