import fcntl
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from liken_events.cluster import Unavailable
from liken_events.cluster.lock_file import locked

SOON = 0.05

OTHER = """
import sys
from liken_events.cluster.lock_file import locked
with locked(sys.argv[1], 5):
    print("locked", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "below" / ".lock"


@contextmanager
def other_process(path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Another process that has the lock until its input ends, or it does."""
    with subprocess.Popen(
        [sys.executable, "-c", OTHER, str(path)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"locked\n"
        yield process
        process.kill()


def is_free(path: Path) -> bool:
    with path.open() as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
    return True


def test_the_lock_is_there_while_inside_and_goes_also_by_an_error(path: Path) -> None:
    with locked(str(path), 0):
        assert not is_free(path)
    assert is_free(path)
    with pytest.raises(ZeroDivisionError), locked(str(path), 0):
        assert 1 // 0
    assert is_free(path)


def test_another_process_is_waited_for_as_long_as_said(path: Path) -> None:
    with other_process(path):
        complaint = r"\.lock has been locked by another command for 0\.05 s: try again"
        with pytest.raises(Unavailable, match=complaint), locked(str(path), SOON):
            raise AssertionError
        assert not is_free(path)


def test_a_process_that_dies_leaves_no_lock(path: Path) -> None:
    with other_process(path) as process:
        threading.Timer(SOON, process.kill).start()
        with locked(str(path), 10):
            assert not is_free(path)


def test_two_threads_exclude_each_other(path: Path) -> None:
    inside: list[int] = []

    def work() -> None:
        for _ in range(20):
            with locked(str(path), 10):
                inside.append(1)
                assert len(inside) == 1
                inside.pop()

    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert not any(thread.is_alive() for thread in threads)


def test_the_lock_of_a_file_that_was_removed_is_no_lock(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = fcntl.flock
    removed: list[str] = []

    def remove_first(descriptor: int, operation: int) -> None:
        if not removed:
            shutil.rmtree(path.parent)
            removed.append("it")
        real(descriptor, operation)

    monkeypatch.setattr(fcntl, "flock", remove_first)
    with locked(str(path), 5):
        assert not is_free(path)


def test_a_directory_that_goes_in_between_is_made_again(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.makedirs
    removed: list[str] = []

    def remove_first(name: str, mode: int, exist_ok: bool) -> None:
        real(name, mode, exist_ok)
        if not removed:
            shutil.rmtree(name)
            removed.append("it")

    monkeypatch.setattr(os, "makedirs", remove_first)
    with locked(str(path), 5):
        assert not is_free(path)


def test_a_lock_that_cannot_be_had_is_said_with_the_reason(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(descriptor: int, operation: int) -> None:
        raise OSError(37, "No locks available")

    monkeypatch.setattr(fcntl, "flock", refuse)
    before = len(os.listdir("/proc/self/fd"))
    complaint = r"cannot lock .*\.lock: No locks available"
    with pytest.raises(Unavailable, match=complaint), locked(str(path), 5):
        raise AssertionError
    assert len(os.listdir("/proc/self/fd")) == before
    path.parent.joinpath("file").write_text("")
    below = str(path.parent / "file" / ".lock")
    with pytest.raises(Unavailable, match=r"cannot lock .*: File exists"), locked(below, 5):
        raise AssertionError
