from collections.abc import Callable

import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from liken_events.core.events import DeviceChanged, MountsChanged, Resync, Trigger
from liken_events.inbox import MOST_PATHS, Inbox


def changed(path: str, action: str = "change") -> DeviceChanged:
    return DeviceChanged(path=path, action=action)


def taken(inbox: Inbox) -> list[tuple[Trigger, float]]:
    return [(marked.trigger, marked.at) for marked in inbox.take()]


async def test_equal_triggers_merge_to_the_last_one(clock: MockClock) -> None:
    inbox = Inbox()
    start = trio.current_time()
    for trigger in (changed("/devices/a"), changed("/devices/b"), changed("/devices/a")):
        inbox.mark(trigger)
        await trio.sleep(1)
    assert taken(inbox) == [(changed("/devices/b"), start + 1), (changed("/devices/a"), start + 2)]


async def test_different_actions_on_one_path_stay_apart_and_in_order() -> None:
    inbox = Inbox()
    burst = [changed("/devices/a", action) for action in ("remove", "add", "bind")]
    for trigger in burst:
        inbox.mark(trigger)
    assert [marked.trigger for marked in inbox.take()] == burst


async def test_an_inbox_that_was_emptied_is_waited_for() -> None:
    inbox = Inbox()
    inbox.mark(MountsChanged(source="mounts"))
    await inbox.wait()
    inbox.take()
    with trio.move_on_after(0) as scope:
        await inbox.wait()
    assert scope.cancelled_caught


async def test_a_wait_ends_with_a_trigger_or_a_wake() -> None:
    inbox = Inbox()
    ends: list[Callable[[], None]] = [lambda: inbox.mark(changed("/devices/a")), inbox.wake]
    for end in ends:
        inbox.take()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(inbox.wait)
            await wait_all_tasks_blocked()
            assert len(nursery.child_tasks) == 1
            end()
    assert inbox.take() == []


async def test_a_storm_over_very_many_paths_becomes_one_wish_to_read_everything() -> None:
    inbox = Inbox()
    mounts = MountsChanged(source="mounts")
    inbox.mark(mounts)
    for number in range(3 * MOST_PATHS):
        inbox.mark(changed(f"/devices/{number}"))
    found = [marked.trigger for marked in inbox.take()]
    assert len(found) <= MOST_PATHS
    assert mounts in found
    assert sum(isinstance(trigger, Resync) for trigger in found) == 1


async def test_the_last_event_before_the_limit_is_not_lost() -> None:
    inbox = Inbox()
    for number in range(MOST_PATHS):
        inbox.mark(changed(f"/devices/{number}"))
    assert len(inbox.take()) == MOST_PATHS
