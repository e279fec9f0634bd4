"""A follower at work, and what it was seen to do."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import parse_qs, urlsplit

import trio

from liken_events.cluster import SliceView
from liken_events.cluster.comeback import Comeback
from liken_events.cluster.kubernetes_access import Client
from liken_events.cluster.kubernetes_watch import Follower, Pace
from liken_events.core.backoff import Backoff
from tests.fakes.apifaults import Request
from tests.fakes.apiserver import ApiServer
from tests.fakes.slices import NAME, NODE, device_names
from tests.fakes.waiting import until

TINY = 0.01
SHORT = Backoff(base=TINY, ceiling=TINY)
QUICK = Pace(short=0.0, backoff=SHORT, soon=SHORT)


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordingBackoff(Backoff):
    """Notes what is asked of it and waits hardly at all."""

    asked: list[tuple[int, float | None]] = field(default_factory=list, compare=False)

    def delay(self, attempt: int, random01: float, retry_after: float | None = None) -> float:
        assert 0 <= random01 <= 1
        self.asked.append((attempt, retry_after))
        return TINY


@asynccontextmanager
async def following(client: Client, pace: Pace = QUICK) -> AsyncIterator[SliceView]:
    """Runs a follower and yields its view."""
    view = SliceView()
    async with trio.open_nursery() as nursery:
        with trio.fail_after(10):
            await nursery.start(Follower(client, NODE, view, pace, Comeback()).run)
        yield view
        nursery.cancel_scope.cancel()


def recorded(**more: Any) -> tuple[Pace, RecordingBackoff]:
    """A pace that notes all waits."""
    backoff = RecordingBackoff(base=1, ceiling=1)
    return replace(QUICK, **{"backoff": backoff, "soon": backoff, **more}), backoff


def devices(view: SliceView) -> list[list[str]]:
    if view.latest.number == 0:
        return []
    return [device_names(item.body) for item in view.latest.get()]


async def until_devices(view: SliceView, *expected: list[str]) -> None:
    await until(lambda: devices(view) == list(expected))


def add_device(api: ApiServer, device: str) -> None:
    operation = {"op": "add", "path": "/spec/devices/-", "value": {"name": device}}
    api.state.patch(NAME, [operation])


def watches(api: ApiServer) -> list[dict[str, str]]:
    """The queries of all watches so far."""
    return [
        {name: values[0] for name, values in parse_qs(urlsplit(request.path).query).items()}
        for request in list(api.requests)
        if request.is_watch
    ]


def lists(api: ApiServer) -> int:
    return api.count(lambda request: request.is_list)


def is_list(request: Request) -> bool:
    return request.is_list


def is_watch(request: Request) -> bool:
    return request.is_watch
