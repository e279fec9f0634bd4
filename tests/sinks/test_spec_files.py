"""Specs and records as files: whole, with the right modes, and nobody else's."""

import errno
import os
import stat
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from liken_events.sinks.spec_files import boot_id
from tests.fakes.cdi_rules import complaints
from tests.fakes.crashes import failing
from tests.fakes.held import held, prepared
from tests.fakes.keeping import OTHER, STICK
from tests.fakes.spec_places import CLAIM, OTHERS, SECOND, UID, Place, identity, text_of


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


@pytest.fixture
def strict_umask() -> Iterator[None]:
    old = os.umask(0o077)
    yield
    os.umask(old)


@pytest.mark.usefixtures("strict_umask")
def test_specs_are_for_all_to_read_and_records_for_us_alone(place: Place) -> None:
    place.write(CLAIM)
    modes = [stat.S_IMODE(path.stat().st_mode) for path in
             (place.cdi, place.spec(), place.records, place.record())]  # fmt: skip
    assert modes == [0o755, 0o644, 0o700, 0o600]
    assert complaints(place.spec().read_text(), newest="0.5.0") == []


def test_no_reader_takes_a_draft_for_a_spec(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []

    def watched(source: str, target: str) -> None:
        seen.append(source)
        real(source, target)

    real = os.replace
    monkeypatch.setattr(os, "replace", watched)
    place.write(CLAIM)
    assert len(seen) == 2
    assert {os.path.dirname(path) for path in seen} == {str(place.cdi), str(place.records)}
    assert not any(path.endswith((".json", ".yaml")) for path in seen)


def test_a_reader_never_sees_half_a_spec(place: Place) -> None:
    place.write(CLAIM)
    texts = [text_of(prepared(held(STICK), held(OTHER), uid=UID)), text_of(CLAIM)]
    seen: set[str] = set()
    done = threading.Event()

    def read() -> None:
        while not done.is_set():
            seen.add(place.spec().read_text())

    reader = threading.Thread(target=read)
    reader.start()
    try:
        for _ in range(200):
            for text in texts:
                assert place.files.write_spec(UID, text)
    finally:
        done.set()
        reader.join()
    assert seen
    assert seen <= {*texts}


def test_a_spec_that_says_so_already_is_left_alone(place: Place) -> None:
    place.write(CLAIM)
    before = identity(place.spec())
    assert not place.files.write_spec(UID, text_of(CLAIM))
    assert not place.anew().write_spec(UID, text_of(CLAIM))
    assert identity(place.spec()) == before


EDITS: dict[str, Callable[[Path], Any]] = {
    "removed": lambda path: path.unlink(),
    "edited": lambda path: path.write_text("{}"),
    "exchanged": lambda path: path.with_suffix(".new").rename(path),
}


@pytest.mark.parametrize("edit", EDITS)
def test_what_somebody_else_does_to_a_spec_is_seen_and_put_right(place: Place, edit: str) -> None:
    place.write(CLAIM)
    assert place.files.is_as_written(UID)
    place.spec().with_suffix(".new").write_text(text_of(OTHERS))
    EDITS[edit](place.spec())
    assert not place.files.is_as_written(UID)
    assert place.files.write_spec(UID, text_of(CLAIM))
    assert place.files.is_as_written(UID)
    assert place.spec().read_text() == text_of(CLAIM)


def test_a_spec_that_was_never_written_is_not_as_written(place: Place) -> None:
    assert not place.files.is_as_written(UID)
    place.write(CLAIM)
    assert not place.anew().is_as_written(UID)


def test_a_claim_is_removed_with_all_that_it_left(place: Place) -> None:
    place.write(CLAIM, OTHERS)
    place.files.remove(UID)
    assert place.names == sorted([place.spec(SECOND).name, place.record(SECOND).name])
    place.files.remove(UID)
    place.files.remove("0c2d6a4e-0000-4f0a-9c1e-2b8d6a4e0f13")


def test_a_claim_of_which_the_spec_cannot_be_removed_is_still_known(place: Place) -> None:
    place.write(CLAIM)
    with failing("unlink", errno.EROFS), pytest.raises(OSError, match="Read-only"):
        place.files.remove(UID)
    assert place.anew().load().prepared == (CLAIM,)
    place.files.remove(UID)
    assert place.names == []


def test_a_spec_that_was_removed_and_its_record_not_is_seen_to_be_missing(place: Place) -> None:
    place.write(CLAIM)
    with failing("unlink", errno.EIO, below=str(place.records)), pytest.raises(OSError, match=UID):
        place.files.remove(UID)
    assert not place.files.is_as_written(UID)
    assert place.files.write_spec(UID, text_of(CLAIM))


def test_a_record_can_be_removed_alone(place: Place) -> None:
    place.write(CLAIM)
    place.files.records.remove(UID)
    place.files.records.remove(UID)
    assert place.names == [place.spec().name]


def test_the_boot_is_known_by_the_kernels_id(tmp_path: Path) -> None:
    assert boot_id() == Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    assert boot_id(str(tmp_path)) == ""
    (tmp_path / "sys/kernel/random").mkdir(parents=True)
    (tmp_path / "sys/kernel/random/boot_id").write_bytes(b"\xff\n")
    assert boot_id(str(tmp_path)) == ""
