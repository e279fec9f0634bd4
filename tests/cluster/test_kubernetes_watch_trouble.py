import json
from dataclasses import replace

import pytest
import structlog.testing

from liken_events.cluster.kubernetes_access import Client
from tests.cluster.following import (
    QUICK,
    RecordingBackoff,
    devices,
    following,
    is_list,
    is_watch,
    lists,
    recorded,
    until_devices,
    watches,
)
from tests.fakes.apifaults import Close, Fault, Hold, Lines, Raw
from tests.fakes.apirules import ApiError
from tests.fakes.apiserver import ApiServer
from tests.fakes.slices import NAME, slice_body
from tests.fakes.waiting import until


def error_event(code: int, message: str = "too old") -> Lines:
    status = ApiError(code, "Whatever", message).status()
    return Lines(chunks=(json.dumps({"type": "ERROR", "object": status}).encode() + b"\n",))


NOT_AN_OBJECT = b'{"type": "ADDED", "object": 7}\n'
UNKNOWN = b'{"type": "STRANGE", "object": {"metadata": {"name": "n1-liken.sh"}}}\n'
NAMELESS = b'{"type": "ADDED", "object": {"metadata": {}}}\n'
NOT_A_STATUS = b'{"type": "ERROR", "object": {"kind": "ResourceSlice"}}\n'


@pytest.mark.parametrize(
    "fault",
    [
        error_event(410),
        error_event(500),
        error_event(403),
        ApiError(410, "Expired", "too old"),
        ApiError(403, "Forbidden", "no"),
        ApiError(429, "TooManyRequests", "later"),
        ApiError(500, "InternalError", "etcd"),
        Lines(chunks=(b'{"type": "MODIFIED", "object": {"metada',)),
        Lines(chunks=(NOT_AN_OBJECT,)),
        Lines(chunks=(UNKNOWN,)),
        Lines(chunks=(NAMELESS,)),
        Lines(chunks=(NOT_A_STATUS,)),
        Lines(chunks=(b"<html>\n",)),
        Lines(end="break"),
        Close(),
        Raw(body=b"", status=302),
    ],
    ids=lambda fault: repr(fault)[:50],
)
async def test_after_anything_else_all_is_listed_again_and_what_was_missed_is_found(
    api: ApiServer, client: Client, fault: Fault
) -> None:
    api.state.create(slice_body("a"))
    pace, backoff = recorded()
    gap = Hold(then=fault)
    async with following(client, pace) as view:
        await until(lambda: api.open_watches)
        api.fail(gap, on=is_watch)
        api.end_watches()
        await until(lambda: len(watches(api)) == 2)
        api.state.delete(NAME)
        api.state.forget()
        gap.released.set()
        await until_devices(view)
        await until(lambda: api.open_watches)
        api.state.create(slice_body("anew"))
        await until_devices(view, ["anew"])
    assert lists(api) == 2
    assert [attempt for attempt, _ in backoff.asked] == [1]


async def test_an_expired_watch_is_followed_by_a_list(api: ApiServer, client: Client) -> None:
    api.state.create(slice_body("a"))
    async with following(client) as view:
        await until(lambda: api.open_watches)
        hold = Hold()
        api.fail(hold, on=is_watch)
        api.end_watches()
        await until(lambda: len(watches(api)) == 2)
        api.state.delete(NAME)
        api.state.forget()
        hold.released.set()
        await until_devices(view)
    assert lists(api) == 2


async def test_waits_grow_with_the_failures_and_hold_what_was_asked_for(
    api: ApiServer, client: Client
) -> None:
    soon = RecordingBackoff(base=2, ceiling=2)
    pace, backoff = recorded(soon=soon)
    api.fail(ApiError(429, "TooManyRequests", "", headers={"Retry-After": "7"}), on=is_list)
    api.fail(ApiError(429, "TooManyRequests", ""), on=is_list)
    api.fail(ApiError(503, "ServiceUnavailable", "", headers={"Retry-After": "1"}), on=is_list)
    api.fail(Close(), on=is_list)
    api.fail(ApiError(429, "TooManyRequests", "", headers={"Retry-After": "3"}), on=is_watch)
    async with following(client, pace):
        await until(lambda: api.open_watches)
    assert soon.asked == [(1, 7.0), (2, 1.0), (3, 3.0)], "they count for themselves"
    assert backoff.asked == [(2, None), (4, None)], "all count here"


async def test_failures_are_forgotten_once_a_watch_lasts(api: ApiServer, client: Client) -> None:
    pace, backoff = recorded()
    api.fail(ApiError(500, "InternalError", ""), on=is_list, times=3)
    with structlog.testing.capture_logs() as logs:
        async with following(client, pace):
            await until(lambda: [entry for entry in logs if entry["event"] == "watch.restored"])
            api.fail(ApiError(500, "InternalError", ""), on=is_list)
            api.break_connections()
            await until(lambda: len(backoff.asked) >= 5)
    attempts = [attempt for attempt, _ in backoff.asked]
    assert attempts[:5] == [1, 2, 3, 1, 2]


async def test_a_server_that_ends_each_watch_at_once_is_not_asked_in_a_hurry(
    api: ApiServer, client: Client
) -> None:
    pace, backoff = recorded(short=60.0)
    api.fail(Lines(), on=is_watch, times=1000)
    with structlog.testing.capture_logs() as logs:
        async with following(client, pace):
            await until(lambda: len(backoff.asked) >= 4)
    assert [attempt for attempt, _ in backoff.asked[:4]] == [1, 2, 3, 4]
    assert [entry["event"] for entry in logs] == ["watch.lost"]


async def test_trouble_is_told_once_and_its_end_once(api: ApiServer, client: Client) -> None:
    pace, backoff = recorded()
    api.fail(ApiError(503, "ServiceUnavailable", "etcd is away"), on=is_list, times=5)
    api.fail(ApiError(403, "Forbidden", "no\x1b[2J"), on=is_watch, times=5)
    with structlog.testing.capture_logs() as logs:
        async with following(client, pace):
            await until(lambda: len(logs) == 3)
            await until(lambda: api.open_watches)
    assert len(backoff.asked) == 10
    assert [entry["event"] for entry in logs] == ["watch.lost", "watch.lost", "watch.restored"]
    assert logs[0]["reason"] == "cannot list resourceslices (503): etcd is away"
    assert logs[1]["reason"] == "not allowed to watch resourceslices: no\\x1b[2J"
    assert logs[2]["host"] == api.url


async def test_a_dead_server_holds_no_start_up_and_is_found_when_it_comes(
    api: ApiServer, client: Client
) -> None:
    api.stop()
    with structlog.testing.capture_logs() as logs:
        async with following(client) as view:
            assert view.latest.number == 0
            api.state.create(slice_body("a"))
            api.start()
            await until_devices(view, ["a"])
            await until(lambda: len(logs) == 2)
    assert logs[0]["reason"] == f"no connection to {api.url}: Connection refused"
    assert logs[1]["event"] == "watch.restored"


async def test_a_server_that_restarts_is_followed_on(api: ApiServer, client: Client) -> None:
    api.state.create(slice_body("a"))
    async with following(client) as view:
        await until(lambda: api.open_watches)
        api.stop()
        api.state.delete(NAME)
        api.start()
        await until_devices(view)


async def test_a_server_that_lost_its_state_is_believed(api: ApiServer, client: Client) -> None:
    api.state.advance(1000)
    api.state.create(slice_body("a"))
    async with following(client) as view:
        await until(lambda: api.open_watches)
        api.stop()
        api.lose_state()
        api.start()
        await until_devices(view)
        api.state.create(slice_body("b"))
        await until_devices(view, ["b"])


async def test_a_watch_that_falls_silent_is_replaced_and_nothing_is_missed(
    api: ApiServer, client: Client
) -> None:
    api.fail(Lines(end="silence"), on=is_watch)
    async with following(client, replace(QUICK, silence=0.1)) as view:
        api.state.create(slice_body("a"))
        await until_devices(view, ["a"])
        assert lists(api) >= 2
        assert api.connections >= 2


async def test_a_watch_from_the_future_does_not_stay_deaf_for_ever(
    api: ApiServer, client: Client
) -> None:
    api.state.advance(1000)
    async with following(client, replace(QUICK, silence=0.1)) as view:
        await until(lambda: api.open_watches)
        api.lose_state()
        api.state.create(slice_body("b"))
        await until_devices(view, ["b"])


async def test_a_list_that_expires_between_its_pages_begins_anew(
    api: ApiServer, client: Client
) -> None:
    api.state.create(slice_body("a"))
    api.state.create(slice_body("b", name="n1-liken.sh-1"))
    api.page_size = 1
    expired = ApiError(410, "Expired", "the provided continue parameter is too old")
    api.fail(expired, on=lambda request: "continue" in request.path)
    async with following(client) as view:
        await until_devices(view, ["a"], ["b"])


@pytest.mark.parametrize(
    "body", [b"", b"[]", b"<html>", b'{"items": {}}', b'{"items": []}', b'{"metadata": {}}']
)
async def test_an_answer_that_is_no_list_does_not_empty_the_view(
    api: ApiServer, client: Client, body: bytes
) -> None:
    api.state.create(slice_body("a"))
    async with following(client) as view:
        number = view.latest.number
        api.fail(Raw(body=body), on=is_list)
        view.doubt()
        await until(lambda: view.latest.number > number)
        assert devices(view) == [["a"]]
    assert lists(api) == 3
