"""Mounts and swap areas: two text files of the kernel.

`/proc/<pid>/mountinfo` has one line for each mount of a mount namespace: ids, device number, root,
mount point and options, then optional fields up to a lone `-`, then filesystem type, source and
options. `/proc/swaps` has a heading and one line for each active swap area. Blanks, tabs, newlines
and backslashes in names are written as octal escapes. A name may hold a carriage return, or
another character that Python takes for a line's end or a blank.

This file takes the lines to pieces. A line that it cannot read makes the whole text unreadable:
the missing line could be the root disk.

Which mounts lie on which block device is decided in `core.model.storage`; reading the files is
left to `sources.storage`.
"""

import re
from dataclasses import dataclass

_ESCAPE = re.compile(r"\\([0-7]{3})")
_BLANKS = re.compile(r"[ \t]+")


class Unreadable(ValueError):
    """A line is not as the kernel writes it; the message quotes its start."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mount:
    """One line of mountinfo: where, what kind, from which source, and the device number (`0:23`
    for none)."""

    point: str
    fstype: str
    source: str
    number: str


def mounts(text: str) -> tuple[Mount, ...]:
    """All mounts, in the kernel's order.

    Raises:
        Unreadable: a line has no device number, mount point, type and source.
    """
    found = []
    for line in text.split("\n"):
        if not line:
            continue
        before, dash, behind = line.partition(" - ")
        fields, rest = before.split(" "), behind.split(" ")
        if not dash or len(fields) < 6 or len(rest) < 2 or ":" not in fields[2]:
            raise Unreadable(f"mountinfo line {line[:80]!r}")
        point, source = unescape(fields[4]), unescape(rest[1])
        found.append(Mount(point=point, fstype=rest[0], source=source, number=fields[2]))
    return tuple(found)


def swaps(text: str) -> tuple[str, ...]:
    """The paths of the active swap areas on block devices. Swap files lie on a filesystem that is
    mounted itself.

    Raises:
        Unreadable: a line has no name and type.
    """
    found = []
    for line in text.split("\n")[1:]:
        if not line:
            continue
        fields = _BLANKS.split(line)
        if len(fields) < 2:
            raise Unreadable(f"swaps line {line[:80]!r}")
        if fields[1] != "file":
            found.append(unescape(fields[0]))
    return tuple(found)


def unescape(text: str) -> str:
    r"""Undoes the kernel's octal escapes: `\040` is a blank."""
    return _ESCAPE.sub(lambda match: chr(int(match[1], 8)), text)
