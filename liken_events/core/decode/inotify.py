"""inotify records: what happened in a watched directory, as bytes.

One read gives several records: watch descriptor, mask, cookie and name length as four 32-bit
numbers, then a name padded with NULs. An overflow of the queue is a record of descriptor -1 with
no name.

This file takes them to pieces. It accepts any bytes and never raises; half a record at the end is
left out. Reading is left to `inotify`.
"""

import struct
from dataclasses import dataclass

_HEADER = struct.Struct("iIII")


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """One record: the watch it belongs to, the `IN_…` bits, and the name in the directory (`""`
    for itself)."""

    watch: int
    mask: int
    name: str


def decode(data: bytes) -> tuple[Record, ...]:
    """All complete records of one read, in order."""
    found = []
    start = 0
    while start + _HEADER.size <= len(data):
        watch, mask, _, length = _HEADER.unpack_from(data, start)
        start += _HEADER.size
        if start + length > len(data):
            break
        raw = data[start : start + length].partition(b"\0")[0]
        found.append(Record(watch=watch, mask=mask, name=raw.decode("utf-8", "surrogateescape")))
        start += length
    return tuple(found)
