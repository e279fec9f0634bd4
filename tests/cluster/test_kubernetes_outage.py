"""How soon an agent has published after an outage, and how much it asks meanwhile: its client,
watch, sink and loop in mock time."""

import random
from collections.abc import Iterator, Sequence
from functools import partial

import pytest
import trio
from trio.testing import MockClock

from liken_events.cluster import SliceView
from liken_events.cluster.kubernetes import KubernetesCluster
from liken_events.converge import RACE, converge
from liken_events.core.backoff import SOON
from liken_events.core.model.device import Inventory, PublishedDevice
from liken_events.core.model.snapshot import Key
from liken_events.latest import Latest
from liken_events.sinks.slices import SliceSink, plan_slices
from tests.fakes.api_in_time import ApiInTime
from tests.fakes.slices import NAME, NODE, device_names

BOUND = 60.0
"""Seconds within which a node is heard of after the server is ready."""

MOST_IN_A_MINUTE = 30
"""Requests of one agent, watch and sink together, in any minute of trouble. With the shortest
waits that chance allows, a server that is away is asked 19 times in the first minute and 6 times
in any later one; one that asks for patience 16 times in the first, and 12 times in a later one.
The rest is for the end of one and the beginning of the other, and for what is to be done then."""

OUTAGES = [
    (3.0, 0.0, 0.0),
    (60.0, 0.0, 0.0),
    (3600.0, 0.0, 0.0),
    (0.0, 3.0, 0.0),
    (20.0, 3.0, 10.0),
    (60.0, 10.0, 0.0),
    (60.0, 10.0, 60.0),
    (60.0, 300.0, 0.0),
    (0.0, 0.0, 600.0),
]
each_outage = pytest.mark.parametrize("outage", OUTAGES, ids=str)


class Agent:
    """What an agent has for its slices."""

    def __init__(self) -> None:
        self.cluster = KubernetesCluster(lambda: None)  # type: ignore[arg-type,return-value]
        self.published = trio.Event()
        self._inventories: Latest[Inventory] = Latest()

    def offer(self, *names: str) -> None:
        self.published = trio.Event()
        offered = tuple(
            PublishedDevice(name=name, key=Key(bus="usb", address=name), nodes=())
            for name in names
        )
        self._inventories.set(Inventory(offered=offered))

    def _tell(self, reached: Inventory) -> None:
        if reached is self._inventories.get():
            self.published.set()

    async def run(self) -> None:
        view = SliceView()
        sink = SliceSink(self.cluster, view, NODE)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self.cluster.watch_slices, NODE, view)
            nursery.start_soon(
                partial(converge, sink, plan_slices, self._inventories, on_done=self._tell)
            )


def most_in_a_minute(times: Sequence[float]) -> int:
    return max(sum(start <= when < start + 60 for when in times) for start in times)


async def live_through(
    api: ApiInTime, *, is_new: bool = False, loses_slice: bool = False
) -> float:
    """One agent and one outage, in which its devices change. Returns how long after the server is
    ready it has published.

    Args:
        api: the server.
        is_new: the agent is started in the outage.
        loses_slice: somebody deletes the slice meanwhile.
    """
    agent = Agent()
    async with trio.open_nursery() as nursery:
        if not is_new:
            nursery.start_soon(agent.run)
            agent.offer("a")
            await agent.published.wait()
            await trio.sleep(1000)
        before = len(api.requests)
        api.begin()
        agent.offer("a", "b")
        if is_new:
            nursery.start_soon(agent.run)
        if loses_slice:
            api.state.delete(NAME)
        await agent.published.wait()
        late = trio.current_time() - api.ready
        assert device_names(api.state.slice(NAME)) == ["a", "b"]
        await trio.sleep(60)
        nursery.cancel_scope.cancel()
    assert most_in_a_minute(api.requests[before:]) <= MOST_IN_A_MINUTE
    return late


def with_other_chances(
    monkeypatch: pytest.MonkeyPatch, outage: tuple[float, float, float]
) -> Iterator[ApiInTime]:
    """The same outage (seconds away, strange and busy) twenty times, with other jitter."""
    away, strange, busy = outage
    for seed in range(20):
        random.seed(seed)
        api = ApiInTime(away=away, strange=strange, busy=busy)
        api.install(monkeypatch)
        yield api


@each_outage
@pytest.mark.parametrize("is_new", [False, True], ids=["old", "new"])
async def test_a_node_is_heard_of_within_a_minute_and_asks_little(
    clock: MockClock,
    monkeypatch: pytest.MonkeyPatch,
    outage: tuple[float, float, float],
    is_new: bool,
) -> None:
    for api in with_other_chances(monkeypatch, outage):
        assert await live_through(api, is_new=is_new) <= BOUND


@pytest.mark.parametrize(
    "outage", [(3600.0, 59.0, 0.0), (3600.0, 40.0, 80.0), (60.0, 0.0, 120.0)], ids=str
)
@pytest.mark.parametrize("is_new", [False, True], ids=["old", "new"])
async def test_once_it_was_answered_a_node_does_not_wait_as_for_a_server_that_is_away(
    clock: MockClock,
    monkeypatch: pytest.MonkeyPatch,
    outage: tuple[float, float, float],
    is_new: bool,
) -> None:
    """It gets ready for as long as the longest wait, so both sink and watch are refused."""
    for api in with_other_chances(monkeypatch, outage):
        assert await live_through(api, is_new=is_new) <= SOON.ceiling
        assert api.watches[-1] - api.ready <= SOON.ceiling


@each_outage
async def test_a_slice_that_is_lost_meanwhile_costs_no_further_minute(
    clock: MockClock, monkeypatch: pytest.MonkeyPatch, outage: tuple[float, float, float]
) -> None:
    for api in with_other_chances(monkeypatch, outage):
        assert await live_through(api, loses_slice=True) <= BOUND + RACE.ceiling
