import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from liken_events.latest import Latest


def test_nothing_can_be_read_before_the_first_value() -> None:
    latest: Latest[int | None] = Latest()
    assert latest.number == 0
    with pytest.raises(LookupError):
        latest.get()
    latest.set(None)
    assert latest.get() is None
    assert latest.number == 1


async def test_a_slow_reader_gets_the_newest_value_only() -> None:
    latest: Latest[int] = Latest()
    latest.set(1)
    seen = await latest.wait_newer(0)
    for value in (2, 3, 4):
        latest.set(value)
    assert await latest.wait_newer(seen) == 4
    assert latest.get() == 4


async def test_all_readers_wake_at_a_new_value_and_none_without_one() -> None:
    latest: Latest[int] = Latest()
    async with trio.open_nursery() as nursery:
        for _ in range(3):
            nursery.start_soon(latest.wait_newer, 0)
        await wait_all_tasks_blocked()
        assert len(nursery.child_tasks) == 3
        latest.set(1)
        await wait_all_tasks_blocked()
        assert not nursery.child_tasks


async def test_a_reader_may_ask_for_another_number_than_a_higher_one() -> None:
    """A value that is older than the number asked for is another one all the same."""
    latest: Latest[int] = Latest()
    latest.set(1)
    with trio.fail_after(1):
        assert await latest.wait_newer(5) == 1


async def test_the_end_wakes_all_who_wait_and_keeps_the_last_value() -> None:
    latest: Latest[int] = Latest()
    latest.set(7)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(latest.wait_newer, 1)
        nursery.start_soon(latest.wait_closed)
        await wait_all_tasks_blocked()
        assert len(nursery.child_tasks) == 2
        latest.set(8)
        await wait_all_tasks_blocked()
        assert len(nursery.child_tasks) == 1, "a new value is no end"
        latest.close()
    assert latest.closed
    assert latest.get() == 8
    with trio.fail_after(1):
        assert await latest.wait_newer(2) == 2
