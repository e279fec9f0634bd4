import os
import threading
from collections.abc import Mapping
from dataclasses import replace

import pytest
import trio

from liken_events.cluster import SliceView
from liken_events.cluster.comeback import Comeback
from liken_events.cluster.kubernetes_access import Client
from liken_events.cluster.kubernetes_stream import EventStream
from liken_events.cluster.kubernetes_watch import Follower
from liken_events.core.backoff import Backoff
from liken_events.core.model.json import Json
from tests.cluster.following import (
    QUICK,
    add_device,
    devices,
    following,
    is_list,
    is_watch,
    lists,
    recorded,
    until_devices,
    watches,
)
from tests.fakes.apifaults import Close, Hold
from tests.fakes.apirules import ApiError
from tests.fakes.apiserver import ApiServer
from tests.fakes.slices import NAME, NODE, slice_body
from tests.fakes.waiting import until


async def test_only_this_nodes_slices_of_our_driver_are_followed(
    api: ApiServer, client: Client
) -> None:
    api.state.create(slice_body("ours"))
    api.state.create(slice_body("theirs", name="a", driver="gpu.example.com"))
    api.state.create(slice_body("elsewhere", name="b", node="n2"))
    async with following(client) as view:
        assert devices(view) == [["ours"]]
        api.state.create(slice_body("theirs", name="c", driver="gpu.example.com"))
        api.state.create(slice_body("more", name="n1-liken.sh-1"))
        await until_devices(view, ["ours"], ["more"])


async def test_additions_changes_and_deletions_are_seen(api: ApiServer, client: Client) -> None:
    async with following(client) as view:
        assert devices(view) == []
        made = api.state.create(slice_body("a"))
        await until_devices(view, ["a"])
        add_device(api, "b")
        await until_devices(view, ["a", "b"])
        assert view.latest.get()[0].uid == made["metadata"]["uid"]
        api.state.delete(NAME)
        await until_devices(view)
    assert lists(api) == 1
    assert len(watches(api)) == 1


async def test_a_watch_begins_where_the_list_ended_and_asks_for_bookmarks_and_an_end(
    api: ApiServer, client: Client
) -> None:
    api.state.advance(41)
    async with following(client):
        await until(lambda: watches(api))
    query = watches(api)[0]
    assert query["resourceVersion"] == "42"
    assert query["allowWatchBookmarks"] == "true"
    assert 300 <= int(query["timeoutSeconds"]) < 600
    assert query["fieldSelector"] == "spec.driver=liken.sh,spec.nodeName=n1"


async def test_a_watch_that_ended_in_order_goes_on_without_a_list(
    api: ApiServer, client: Client
) -> None:
    pace, backoff = recorded()
    async with following(client, pace) as view:
        api.state.create(slice_body("a"))
        await until_devices(view, ["a"])
        api.end_watches()
        await until(lambda: len(watches(api)) == 2)
        add_device(api, "b")
        await until_devices(view, ["a", "b"])
    assert lists(api) == 1
    assert watches(api)[1]["resourceVersion"] == "2"
    assert backoff.asked == []


async def test_a_bookmark_moves_the_version_at_which_the_next_watch_begins(
    api: ApiServer, client: Client
) -> None:
    async with following(client):
        await until(lambda: api.open_watches)
        api.state.advance(500)
        api.state.forget()
        api.send_bookmark()
        api.end_watches()
        await until(lambda: len(watches(api)) == 2)
        assert lists(api) == 1
    assert watches(api)[1]["resourceVersion"] == "501"


async def test_a_doubt_ends_the_watch_and_lists_at_once(api: ApiServer, client: Client) -> None:
    pace, backoff = recorded()
    async with following(client, pace) as view:
        await until(lambda: api.open_watches)
        view.doubt()
        await until(lambda: lists(api) == 2)
        await until(lambda: len(watches(api)) == 2)
        await until(lambda: api.open_watches == 1)
    assert backoff.asked == []


async def test_a_doubt_is_not_lost_when_an_event_arrives_in_the_same_turn(
    api: ApiServer, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    token, go, views = trio.lowlevel.current_trio_token(), threading.Event(), list[SliceView]()
    event: Mapping[str, Json] = {
        "type": "BOOKMARK",
        "object": {"metadata": {"resourceVersion": "1"}},
    }

    def read(_: EventStream) -> list[Mapping[str, Json]]:
        go.wait()
        token.run_sync_soon(views[0].doubt)  # runs just before what the thread returns arrives
        go.clear()
        return [event]

    monkeypatch.setattr(EventStream, "read", read)
    async with following(client) as view:
        views.append(view)
        for _ in range(3):
            await until(lambda: len(watches(api)) == lists(api))
            known = lists(api)
            go.set()
            await until(lambda: lists(api) > known)  # noqa: B023  # called before the next turn
    go.set()


async def test_a_doubt_cuts_our_own_waits_short(api: ApiServer, client: Client) -> None:
    api.fail(Close(), on=is_list)
    pace = replace(QUICK, backoff=Backoff(base=3600, ceiling=3600))
    async with following(client, pace) as view:
        view.doubt()
        await until(lambda: lists(api) == 2)


async def test_a_doubt_does_not_cut_short_a_wait_that_was_asked_for(
    api: ApiServer, client: Client
) -> None:
    api.fail(ApiError(429, "TooManyRequests", "", headers={"Retry-After": "60"}), on=is_list)
    async with following(client) as view:
        view.doubt()
        with trio.move_on_after(0.2):
            await until(lambda: lists(api) == 2)
        assert lists(api) == 1


async def test_a_list_in_pages_is_followed_to_its_end(api: ApiServer, client: Client) -> None:
    for index in range(7):
        api.state.create(slice_body(f"d{index}", name=f"s{index}"))
    api.page_size = 3
    async with following(client) as view:
        assert devices(view) == [[f"d{index}"] for index in range(7)]
    assert lists(api) == 3


@pytest.mark.parametrize("phase", ["list", "open", "read"])
async def test_cancelling_ends_at_once_whatever_is_waited_for(
    api: ApiServer, client: Client, phase: str
) -> None:
    hold = Hold()
    if phase != "read":
        api.fail(hold, on=is_list if phase == "list" else is_watch)
    view = SliceView()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(
            Follower(client, NODE, view, QUICK, Comeback()).run, trio.TASK_STATUS_IGNORED
        )
        await until(
            lambda: (
                api.open_watches
                or any(map(is_watch, api.requests))
                or (phase == "list" and api.requests)
            )
        )
        began = trio.current_time()
        nursery.cancel_scope.cancel()
    assert trio.current_time() - began < 0.5
    hold.released.set()
    await until(lambda: api.open_watches == 0)


def busy_threads() -> int:
    return sum(thread.name.startswith("liken-") for thread in threading.enumerate())


async def test_neither_threads_nor_connections_pile_up_over_many_restarts(
    api: ApiServer, client: Client
) -> None:
    files = len(os.listdir("/proc/self/fd"))
    for _ in range(100):
        async with following(client):
            await until(lambda: api.open_watches)
        await until(lambda: api.open_watches == 0)
    await until(lambda: busy_threads() == 0)
    await until(lambda: len(os.listdir("/proc/self/fd")) <= files + 6)


async def test_threads_do_not_pile_up_over_many_doubts(api: ApiServer, client: Client) -> None:
    async with following(client) as view:
        for times in range(2, 102):
            await until(lambda: api.open_watches == 1)
            view.doubt()
            await until(lambda: lists(api) == times)  # noqa: B023  # called before the next turn
        await until(lambda: busy_threads() <= 1)
