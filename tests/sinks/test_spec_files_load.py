"""What is taken over of an earlier run's files, whatever became of them."""

import errno
import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.fakes.crashes import failing
from tests.fakes.spec_places import CLAIM, OTHERS, SECOND, UID, Place, identity, text_of


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def test_what_an_earlier_run_wrote_is_found_again(place: Place) -> None:
    place.write(CLAIM, OTHERS)
    found = place.anew().load()
    assert {item.reference.uid: item for item in found.prepared} == {UID: CLAIM, SECOND: OTHERS}
    assert (found.orphans, found.broken, found.outdated, found.stuck) == ({}, (), (), ())
    assert place.anew().peek() == found.prepared


def test_nothing_is_found_where_nothing_is(place: Place) -> None:
    assert place.files.load().prepared == ()
    assert place.files.peek() == ()
    assert place.names == []


def test_nothing_of_another_boot_stays(place: Place) -> None:
    place.write(CLAIM, OTHERS)
    files = place.anew("boot-2")
    assert files.peek() == ()
    found = files.load()
    assert (found.prepared, sorted(found.outdated)) == ((), sorted([UID, SECOND]))
    assert place.names == []


def test_one_that_cannot_be_removed_keeps_no_other_from_being_found(place: Place) -> None:
    place.write(CLAIM)
    place.spec().unlink()
    place.spec().mkdir()
    files = place.anew("boot-2")
    files.records.write(OTHERS)
    found = files.load()
    assert found.prepared == (OTHERS,)
    assert [path for path, _ in found.stuck] == [str(place.spec())]
    assert UID not in found.orphans


def test_a_spec_without_a_record_is_told_of(place: Place) -> None:
    place.write(CLAIM)
    place.record().unlink()
    found = place.anew().load()
    assert found.orphans == {UID: ("usb-1-9-1-0",)}
    assert place.names == [place.spec().name]


def test_a_record_without_a_spec_counts(place: Place) -> None:
    place.write(CLAIM)
    place.spec().unlink()
    assert place.anew().load().prepared == (CLAIM,)


def spoil(path: Path, data: bytes | None) -> None:
    path.unlink()
    if data is None:
        path.mkdir()
    else:
        path.write_bytes(data)


def newer(path: Path) -> bytes:
    body = json.loads(path.read_text())
    return json.dumps({**body, "format": 99}).encode()


def without_devices(path: Path) -> bytes:
    return json.dumps({**json.loads(path.read_text()), "devices": []}).encode()


SPOILT: dict[str, Callable[[Path], bytes | None]] = {
    "empty": lambda _: b"",
    "cut": lambda path: path.read_bytes()[:-20],
    "no UTF-8": lambda path: path.read_bytes() + b"\xff",
    "directory": lambda _: None,
    "no object": lambda _: b"[]",
    "deep": lambda _: b'{"a":' * 100_000,
    "long": lambda _: b" " * (1 << 21) + b"{}",
    "no device": without_devices,
}


@pytest.mark.parametrize("way", [*SPOILT, "newer format", "another's"])
def test_a_record_that_cannot_be_read_is_kept_aside(place: Place, way: str) -> None:
    place.write(CLAIM, OTHERS)
    ways: dict[str, Callable[[Path], bytes | None]] = {
        **SPOILT,
        "newer format": newer,
        "another's": lambda _: place.record(SECOND).read_bytes(),
    }
    spoil(place.record(), ways[way](place.record()))
    found = place.anew().load()
    assert found.prepared == (OTHERS,)
    assert found.orphans == {UID: ("usb-1-9-1-0",)}, "the spec may tell"
    assert [path for path, _ in found.broken] == [f"{place.record()}.broken"]
    assert not place.record().exists()
    place.write(CLAIM)
    assert len(place.anew().load().prepared) == 2


@pytest.mark.parametrize("way", SPOILT)
def test_a_spec_that_cannot_be_read_is_kept_aside(place: Place, way: str) -> None:
    place.write(CLAIM, OTHERS)
    spoil(place.spec(), SPOILT[way](place.spec()))
    files = place.anew()
    found = files.load()
    assert {item.reference.uid for item in found.prepared} == {UID, SECOND}
    assert [path for path, _ in found.broken] == [f"{place.spec()}.broken"]
    assert files.write_spec(UID, text_of(CLAIM))
    assert place.spec().read_text() == text_of(CLAIM)


@pytest.mark.parametrize("body", ['{"devices": [1]}', '{"devices": [{"name": 1}]}', "{}"])
def test_a_spec_of_which_the_devices_cannot_be_told_is_kept_aside(place: Place, body: str) -> None:
    place.write(CLAIM)
    place.spec().write_text(body)
    assert [path for path, _ in place.anew().load().broken] == [f"{place.spec()}.broken"]


def test_a_record_that_cannot_be_moved_stays_and_harms_nobody(place: Place) -> None:
    place.write(CLAIM, OTHERS)
    place.record().write_text("")
    with failing("replace", errno.EROFS):
        found = place.anew().load()
    assert found.prepared == (OTHERS,)
    assert [path for path, _ in found.broken] == [str(place.record())]


def test_what_a_killed_run_was_writing_is_swept(place: Place) -> None:
    place.write(CLAIM)
    (place.cdi / f".liken.sh-{UID}.tmp").write_text("{")
    (place.records / f".liken.sh-{SECOND}.tmp").write_text("")
    place.anew().load()
    assert place.names == sorted([place.spec().name, place.record().name])


FOREIGN = {
    "vendor.json": '{"cdiVersion": "0.5.0", "kind": "vendor.com/gpu", "devices": []}',
    "liken.json": "{}",
    f"liken.sh-{UID}.yaml": "{}",
    f"liken.sh-{UID}.json.broken": "",
    f"xliken.sh-{UID}.json": "",
    f".liken.sh-{SECOND}.json": "",
    ".liken.sh-something.swp": "",
    f".other-{UID}.tmp": "",
    "liken.sh-.json": "",
    "liken.sh-no_uid.json": "",
    "liken.sh--dash.json": "not even JSON",
    "liken.sh-gpu.json": '{"cdiVersion": "0.5.0", "kind": "liken.sh/gpu", "devices": []}',
}
"""What others may have in the CDI directory, one with a name as ours but of another kind."""


@pytest.mark.parametrize("boot", ["boot-1", "boot-2"])
def test_files_of_others_are_never_touched(place: Place, boot: str) -> None:
    place.cdi.mkdir()
    for name, text in FOREIGN.items():
        (place.cdi / name).write_text(text)
    (place.cdi / "nested").mkdir()
    before = {name: identity(place.cdi / name) for name in [*FOREIGN, "nested"]}
    place.write(CLAIM)
    files = place.anew(boot)
    found = files.load()
    assert (found.orphans, found.broken) == ({}, ())
    files.write_spec(UID, text_of(OTHERS))
    files.remove(UID)
    assert {name: identity(place.cdi / name) for name in os.listdir(place.cdi)} == before


def test_a_look_from_outside_changes_nothing(place: Place) -> None:
    place.write(CLAIM, OTHERS)
    place.record().write_text("")
    (place.records / "directory.json").mkdir()
    (place.cdi / f".liken.sh-{UID}.tmp").write_text("{")
    before = place.names
    assert place.anew().peek() == (OTHERS,)
    assert place.anew("boot-2").peek() == ()
    assert place.names == before


def test_a_look_from_outside_that_is_not_allowed_says_so(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    place.write(CLAIM)

    def forbidden(path: str) -> str:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)

    monkeypatch.setattr("liken_events.sinks.record_files.read", forbidden)
    with pytest.raises(PermissionError):
        place.files.peek()


def test_a_directory_that_cannot_be_read_is_no_empty_one(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    place.write(CLAIM)

    def broken(path: str) -> list[str]:
        raise OSError(errno.EIO, os.strerror(errno.EIO), path)

    monkeypatch.setattr(os, "listdir", broken)
    with pytest.raises(OSError, match="Input/output"):
        place.files.load()
