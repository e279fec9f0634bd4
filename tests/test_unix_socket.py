import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from liken_events.unix_socket import (
    MOST_PATH_BYTES,
    CannotServe,
    PathTooLong,
    check_path,
    identity,
    remove_stale,
    why_not,
)


@contextmanager
def listening(path: Path) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(str(path))
        made.listen(1)
        yield made


def leave_stale(path: Path) -> None:
    with listening(path):
        pass


def test_the_limit_is_the_kernels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for length in (MOST_PATH_BYTES, MOST_PATH_BYTES + 1):
        with socket.socket(socket.AF_UNIX) as made:
            path = "x" * length
            if length == MOST_PATH_BYTES:
                made.bind(path)
                check_path(path)
            else:
                with pytest.raises(OSError, match="AF_UNIX path too long"):
                    made.bind(path)
                with pytest.raises(PathTooLong):
                    check_path(path)


@pytest.mark.parametrize("letter", ["x", "ü", "\udcff"], ids=["ascii", "utf-8", "raw byte"])
def test_a_path_is_measured_in_bytes(letter: str) -> None:
    size = len(os.fsencode(letter))
    fits = letter * (MOST_PATH_BYTES // size)
    check_path(fits)
    with pytest.raises(PathTooLong, match=f"has {len(os.fsencode(fits)) + size} bytes"):
        check_path(fits + letter)


def test_a_path_that_is_too_long_is_named_with_its_length_and_the_limit() -> None:
    path = "/" + 107 * "x"
    with pytest.raises(PathTooLong) as caught:
        check_path(path)
    assert str(caught.value) == f"the socket path {path} has 108 bytes, and the kernel takes 107"


def test_what_a_dead_process_left_is_removed(tmp_path: Path) -> None:
    path = tmp_path / "socket"
    leave_stale(path)
    assert remove_stale(str(path))
    assert not path.exists()
    assert not remove_stale(str(path))


def test_what_somebody_serves_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "socket"
    with listening(path):
        with pytest.raises(CannotServe, match=f"another instance serves {path}"):
            remove_stale(str(path))
        assert path.exists()


def test_somebody_whose_backlog_is_full_lives(tmp_path: Path) -> None:
    path = tmp_path / "socket"
    with listening(path):
        waiting = [socket.socket(socket.AF_UNIX)]
        waiting[-1].setblocking(False)
        while waiting[-1].connect_ex(str(path)) == 0:
            waiting.append(socket.socket(socket.AF_UNIX))
            waiting[-1].setblocking(False)
        with pytest.raises(CannotServe, match="another instance"):
            remove_stale(str(path))
        for one in waiting:
            one.close()


def test_what_is_no_socket_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "socket"
    path.write_text("mine")
    with pytest.raises(CannotServe, match="is no socket"):
        remove_stale(str(path))
    link = tmp_path / "link"
    leave_stale(tmp_path / "stale")
    link.symlink_to(tmp_path / "stale")
    with pytest.raises(CannotServe, match="is no socket"):
        remove_stale(str(link))
    assert path.read_text() == "mine"
    assert (tmp_path / "stale").exists()


def test_a_socket_of_another_kind_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "socket"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as made:
        made.bind(str(path))
        with pytest.raises(CannotServe, match="Protocol wrong type"):
            remove_stale(str(path))
    assert path.exists()


def test_what_cannot_be_removed_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: str) -> None:
        raise PermissionError(13, "Permission denied", path)

    path = tmp_path / "socket"
    leave_stale(path)
    monkeypatch.setattr(os, "unlink", refuse)
    with pytest.raises(CannotServe, match=f"cannot remove {path}, .*: Permission denied"):
        remove_stale(str(path))


def test_what_goes_while_it_is_removed_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lose(path: str) -> None:
        raise FileNotFoundError(2, "No such file or directory", path)

    path = tmp_path / "socket"
    leave_stale(path)
    monkeypatch.setattr(os, "unlink", lose)
    assert remove_stale(str(path))


def test_a_socket_that_was_made_anew_is_another_one(tmp_path: Path) -> None:
    path = tmp_path / "socket"
    assert identity(str(path)) is None
    with listening(path):
        first = identity(str(path))
        assert first is not None
        path.unlink()
        with listening(path):
            assert identity(str(path)) not in (first, None)


def test_why_a_socket_cannot_be_had(tmp_path: Path) -> None:
    assert why_not(str(tmp_path / "nothing" / "socket")) == "No such file or directory"
    leave_stale(tmp_path / "socket")
    assert why_not(str(tmp_path / "socket")) == "Address already in use"
    assert why_not(str(tmp_path / ("x" * 108))) == "AF_UNIX path too long"


def test_where_a_socket_can_be_had_none_is_left(tmp_path: Path) -> None:
    assert why_not(str(tmp_path / "socket")) == "grpc refuses it"
    assert os.listdir(tmp_path) == []
