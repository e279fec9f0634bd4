import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from liken_events.core.decode.inotify import Record, decode

CREATE, DELETE, IGNORED, OVERFLOW = 0x100, 0x200, 0x8000, 0x4000


def packed(record: Record, *, cookie: int = 0, padding: int = 1) -> bytes:
    """A record as the kernel writes it: the name ends with at least one NUL, or is not there."""
    name = record.name.encode("utf-8", "surrogateescape")
    name += bytes(padding) if name else b""
    return struct.pack("iIII", record.watch, record.mask, cookie, len(name)) + name


SOCKET = Record(watch=1, mask=CREATE, name="kubelet.sock")


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"", ()),
        (packed(SOCKET, padding=4), (SOCKET,)),
        (packed(SOCKET, cookie=0xFFFFFFFF, padding=16), (SOCKET,)),
        (
            packed(Record(watch=-1, mask=OVERFLOW, name="")),
            (Record(watch=-1, mask=OVERFLOW, name=""),),
        ),
        (
            packed(SOCKET) + packed(Record(watch=1, mask=IGNORED, name="")) + packed(SOCKET),
            (SOCKET, Record(watch=1, mask=IGNORED, name=""), SOCKET),
        ),
        (
            packed(Record(watch=2, mask=DELETE, name="\udce9t\udce9")),
            (Record(watch=2, mask=DELETE, name="\udce9t\udce9"),),
        ),
        (packed(SOCKET) + packed(SOCKET)[:-1], (SOCKET,)),
        (packed(SOCKET) + packed(SOCKET)[:15], (SOCKET,)),
        (struct.pack("iIII", 1, CREATE, 0, 0xFFFFFFFF) + b"name", ()),
    ],
)
def test_records_are_taken_to_pieces_and_half_a_record_is_left_out(
    data: bytes, expected: tuple[Record, ...]
) -> None:
    assert decode(data) == expected


records = st.lists(
    st.builds(
        Record,
        watch=st.integers(-1, 2**31 - 1),
        mask=st.integers(0, 2**32 - 1),
        name=st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=20),
    ),
    max_size=5,
)


@given(records, st.integers(1, 16))
def test_every_record_of_a_read_is_found_in_order(found: list[Record], padding: int) -> None:
    data = b"".join(packed(record, padding=padding) for record in found)
    assert decode(data) == tuple(found)


@given(records, st.data())
def test_a_read_that_was_cut_gives_the_records_before_the_cut(
    found: list[Record], data: st.DataObject
) -> None:
    whole = b"".join(packed(record) for record in found)
    cut = decode(whole[: data.draw(st.integers(0, len(whole)))])
    assert cut == tuple(found[: len(cut)])


@given(st.binary(max_size=200))
def test_any_bytes_are_accepted(data: bytes) -> None:
    assert len(decode(data)) <= len(data) // 16
