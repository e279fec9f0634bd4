import errno
import os
import select
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Self

import pytest
import trio
from structlog.typing import EventDict

from liken_events.core.events import MountsChanged
from liken_events.core.model.snapshot import Use
from liken_events.inbox import Inbox
from liken_events.sources import SourceLost
from liken_events.sources.mounts import MountsSource
from tests.fakes.agents import Build
from tests.fakes.machines import homelab
from tests.fakes.mount_namespace import MountNamespace

CHANGED = MountsChanged(source="mounts")
USE = Use(what="/mnt/x", fstype="ext4", source="/dev/sdb1", number="8:17")
SWAP = Use(what="swap", fstype="swap", source="/dev/sdb1")


@asynccontextmanager
async def watching(proc: str) -> AsyncIterator[Inbox]:
    """Runs the source on a procfs."""
    inbox = Inbox()
    async with trio.open_nursery() as nursery:
        await nursery.start(MountsSource(proc).run, inbox)
        yield inbox
        nursery.cancel_scope.cancel()


async def hears_of(inbox: Inbox, change: Callable[[], object]) -> None:
    """Makes a change, and waits until it is heard of."""
    change()
    with trio.fail_after(5):
        await inbox.wait()
    assert [marked.trigger for marked in inbox.take()] == [CHANGED]
    await hears_nothing(inbox)


async def hears_nothing(inbox: Inbox) -> None:
    """Lets the rest of one change arrive, after which there must be silence."""
    with trio.move_on_after(0.02):
        await inbox.wait()
    inbox.take()
    with trio.move_on_after(0.02) as silence:
        await inbox.wait()
    assert silence.cancelled_caught


def write(path: str, text: str) -> None:
    Path(path).write_text(text)


def replace_file(path: str, text: str) -> None:
    write(f"{path}.new", text)
    os.rename(f"{path}.new", path)


async def test_the_kernel_s_mount_table_tells_of_each_change_and_is_silent_otherwise(
    mounts: MountNamespace, logs: list[EventDict]
) -> None:
    async with watching(f"{mounts.root}/proc") as inbox:
        await hears_nothing(inbox)
        await hears_of(inbox, lambda: mounts.run("mount", "-t", "tmpfs", "none", "/mnt"))
        await hears_of(inbox, lambda: mounts.run("mount", "-o", "remount,ro", "/mnt"))
        await hears_of(inbox, lambda: mounts.run("umount", "/mnt"))
    assert [line["by"] for line in logs] == ["poll"]


async def test_this_machine_s_tables_can_be_watched() -> None:
    async with watching("/proc"):
        pass


async def test_tables_of_a_made_up_machine_are_followed_as_files(
    build: Build, logs: list[EventDict]
) -> None:
    tree = build(homelab())
    async with watching(tree.proc) as inbox:
        await hears_nothing(inbox)
        await hears_of(inbox, lambda: tree.mount(USE))
        await hears_of(inbox, lambda: tree.unmount(USE.what))
        await hears_of(inbox, lambda: tree.mount(SWAP))
        await hears_of(inbox, lambda: Path(f"{tree.proc}/swaps").unlink())
    assert [line["by"] for line in logs] == ["inotify"]


async def test_a_table_that_is_replaced_is_followed(build: Build) -> None:
    tree = build(homelab())
    table = f"{tree.proc}/1/mountinfo"
    async with watching(tree.proc) as inbox:
        for text in ("", "22 1 8:1 / / rw - ext4 /dev/sda1 rw\n"):
            await hears_of(inbox, partial(replace_file, table, text))


async def test_other_files_beside_a_table_are_not_heard_of(build: Build) -> None:
    tree = build(homelab())
    async with watching(tree.proc) as inbox:
        for name in ("1/maps", "loadavg", "1/mountinfo.new"):
            write(f"{tree.proc}/{name}", "x")
        await hears_nothing(inbox)
        assert inbox.take() == []


async def test_a_kernel_without_tables_is_watched_in_vain(tmp_path: Path) -> None:
    async with watching(str(tmp_path)) as inbox:
        await hears_nothing(inbox)


async def test_our_own_mount_table_is_followed_where_the_host_s_is_hidden(tmp_path: Path) -> None:
    table = tmp_path / "self" / "mountinfo"
    table.parent.mkdir()
    table.write_text("")
    async with watching(str(tmp_path)) as inbox:
        await hears_of(inbox, lambda: table.write_text("changed"))


async def test_no_descriptor_is_left_open(build: Build) -> None:
    tree = build(homelab())
    before = len(os.listdir("/proc/self/fd"))
    for proc in (tree.proc, "/proc"):
        async with watching(proc):
            assert len(os.listdir("/proc/self/fd")) > before
        assert len(os.listdir("/proc/self/fd")) == before


class Full:
    """An epoll set of a machine that has no watches left."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        pass

    def register(self, handle: int, events: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


async def test_a_table_that_cannot_be_watched_is_a_known_loss(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    before = len(os.listdir("/proc/self/fd"))
    with monkeypatch.context() as patched:
        patched.setattr(select, "epoll", Full)
        with pytest.raises(SourceLost, match=r"cannot watch /proc/.*: .*No space left"):
            await MountsSource("/proc").run(Inbox())
    assert len(os.listdir("/proc/self/fd")) == before
