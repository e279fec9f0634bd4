import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from liken_events.node_watch import MOST_ANNOUNCED, NodeWatch

PORT, BUS = "/dev/ttyUSB0", "/dev/bus/usb/001/007"
FIRST, SECOND = "/devices/virtual/tty/ttyUSB0", "/devices/pci0000:00/1-3/ttyUSB0/tty/ttyUSB0"


async def has_to_wait(watch: NodeWatch) -> bool:
    """Whether somebody who waits now is not woken."""
    async with trio.open_nursery() as nursery:
        nursery.start_soon(watch.wait)
        await wait_all_tasks_blocked()
        waiting = len(nursery.child_tasks) == 1
        nursery.cancel_scope.cancel()
    return waiting


async def test_who_waits_is_woken_by_a_watched_path_and_by_no_other() -> None:
    watch = NodeWatch()
    watch.watch([PORT])
    async with trio.open_nursery() as nursery:
        nursery.start_soon(watch.wait)
        await wait_all_tasks_blocked()
        watch.announce(BUS, FIRST)
        await wait_all_tasks_blocked()
        assert len(nursery.child_tasks) == 1
        assert dict(watch.announced) == {}
        watch.announce(PORT, FIRST)
        await wait_all_tasks_blocked()
        assert not nursery.child_tasks
    assert dict(watch.announced) == {PORT: FIRST}


def test_what_was_looked_at_is_forgotten_and_what_came_since_is_not() -> None:
    watch = NodeWatch()
    watch.watch([PORT, BUS])
    watch.announce(PORT, FIRST)
    watch.announce(BUS, FIRST)
    seen = watch.number
    watch.announce(BUS, FIRST)
    watch.forget([PORT, BUS, "/dev/other"], seen)
    assert dict(watch.announced) == {BUS: FIRST}
    watch.forget([BUS], watch.number)
    watch.forget([BUS], watch.number)
    assert dict(watch.announced) == {}


async def test_nothing_is_watched_at_first() -> None:
    watch = NodeWatch()
    watch.announce(PORT, FIRST)
    assert dict(watch.announced) == {}
    assert await has_to_wait(watch)


async def test_what_was_announced_while_nobody_waited_is_not_missed() -> None:
    watch = NodeWatch()
    watch.watch([PORT, BUS])
    watch.announce(PORT, FIRST)
    watch.announce(BUS, SECOND)
    with trio.fail_after(1):
        await watch.wait()
    assert dict(watch.announced) == {PORT: FIRST, BUS: SECOND}
    assert await has_to_wait(watch), "one wait was for both"


async def test_what_is_announced_while_the_last_is_dealt_with_wakes_again() -> None:
    watch = NodeWatch()
    watch.watch([PORT])
    for devpath in (FIRST, SECOND, SECOND):
        watch.announce(PORT, devpath)
        with trio.fail_after(1):
            await watch.wait()
        assert watch.announced[PORT] == devpath, "the newest has it"


async def test_who_gave_up_waiting_took_nothing_away() -> None:
    watch = NodeWatch()
    watch.watch([PORT])
    assert await has_to_wait(watch)
    watch.announce(PORT, FIRST)
    with trio.fail_after(1):
        await watch.wait()


def test_what_is_no_longer_watched_is_forgotten_and_the_rest_is_kept() -> None:
    watch = NodeWatch()
    watch.watch([PORT, BUS])
    watch.announce(PORT, FIRST)
    watch.announce(BUS, SECOND)
    watch.watch(path for path in [PORT])
    assert dict(watch.announced) == {PORT: FIRST}
    watch.watch([PORT, BUS])
    assert dict(watch.announced) == {PORT: FIRST}, "nothing comes back"
    watch.watch([])
    assert dict(watch.announced) == {}


@pytest.mark.parametrize("times", [1, 3])
def test_an_endless_stream_of_announcements_keeps_the_newest(times: int) -> None:
    watch = NodeWatch()
    paths = [f"/dev/odd{number}" for number in range(MOST_ANNOUNCED + 5)]
    watch.watch(paths)
    for _ in range(times):
        for path in paths:
            watch.announce(path, FIRST)
    assert list(watch.announced) == paths[-MOST_ANNOUNCED:]


def test_a_path_that_is_announced_again_is_among_the_newest() -> None:
    watch = NodeWatch()
    paths = [f"/dev/odd{number}" for number in range(MOST_ANNOUNCED + 1)]
    watch.watch(paths)
    for path in [*paths[:-1], paths[0], paths[-1]]:
        watch.announce(path, FIRST)
    assert paths[0] in watch.announced
    assert paths[1] not in watch.announced
