"""Records that several instances share: alone with them, and what others changed."""

import errno
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from liken_events.core.model.prepared import Prepared
from liken_events.sinks import record_files
from liken_events.sinks.record_files import RecordFiles
from tests.fakes.crashes import failing
from tests.fakes.spec_places import CLAIM, OTHERS, SECOND, UID

OTHER_PROCESS = """
import sys
from liken_events.sinks.record_files import RecordFiles
with RecordFiles(sys.argv[1], "boot-1").alone():
    print("inside", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def records(tmp_path: Path) -> RecordFiles:
    return anew(tmp_path)


def anew(tmp_path: Path, boot: str = "boot-1") -> RecordFiles:
    """Those of another instance."""
    return RecordFiles(f"{tmp_path}/records", boot)


def taken(
    records: RecordFiles, known: dict[str, Prepared] | None = None, *specs: str
) -> dict[str, Prepared]:
    """What is taken over, if these claims have specs; nothing is broken."""
    found, broken = records.take_over(known or {}, specs.__contains__)
    assert broken == []
    return dict(found)


@contextmanager
def other_process(directory: str) -> Iterator["subprocess.Popen[bytes]"]:
    """Another process is inside until the block ends, or it does."""
    with subprocess.Popen(
        [sys.executable, "-c", OTHER_PROCESS, directory],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"inside\n"
        yield process
        process.kill()


def is_free(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> bool:
    with monkeypatch.context() as patch:
        patch.setattr(record_files, "LOCK_SECONDS", 0)
        try:
            with anew(tmp_path).alone():
                return True
        except TimeoutError:
            return False


def test_one_is_alone_while_inside_also_if_that_fails(
    records: RecordFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with records.alone(make=True):
        assert not is_free(tmp_path, monkeypatch)
    assert is_free(tmp_path, monkeypatch)
    with pytest.raises(ZeroDivisionError), records.alone():
        assert 1 // 0
    assert is_free(tmp_path, monkeypatch)
    assert os.listdir(records.directory) == [], "nothing is made for it"


def test_another_process_is_waited_for_with_a_bound(
    records: RecordFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(record_files, "LOCK_SECONDS", 0.05)
    os.mkdir(records.directory)
    before = len(os.listdir("/proc/self/fd"))
    complaint = r"another instance has had it for 0\.05 s: '.*/records'"
    with (
        other_process(records.directory),
        pytest.raises(TimeoutError, match=complaint),
        records.alone(),
    ):
        raise AssertionError
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_process_that_is_killed_inside_is_inside_no_more(records: RecordFiles) -> None:
    os.mkdir(records.directory)
    with other_process(records.directory) as process:
        threading.Timer(0.05, process.kill).start()
        with records.alone():
            assert process.wait(10)


def test_where_there_is_no_directory_none_is_made_unless_it_has_to_be(
    records: RecordFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with records.alone():
        assert not os.path.exists(records.directory)
    with records.alone(make=True):
        assert os.stat(records.directory).st_mode & 0o777 == 0o700
        assert not is_free(tmp_path, monkeypatch)


def test_what_another_one_writes_changes_and_ends_is_taken_over(
    records: RecordFiles, tmp_path: Path
) -> None:
    other = anew(tmp_path)
    assert taken(records) == {}
    other.write(CLAIM)
    known = taken(records)
    assert known == {UID: CLAIM}
    other.write(OTHERS)
    device = replace(CLAIM.devices[0], given=())
    changed = replace(CLAIM, devices=(device,))
    other.write(changed)
    known = taken(records, known)
    assert known == {UID: changed, SECOND: OTHERS}
    other.remove(UID)
    assert taken(records, known) == {SECOND: OTHERS}


def test_a_look_at_what_did_not_change_reads_nothing(
    records: RecordFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    anew(tmp_path).write(OTHERS)
    known = taken(records)
    records.write(CLAIM)
    known[UID] = CLAIM
    read: list[str] = []
    monkeypatch.setattr(record_files, "read", read.append)
    found, _ = records.take_over(known, lambda _: False)
    assert found is known
    records.remove(UID)
    del known[UID]
    assert records.take_over(known, lambda _: False)[0] is known
    assert read == []


def test_a_claim_whose_record_somebody_removed_is_prepared_while_it_has_a_spec(
    records: RecordFiles,
) -> None:
    records.write(CLAIM)
    os.unlink(records.path(UID))
    assert taken(records, {UID: CLAIM}, UID) == {UID: CLAIM}
    assert taken(records, {UID: CLAIM}, UID) == {UID: CLAIM}
    assert taken(records, {UID: CLAIM}) == {}


def test_a_record_that_cannot_be_read_is_told_once_and_left_alone(
    records: RecordFiles, tmp_path: Path
) -> None:
    records.write(CLAIM)
    newer = Path(records.path(UID)).read_text().replace('"format": 1', '"format": 2')
    for uid in (UID, SECOND):
        Path(records.path(uid)).write_text(newer)
    found, broken = records.take_over({UID: CLAIM}, lambda _: False)
    assert dict(found) == {UID: CLAIM}
    assert [path for path, _ in broken] == sorted(map(records.path, (UID, SECOND)))
    assert records.take_over(found, lambda _: False) == ({UID: CLAIM}, [])
    assert Path(records.path(UID)).read_text() == newer


def test_nothing_of_another_boot_is_taken_over(records: RecordFiles, tmp_path: Path) -> None:
    anew(tmp_path, "boot-0").write(CLAIM)
    assert taken(records) == {}


def test_a_record_that_could_not_be_written_is_as_it_was(records: RecordFiles) -> None:
    records.write(CLAIM)
    changed = replace(CLAIM, devices=(replace(CLAIM.devices[0], given=()),))
    with failing("replace", errno.ENOSPC), pytest.raises(OSError, match="No space left"):
        records.write(changed)
    assert records.take_over({UID: CLAIM}, lambda _: False) == ({UID: CLAIM}, [])
    assert os.listdir(records.directory) == [f"{UID}.json"]
