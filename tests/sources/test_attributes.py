import errno
import os
import stat
from pathlib import Path

import pytest

from liken_events.sources.attributes import EXHAUSTED, PAGE, Files
from tests.fakes.faults import no_descriptors

FILES = Files()


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        (b"0x8086\n", "0x8086\n"),
        (b"", ""),
        (b"caf\xc3\xa9\n", "café\n"),
        (b"\xe1!!", "\ufffd!!"),
        (b"\xed\xa0\x80", "\ufffd\ufffd\ufffd"),
        (b"a\0b\r\n", "a\0b\r\n"),
    ],
)
def test_text_is_given_as_it_is_and_what_is_no_utf_8_is_replaced(
    tmp_path: Path, raw: bytes, text: str
) -> None:
    (tmp_path / "product").write_bytes(raw)
    assert FILES.text(f"{tmp_path}/product") == text


def test_one_page_of_an_attribute_is_read(tmp_path: Path) -> None:
    (tmp_path / "product").write_bytes(b"x" * (PAGE + 1))
    assert FILES.text(f"{tmp_path}/product") == "x" * PAGE


def test_what_cannot_be_read_is_absent(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "file").write_text("x")
    (tmp_path / "dies").symlink_to("/proc/self/mem")  # opens, and then reads EIO
    for name in ("missing", "loop", "file/below", "dies", ".", "a" * 300):
        assert FILES.text(f"{tmp_path}/{name}") is None, name


def test_an_attribute_that_has_nothing_to_say_yet_delays_nobody(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "product")
    assert FILES.text(f"{tmp_path}/product") == ""


def test_links_tell_the_last_part_of_what_they_point_to(tmp_path: Path) -> None:
    (tmp_path / "driver").symlink_to("../../../bus/usb/drivers/cp210x")
    (tmp_path / "file").write_text("x")
    assert FILES.link(f"{tmp_path}/driver") == "cp210x"
    assert FILES.link(f"{tmp_path}/file") is None
    assert FILES.link(f"{tmp_path}/missing") is None


def test_an_entry_of_a_bus_leads_to_its_device(tmp_path: Path) -> None:
    entry = tmp_path / "bus" / "usb" / "devices" / "1-1"
    entry.parent.mkdir(parents=True)
    entry.symlink_to("../../../devices/usb1/1-1")
    assert FILES.target(str(entry)) == f"{tmp_path}/devices/usb1/1-1"
    assert FILES.target(f"{tmp_path}/missing") is None


def test_a_directory_that_is_gone_is_not_an_empty_one(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").write_text("x")
    assert FILES.entries(f"{tmp_path}/empty") == []
    assert FILES.entries(f"{tmp_path}/missing") is None
    assert FILES.entries(f"{tmp_path}/file") is None
    assert sorted(entry.name for entry in FILES.entries(str(tmp_path)) or ()) == ["empty", "file"]


def test_a_list_of_names_is_empty_only_if_there_is_nothing(tmp_path: Path) -> None:
    for name in ("b", "a"):
        (tmp_path / name).write_text("")
    assert FILES.names(str(tmp_path)) == ["a", "b"]
    assert FILES.names(f"{tmp_path}/missing") == []
    with pytest.raises(NotADirectoryError):
        FILES.names(f"{tmp_path}/a")


def test_a_table_is_read_whole_with_its_bytes(tmp_path: Path) -> None:
    raw = b"a\r\nb\xff\n" * 10_000
    (tmp_path / "mountinfo").write_bytes(raw)
    text = FILES.whole(f"{tmp_path}/mountinfo")
    assert text.encode("utf-8", "surrogateescape") == raw
    with pytest.raises(FileNotFoundError):
        FILES.whole(f"{tmp_path}/missing")


def test_only_block_devices_have_a_block_number(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for path in ("/dev/null", f"{tmp_path}/file", f"{tmp_path}/missing"):
        assert FILES.block_number(path) is None


def test_a_block_device_is_found_behind_a_link(tmp_path: Path) -> None:
    disk = tmp_path / "sda1"
    try:
        os.mknod(disk, stat.S_IFBLK | 0o600, os.makedev(8, 1))
    except PermissionError as error:
        pytest.skip(f"no block device can be made: {error}")
    (tmp_path / "by-id").symlink_to("sda1")
    assert FILES.block_number(f"{tmp_path}/by-id") == "8:1"


@pytest.mark.parametrize("number", sorted(EXHAUSTED))
@pytest.mark.parametrize(
    ("method", "call"),
    [
        ("text", "open"),
        ("text", "read"),
        ("link", "readlink"),
        ("target", "readlink"),
        ("entries", "scandir"),
        ("names", "listdir"),
        ("block_number", "stat"),
    ],
)
def test_running_out_of_something_is_never_taken_for_an_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, method: str, call: str
) -> None:
    (tmp_path / "file").write_text("x")

    def fail(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    before = len(os.listdir("/proc/self/fd"))
    with monkeypatch.context() as patched:
        patched.setattr(os, call, fail)
        with pytest.raises(OSError, match=os.strerror(number)):
            getattr(FILES, method)(f"{tmp_path}/file")
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_process_without_descriptors_gets_no_answer(tmp_path: Path) -> None:
    with no_descriptors():
        for method in (FILES.text, FILES.entries, FILES.names, FILES.whole):
            with pytest.raises(OSError, match="Too many open files") as caught:
                method(str(tmp_path))
            assert caught.value.errno == errno.EMFILE
