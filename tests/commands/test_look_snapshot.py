import json
import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from liken_events.core.model.recording import from_json
from liken_events.core.model.snapshot import Snapshot
from tests.fakes.agents import Build
from tests.fakes.devices import usb
from tests.fakes.machines import desktop, empty_vm, homelab, machine, server
from tests.fakes.typed import at, typed

TWINS = ("1-1:1.0", "1-2:1.0")


def serials(snapshot: Snapshot) -> dict[str, str | None]:
    return {device.key.address: device.serial for device in snapshot.devices}


@contextmanager
def largest_file(size: int) -> Iterator[None]:
    """No file that this process writes may grow beyond this: the disk is full."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.parametrize("made", [desktop, server, homelab, empty_vm])
def test_a_snapshot_is_the_machine_as_it_is(standing: Build, made: Any) -> None:
    tree = standing(made(), clutter=True)
    ran = typed("snapshot", "--with-serials", *at(tree))
    assert (ran.status, ran.err) == (0, "")
    assert from_json(ran.out) == tree.snapshot


def test_a_file_gets_the_same_as_standard_output(standing: Build, tmp_path: Path) -> None:
    tree, path = standing(homelab()), tmp_path / "machine.json"
    direct = typed("snapshot", *at(tree))
    ran = typed("snapshot", "-o", str(path), *at(tree))
    assert (ran.status, ran.out) == (0, "")
    assert ran.err == f"wrote {len(tree.snapshot.devices)} devices to {path}\n"
    assert path.read_text("utf-8") == direct.out
    assert typed("snapshot", "-o", "-", *at(tree)) == direct


def test_serial_numbers_are_replaced_and_twins_stay_twins(standing: Build) -> None:
    tree = standing(homelab())
    found = serials(from_json(typed("snapshot", *at(tree)).out))
    known = serials(tree.snapshot)
    assert {address for address, serial in found.items() if serial is None} == {
        address for address, serial in known.items() if serial is None
    }
    assert not set(found.values()) & set(known.values()) - {None}
    assert found[TWINS[0]] == found[TWINS[1]] != found["1-3:1.0"]


def test_a_serial_number_is_replaced_inside_other_words_too(standing: Build) -> None:
    words = ("ACME", "Stick SN-77 (SN-77)")
    stick = usb("1-1:1.0", "10c4:ea60", "ff0000", "cp210x", 2, words=words, serial="SN-77")
    words = ("by SN-77", "Other SN-77X81")
    other = usb("1-2:1.0", "10c4:ea60", "ff0000", "cp210x", 3, words=words, serial="SN-77X81")
    text = typed("snapshot", *at(standing(machine([stick, other])))).out
    assert [(device.maker, device.model) for device in from_json(text).devices] == [
        ("ACME", "Stick serial-1 (serial-1)"),
        ("by serial-1", "Other serial-2"),
    ]


def test_serial_numbers_stay_if_that_is_wanted(standing: Build) -> None:
    tree = standing(homelab())
    text = typed("snapshot", "--with-serials", *at(tree)).out
    assert serials(from_json(text)) == serials(tree.snapshot)


def test_a_snapshot_of_odd_texts_is_plain_text_and_comes_back_the_same(standing: Build) -> None:
    odd = "A\x1b[31m\u202eé\x9b\x7f"
    stick = usb("1-1:1.0", "10c4:ea60", "ff0000", "cp210x", 2, words=(odd, odd), serial=odd)
    tree = standing(machine([stick]))
    text = typed("snapshot", "--with-serials", *at(tree)).out
    assert all(char.isprintable() or char == "\n" for char in text)
    assert "é" in text
    assert from_json(text) == tree.snapshot


@pytest.mark.parametrize(
    ("where", "why"),
    [("missing/machine.json", "No such file or directory"), (".", "Is a directory")],
)
def test_a_file_that_cannot_be_written_is_told_and_nothing_is_left(
    standing: Build, tmp_path: Path, where: str, why: str
) -> None:
    home = tmp_path / "home"
    home.mkdir()
    ran = typed("snapshot", "-o", f"{home}/{where}", *at(standing(homelab())))
    assert (ran.status, ran.out) == (1, "")
    assert ran.err == f"liken-events: {home}/{where}: cannot be written: {why}\n"
    assert os.listdir(home) == []


def test_a_full_disk_leaves_the_older_file_as_it_was(standing: Build, tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    path = home / "machine.json"
    path.write_text("older", "utf-8")
    flags = at(standing(homelab()))
    with largest_file(100):
        ran = typed("snapshot", "-o", str(path), *flags)
    assert (ran.status, ran.out) == (1, "")
    assert ran.err == f"liken-events: {path}: cannot be written: File too large\n"
    assert os.listdir(home) == ["machine.json"]
    assert path.read_text("utf-8") == "older"


def test_a_link_is_followed_and_not_replaced(standing: Build, tmp_path: Path) -> None:
    path, link = tmp_path / "machine.json", tmp_path / "link.json"
    link.symlink_to(path)
    tree = standing(homelab())
    assert typed("snapshot", "-o", str(link), *at(tree)).status == 0
    assert link.is_symlink()
    assert path.read_text("utf-8") == typed("snapshot", *at(tree)).out


def test_what_is_no_file_is_written_to_and_not_replaced(standing: Build, tmp_path: Path) -> None:
    tree, path = standing(empty_vm()), tmp_path / "pipe"
    os.mkfifo(path)
    reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    with open(reader, encoding="utf-8") as pipe:
        assert typed("snapshot", "-o", str(path), *at(tree)).status == 0
        assert pipe.read() == typed("snapshot", *at(tree)).out
    assert path.is_fifo()


def test_a_recording_can_be_cut_by_hand(standing: Build) -> None:
    body = json.loads(typed("snapshot", *at(standing(homelab()))).out)
    body["devices"] = [device for device in body["devices"] if device["address"] == "1-3:1.0"]
    ran = typed("inventory", "-o", "json", "--snapshot=-", stdin=json.dumps(body))
    assert [device["name"] for device in json.loads(ran.out)] == ["usb-1-3-1-0"]
