import errno
import os
import shutil
from contextlib import ExitStack
from pathlib import Path

import pytest
import trio
from inotify_simple import INotify
from structlog.typing import EventDict
from trio.testing import MockClock

from liken_events import inotify
from liken_events.inotify import FALLBACK_SECONDS, DirectoryWatch
from tests.fakes.faults import no_descriptors
from tests.fakes.mount_namespace import MountNamespace


async def hears(watch: DirectoryWatch, *names: str) -> None:
    """Waits until one of the names may have changed."""
    with trio.fail_after(5):
        while not await watch.changed(*names):
            pass


async def hears_nothing(watch: DirectoryWatch, *names: str) -> None:
    """Reads all that was said, none of which may be about one of the names."""
    with trio.move_on_after(0.02):
        while True:
            assert not await watch.changed(*names)


def touch(path: Path) -> None:
    path.write_text("x")


def move(path: Path, to: Path) -> None:
    path.rename(to)


def remove(path: Path) -> None:
    path.unlink()


def remove_directory(path: Path) -> None:
    path.rmdir()


def replace_by_file(path: Path) -> None:
    path.rmdir()
    touch(path)


def make(path: Path) -> None:
    path.mkdir(parents=True)


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    path = tmp_path / "parent" / "watched"
    path.mkdir(parents=True)
    return path


async def test_everything_that_can_happen_to_a_file_is_heard(directory: Path) -> None:
    file, other = directory / "file", directory / "other"
    with DirectoryWatch(str(directory)) as watch:
        touch(file)
        await hears(watch, "file")
        touch(file)
        await hears(watch, "file")
        move(file, other)
        await hears(watch, "other")
        move(other, file)
        await hears(watch, "file")
        remove(file)
        await hears(watch, "file")


async def test_what_happens_to_others_is_not_what_was_asked_for(directory: Path) -> None:
    with DirectoryWatch(str(directory)) as watch:
        touch(directory / "other")
        await hears_nothing(watch, "file")
        touch(directory / "file")
        await hears(watch, "other", "file")


async def test_who_asks_for_names_only_is_not_woken_by_what_is_written(directory: Path) -> None:
    file = directory / "file"
    touch(file)
    with DirectoryWatch(str(directory), names_only=True) as watch:
        touch(file)
        with file.open("ab", buffering=0) as opened:
            opened.write(b"x")
        await hears_nothing(watch)
        move(file, directory / "other")
        await hears(watch, "other")
        await hears_nothing(watch)
        remove(directory / "other")
        await hears(watch, "other")


async def test_a_quiet_directory_wakes_nobody(directory: Path) -> None:
    with DirectoryWatch(str(directory)) as watch:
        touch(directory.parent / "beside")
        await hears_nothing(watch)


async def test_a_directory_that_is_deleted_and_made_anew_is_followed(directory: Path) -> None:
    with DirectoryWatch(str(directory)) as watch:
        for _ in range(3):
            shutil.rmtree(directory)
            await hears(watch)
            make(directory)
            await hears(watch)
            await hears_nothing(watch)
            touch(directory / "file")
            await hears(watch, "file")


async def test_a_directory_that_is_replaced_before_anybody_looks_is_followed(
    directory: Path,
) -> None:
    with DirectoryWatch(str(directory)) as watch:
        shutil.rmtree(directory.parent)
        make(directory)
        touch(directory / "file")
        await hears(watch, "file")
        touch(directory / "file")
        await hears(watch, "file")


async def test_a_directory_that_is_moved_away_and_back_is_followed(directory: Path) -> None:
    away = directory.parent / "away"
    with DirectoryWatch(str(directory)) as watch:
        move(directory, away)
        await hears(watch)
        touch(away / "file")
        await hears_nothing(watch, "file")
        move(away, directory)
        await hears(watch)
        touch(directory / "file")
        await hears(watch, "file")


async def test_another_directory_in_its_place_is_followed(directory: Path) -> None:
    with DirectoryWatch(str(directory)) as watch:
        other = directory.parent / "other"
        make(other)
        move(directory, directory.parent / "old")
        move(other, directory)
        await hears(watch)
        await hears_nothing(watch)
        touch(directory / "file")
        await hears(watch, "file")


@pytest.mark.parametrize("at_once", [True, False])
async def test_a_directory_may_be_missing_with_its_parents(tmp_path: Path, at_once: bool) -> None:
    directory = tmp_path / "a" / "b" / "c"
    with DirectoryWatch(str(directory)) as watch:
        steps = [directory] if at_once else [directory.parent.parent, directory.parent, directory]
        for step in steps:
            make(step)
            await hears(watch)
        await hears_nothing(watch)
        touch(directory / "file")
        await hears(watch, "file")


async def test_a_file_in_place_of_the_directory_is_waited_out(directory: Path) -> None:
    replace_by_file(directory)
    with DirectoryWatch(str(directory)) as watch:
        remove(directory)
        await hears(watch)
        make(directory)
        await hears(watch)
        touch(directory / "file")
        await hears(watch, "file")


async def test_a_filesystem_that_is_unmounted_is_left_for_what_lies_below(
    mounts: MountNamespace,
) -> None:
    mounts.run("mount", "-t", "tmpfs", "none", "/mnt")
    mounts.run("mount", "-t", "tmpfs", "none", "/mnt")
    directory = Path(f"{mounts.root}/mnt")
    with DirectoryWatch(str(directory)) as watch:
        mounts.run("umount", "/mnt")
        await hears(watch)
        await hears_nothing(watch)
        touch(directory / "file")
        await hears(watch, "file")


def write_in_turn(count: int, *paths: Path) -> None:
    """Writes to one file after the other: equal events in a row would be merged."""
    with ExitStack() as stack:
        files = [stack.enter_context(path.open("wb", buffering=0)) for path in paths]
        for number in range(count):
            files[number % len(files)].write(b"x")


async def test_an_overflow_means_that_anything_may_have_changed(
    directory: Path, queue_length: int
) -> None:
    with DirectoryWatch(str(directory)) as watch:
        write_in_turn(queue_length + 2, directory / "first", directory / "second")
        await hears(watch, "never mentioned")
        await hears_nothing(watch, "never mentioned")
        touch(directory / "file")
        await hears(watch, "file")


class Failing(INotify):
    """inotify of a machine on which something has run out.

    Attributes:
        no_instance, no_watch: what making one, and adding a watch, fails with; 0 for nothing.
    """

    no_instance = 0
    no_watch = 0

    def __init__(self, **options: bool) -> None:
        if type(self).no_instance:
            raise OSError(type(self).no_instance, "refused")
        super().__init__(**options)  # type: ignore[no-untyped-call]

    def add_watch(self, path: str, mask: int) -> int:
        if type(self).no_watch:
            raise OSError(type(self).no_watch, "refused")
        number: int = super().add_watch(path, mask)  # type: ignore[no-untyped-call]
        return number


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch) -> type[Failing]:
    class Fresh(Failing):
        pass

    monkeypatch.setattr(inotify, "INotify", Fresh)
    return Fresh


async def test_a_directory_made_just_before_its_parent_is_watched_is_not_missed(
    monkeypatch: pytest.MonkeyPatch, directory: Path
) -> None:
    remove_directory(directory)

    class Late(Failing):
        def add_watch(self, path: str, mask: int) -> int:
            if path == str(directory.parent):
                directory.mkdir(exist_ok=True)
            return super().add_watch(path, mask)

    monkeypatch.setattr(inotify, "INotify", Late)
    with DirectoryWatch(str(directory)) as watch:
        touch(directory / "file")
        await hears(watch, "file")
        touch(directory / "file")
        await hears(watch, "file")


@pytest.mark.parametrize(
    ("attribute", "number", "advice"),
    [
        ("no_instance", errno.EMFILE, "fs.inotify.max_user_instances"),
        ("no_instance", errno.ENFILE, "file descriptor"),
        ("no_instance", errno.ENOMEM, "memory"),
        ("no_watch", errno.ENOSPC, "fs.inotify.max_user_watches"),
    ],
)
async def test_without_inotify_it_looks_every_few_seconds_until_there_is_one(
    clock: MockClock,
    logs: list[EventDict],
    directory: Path,
    failing: type[Failing],
    attribute: str,
    number: int,
    advice: str,
) -> None:
    setattr(failing, attribute, number)
    with DirectoryWatch(str(directory)) as watch:
        for count in range(1, 4):
            assert await watch.changed("file")
            assert trio.current_time() == pytest.approx(count * FALLBACK_SECONDS)
        setattr(failing, attribute, 0)
        assert await watch.changed("file")
        looked = trio.current_time()
        touch(directory / "file")
        assert await watch.changed("file")
        assert trio.current_time() == looked, "it hears again and need not look"
    assert [line["event"] for line in logs] == ["inotify.unavailable", "inotify.available"]
    assert advice in logs[0]["reason"]


async def test_running_out_while_following_is_survived(
    clock: MockClock, directory: Path, failing: type[Failing]
) -> None:
    with DirectoryWatch(str(directory)) as watch:
        failing.no_watch = errno.ENOSPC
        shutil.rmtree(directory)
        assert await watch.changed()
        make(directory)
        assert await watch.changed()
        failing.no_watch = 0
        assert await watch.changed()
        touch(directory / "file")
        assert await watch.changed("file")


async def test_a_process_without_descriptors_left_is_served_later(
    clock: MockClock, directory: Path
) -> None:
    with ExitStack() as stack:
        with no_descriptors():
            watch = stack.enter_context(DirectoryWatch(str(directory)))
        assert await watch.changed("file")
        touch(directory / "file")
        assert await watch.changed("file")


async def test_an_error_that_no_limit_explains_is_not_hidden(
    directory: Path, failing: type[Failing]
) -> None:
    failing.no_watch = errno.EINVAL
    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(OSError, match="refused"), DirectoryWatch(str(directory)):
        pass
    assert len(os.listdir("/proc/self/fd")) == before


async def test_no_descriptor_is_left_open(directory: Path) -> None:
    before = len(os.listdir("/proc/self/fd"))
    with DirectoryWatch(str(directory)) as watch:
        for _ in range(5):
            shutil.rmtree(directory)
            await hears(watch)
            make(directory)
            await hears(watch)
    assert len(os.listdir("/proc/self/fd")) == before
