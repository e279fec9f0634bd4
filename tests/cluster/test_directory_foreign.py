"""What others put into the directory of slices, and edit in place."""

import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import trio
from structlog.typing import EventDict

from liken_events.cluster import Conflict, Unavailable, directory
from liken_events.cluster.slice_file import dump_slice, load_slice
from tests.cluster.test_directory import Followed, Home, followed
from tests.fakes.slices import NAME, slice_body


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path / "liken-events")


@pytest.fixture
def parsed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """All texts that were parsed."""
    texts: list[str] = []

    def load(text: str) -> object:
        texts.append(text)
        return load_slice(text)

    monkeypatch.setattr(directory, "load_slice", load)
    return texts


def make_long(path: Path) -> None:
    """A slice that is longer than any that is meant."""
    text = dump_slice(slice_body("x", name=path.stem))
    path.write_text(text + "# a remark\n" * (directory.MOST_BYTES // 10))


FOREIGN: dict[str, Callable[[Path], object]] = {
    "pipe": os.mkfifo,
    "directory": Path.mkdir,
    "link to itself": lambda path: path.symlink_to(path.name),
    "long": make_long,
    "broken": lambda path: path.write_text("{broken"),
    "no text": lambda path: path.write_bytes(b"\xff\x00" * 1000),
}


@pytest.mark.parametrize("kind", FOREIGN)
async def test_what_is_no_slice_holds_up_nothing_and_is_complained_of_once(
    home: Home, parsed: list[str], logs: list[EventDict], kind: str
) -> None:
    FOREIGN[kind](home.slices / "theirs.yaml")
    before = (home.slices / "theirs.yaml").lstat()
    async with followed(home) as seen:
        assert seen.devices == {}
        for device in ("a", "b", "c"):
            home.write(dump_slice(slice_body(device)))
            await seen.until({NAME: [device]})
    complaints = [line for line in logs if "theirs" in line.get("path", "")]
    assert len(complaints) == (kind != "link to itself")
    assert max(map(len, parsed)) < 10_000
    foreign = [text for text in parsed if "kind: ResourceSlice" not in text and text]
    assert len(foreign) <= 1, "it is the same as before"
    assert (home.slices / "theirs.yaml").lstat() == before


async def test_a_file_that_becomes_a_pipe_while_it_is_looked_at_holds_up_nothing(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    home.write("text")
    regular, real = home.file.stat(), os.stat

    def too_early(path: str, **options: Any) -> os.stat_result:
        return regular if path == str(home.file) else real(path, **options)

    os.unlink(home.file)
    os.mkfifo(home.file)
    monkeypatch.setattr(os, "stat", too_early)
    await home.create("a")
    assert home.stored() == ["a"]


@pytest.mark.parametrize("kind", ["pipe", "link to itself", "long", "broken"])
async def test_in_the_place_of_our_slice_it_is_replaced(home: Home, kind: str) -> None:
    FOREIGN[kind](home.file)
    await home.create("a")
    assert home.stored() == ["a"]


async def test_a_directory_in_the_place_of_our_slice_is_said_to_be_one(home: Home) -> None:
    home.file.mkdir()
    with pytest.raises(Unavailable, match=r"cannot write .*: Is a directory"):
        await home.create("a")
    with pytest.raises(Unavailable, match="cannot remove"):
        await home.delete()


async def test_a_link_that_leads_nowhere_in_place_of_the_directory_is_waited_out(
    home: Home,
) -> None:
    shutil.rmtree(home.slices)
    home.slices.symlink_to("nowhere")
    async with followed(home) as seen:
        with pytest.raises(Unavailable, match=r"cannot write .*resourceslices: File exists"):
            await home.create("a")
        os.unlink(home.slices)
        with pytest.raises(Conflict):
            await home.create("a")
        await home.create("a")
        await seen.until({NAME: ["a"]})


def edit_within_a_tick(path: Path, old: str, new: str) -> None:
    """Edits in place so that inode, time and size are as before."""
    status = path.stat()
    text = path.read_text()
    assert old in text
    assert len(old) == len(new)
    path.write_text(text.replace(old, new))
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


async def test_an_edit_in_place_right_after_our_write_is_told(home: Home) -> None:
    outcome = await home.create("mine")
    async with followed(home) as seen:
        edit_within_a_tick(home.file, "mine", "hers")
        await seen.until({NAME: ["hers"]})
        (told,) = seen.view.latest.get()
        assert told.version != outcome.version
        edit_within_a_tick(home.file, "hers", "{{{{")
        await seen.until({})
        edit_within_a_tick(home.file, "{{{{", "hers")
        await seen.until({NAME: ["hers"]})


async def test_an_edit_in_place_right_after_our_write_is_a_conflict(home: Home) -> None:
    outcome = await home.create("mine")
    edit_within_a_tick(home.file, "mine", "hers")
    with pytest.raises(Conflict):
        await home.patch(outcome, "more")
    assert home.stored() == ["hers"]


async def test_an_edit_in_place_is_told_also_if_nobody_looks_for_a_while(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As without inotify. The time of the file is old then, and the same as ever."""
    await home.create("mine")
    async with followed(home) as seen:
        assert seen.devices == {NAME: ["mine"]}
    edit_within_a_tick(home.file, "mine", "hers")
    now = time.time_ns() + 10 * 10**9
    monkeypatch.setattr(time, "time_ns", lambda: now)
    async with followed(home) as seen:
        assert seen.devices == {NAME: ["hers"]}


async def look(seen: Followed) -> None:
    """Has the directory be looked at."""
    number = seen.view.latest.number
    seen.view.doubt()
    with trio.fail_after(10):
        await seen.view.latest.wait_newer(number)


async def test_a_file_is_not_parsed_again_while_it_is_the_same_and_not_read_once_it_is_old(
    home: Home, parsed: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    await home.create("a")
    home.write("{broken", "theirs")
    async with followed(home) as seen:
        for _ in range(3):
            await look(seen)
        assert parsed == ["{broken"]
        now = time.time_ns() + 10 * 10**9
        monkeypatch.setattr(time, "time_ns", lambda: now)
        await look(seen)
        monkeypatch.setattr(directory, "_read", None)
        await look(seen)
        assert seen.devices == {NAME: ["a"]}
    assert parsed == ["{broken"]
