"""The tables of a made-up procfs: in the kernel's format, and never half written."""

import os
import threading
from dataclasses import replace
from pathlib import Path

import inotify_simple
import pytest

from liken_events.core.decode.mounts import Unreadable, mounts, swaps
from liken_events.core.model.snapshot import Use
from liken_events.simulate import proc
from liken_events.simulate.proc import Tables, mountinfo, shown

ROOT = Use(what="/", fstype="ext4", source="/dev/sda1", number="8:1")
LONG = Use(what="/mnt/" + "x" * 200, fstype="ext4", source="/dev/sdb1", number="8:17")
SWAP = Use(what="swap", fstype="swap", source="/dev/dm-1")


def test_a_mount_is_written_as_the_kernel_writes_it() -> None:
    assert mountinfo([ROOT], clutter=False) == (
        "22 1 8:1 / / rw,relatime shared:22 - ext4 /dev/sda1 rw\n"
    )


@pytest.mark.parametrize(
    "name", ["two words", "tab\there", "new\nline", "back\\slash", "#hash", "ü"]
)
def test_odd_names_survive_writing_and_reading(name: str) -> None:
    use = Use(what=f"/{name}", fstype="ext4", source=f"/dev/{name}", number="8:1")
    swap = Use(what="swap", fstype="swap", source=f"/dev/{name}")

    (mount,) = mounts(mountinfo([use], clutter=False))

    assert (mount.point, mount.source) == (use.what, use.source)
    assert swaps(proc.swaps([swap])) == (swap.source,)


def test_swap_areas_are_listed_in_columns_as_the_kernel_has_them() -> None:
    heading, line = proc.swaps([ROOT, SWAP]).splitlines()

    assert heading == "Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority"
    assert line == "/dev/dm-1" + " " * 31 + "partition\t8388604\t\t0\t\t-2"


def test_a_swap_file_is_listed_as_one() -> None:
    file = Use(what="swap", fstype="swap", source="/swapfile")

    assert proc.swaps([file]).splitlines()[1].split()[1] == "file"


def test_clutter_adds_mounts_that_lie_on_no_disk() -> None:
    plain, full = (mounts(mountinfo([ROOT], clutter=clutter)) for clutter in (False, True))

    assert full[-len(plain) :] == plain
    assert len(full) > len(plain)
    assert all(mount.number.startswith("0:") for mount in full[: -len(plain)])


def test_only_an_ordinary_filesystem_shows_a_number() -> None:
    pool = Use(what="/pool", fstype="btrfs", source="/dev/sda", number="0:44")
    swap = Use(what="swap", fstype="swap", source="/dev/sda", number="8:0")

    assert [shown(use).number for use in (ROOT, pool, swap)] == ["8:1", None, None]


def test_process_1_and_the_reader_itself_have_one_table(tmp_path: Path) -> None:
    Tables(str(tmp_path), clutter=False).write([ROOT])

    assert (tmp_path / "1/mountinfo").read_text() == (tmp_path / "self/mountinfo").read_text()


def test_a_hidden_table_comes_back_with_the_next_write(tmp_path: Path) -> None:
    tables = Tables(str(tmp_path), clutter=False)

    tables.hide()
    assert not os.path.exists(tmp_path / "1/mountinfo")
    tables.write([ROOT])
    assert (tmp_path / "1/mountinfo").read_text() == mountinfo([ROOT], clutter=False)


def test_a_shorter_table_leaves_nothing_of_the_longer_one(tmp_path: Path) -> None:
    tables = Tables(str(tmp_path), clutter=False)

    tables.write([ROOT, LONG, SWAP])
    tables.write([ROOT])

    assert (tmp_path / "1/mountinfo").read_text() == mountinfo([ROOT], clutter=False)
    assert (tmp_path / "swaps").read_text() == proc.swaps([])


@pytest.mark.parametrize("gone", [0, 1, 2])
def test_any_line_can_go(gone: int, tmp_path: Path) -> None:
    tables, uses = Tables(str(tmp_path), clutter=True), [ROOT, LONG, replace(ROOT, what="/home")]
    tables.write(uses)

    del uses[gone]
    tables.write(uses)

    assert (tmp_path / "1/mountinfo").read_text() == mountinfo(uses, clutter=True)


def test_a_watcher_sees_a_write_in_the_file_that_it_watches(tmp_path: Path) -> None:
    tables = Tables(str(tmp_path), clutter=False)
    path = tmp_path / "self/mountinfo"
    inode = path.stat().st_ino
    with inotify_simple.INotify() as watch:
        watch.add_watch(path, inotify_simple.flags.MODIFY)

        tables.write([ROOT])

        assert watch.read(timeout=5000)
    assert path.stat().st_ino == inode


def test_a_reader_never_finds_less_than_there_is(tmp_path: Path) -> None:
    tables = Tables(str(tmp_path), clutter=True)
    tables.write([ROOT])

    def flap() -> None:
        for _ in range(200):
            tables.write([ROOT, LONG])
            tables.write([ROOT])

    writer = threading.Thread(target=flap)
    writer.start()
    looks = 0
    while writer.is_alive() or not looks:
        try:
            found = {mount.point for mount in mounts((tmp_path / "1/mountinfo").read_text())}
        except Unreadable:
            continue  # half a line, which is told from a whole one: then no disk is offered
        assert {"/", "/proc", "/run"} <= found
        looks += 1
    writer.join()
