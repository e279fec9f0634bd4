import errno
import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from liken_events.sinks.whole_files import (
    ASIDE,
    LONGEST,
    read,
    remove,
    replace,
    set_aside,
    signature,
)
from tests.fakes.crashes import Killed, failing, killed_before

TEMPORARY = ".x.tmp"


@pytest.fixture
def strict_umask() -> Iterator[None]:
    """New files are nobody else's, as under some supervisors."""
    old = os.umask(0o077)
    yield
    os.umask(old)


def write(path: Path, text: str) -> None:
    replace(str(path), TEMPORARY, text, mode=0o644, directory_mode=0o755)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.usefixtures("strict_umask")
def test_modes_are_as_said_whatever_the_umask(tmp_path: Path) -> None:
    path = tmp_path / "made" / "file"
    write(path, "text\n")
    assert (mode(path), mode(path.parent)) == (0o644, 0o755)
    path.chmod(0o600)
    write(path, "more\n")
    assert mode(path) == 0o644


def test_a_directory_that_is_there_keeps_its_mode(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    write(tmp_path / "file", "text\n")
    assert mode(tmp_path) == 0o700


STEPS = {
    "open": errno.EROFS,
    "fchmod": errno.EPERM,
    "fsync": errno.ENOSPC,
    "replace": errno.EIO,
}


@pytest.mark.parametrize("step", STEPS)
def test_a_step_that_fails_leaves_what_was_there(tmp_path: Path, step: str) -> None:
    path = tmp_path / "file"
    write(path, "old\n")
    with failing(step, STEPS[step], below=str(tmp_path) if step in ("open", "replace") else ""):
        with pytest.raises(OSError, match="file") as raised:
            write(path, "new\n")
        assert (raised.value.errno, raised.value.filename) == (STEPS[step], str(path))
    assert os.listdir(tmp_path) == ["file"]
    assert path.read_text() == "old\n"
    write(path, "new\n")
    assert path.read_text() == "new\n"


@pytest.mark.parametrize("step", ["makedirs", "chmod"])
def test_a_directory_that_cannot_be_made_is_told_of(tmp_path: Path, step: str) -> None:
    path = tmp_path / "made" / "file"
    with failing(step, errno.ENOSPC), pytest.raises(OSError, match="file") as raised:
        write(path, "text\n")
    assert raised.value.errno == errno.ENOSPC
    write(path, "text\n")
    assert path.read_text() == "text\n"


def test_an_end_at_any_step_leaves_the_old_or_the_new(tmp_path: Path) -> None:
    path = tmp_path / "file"
    write(path, "old\n")
    with killed_before(0) as steps:
        write(path, "old\n")
    assert steps.taken >= 4
    for step in range(1, steps.taken + 1):
        with pytest.raises(Killed), killed_before(step):
            write(path, "new\n")
        assert path.read_text() == "old\n"
    write(path, "new\n")
    assert os.listdir(tmp_path) == ["file"]


def test_a_link_in_place_of_the_draft_is_not_written_through(tmp_path: Path) -> None:
    stranger = tmp_path / "stranger"
    stranger.write_text("theirs\n")
    (tmp_path / TEMPORARY).symlink_to(stranger)
    with pytest.raises(OSError, match="symbolic links"):
        write(tmp_path / "file", "text\n")
    write(tmp_path / "file", "text\n")
    assert stranger.read_text() == "theirs\n"


def test_what_cannot_be_ours_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("é" * LONGEST)
    assert len(read(str(path))) == LONGEST
    path.write_text("x" * (LONGEST + 1))
    with pytest.raises(ValueError, match="too long"):
        read(str(path))
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(ValueError, match="utf-8"):
        read(str(path))


def test_what_is_not_there_is_removed_already(tmp_path: Path) -> None:
    remove(str(tmp_path / "file"))
    remove(str(tmp_path / "none" / "file"))
    (tmp_path / "plain").write_text("")
    remove(str(tmp_path / "plain" / "file"))
    with failing("unlink", errno.EROFS):  # a read-only file system does not even look
        remove(str(tmp_path / "file"))


def test_what_is_there_and_cannot_be_removed_is_told_of(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.mkdir()
    with pytest.raises(OSError, match="directory"):
        remove(str(path))
    path.rmdir()
    path.write_text("")
    with failing("unlink", errno.EROFS), pytest.raises(OSError, match="Read-only"):
        remove(str(path))
    remove(str(path))
    assert os.listdir(tmp_path) == []


def test_anything_can_be_set_aside(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("text")
    assert set_aside(str(path)) == f"{path}{ASIDE}"
    path.write_text("newer")
    set_aside(str(path))
    assert (tmp_path / f"file{ASIDE}").read_text() == "newer"
    path.mkdir()
    assert set_aside(str(path)) == str(path), "a directory does not take a file's place"
    (tmp_path / f"file{ASIDE}").unlink()
    assert set_aside(str(path)) == f"{path}{ASIDE}"
    assert os.listdir(tmp_path) == [f"file{ASIDE}"]


def test_a_signature_changes_with_every_write(tmp_path: Path) -> None:
    path = tmp_path / "file"
    assert signature(str(path)) is None
    seen = set()
    for text in ("a", "b", "a", "ab"):
        write(path, text)
        seen.add(signature(str(path)))
    path.write_text("longer")
    seen.add(signature(str(path)))
    assert len(seen) >= 2
    before = signature(str(path))
    os.utime(path, ns=(1, 1))
    assert signature(str(path)) != before
