"""A list that is under way while slices are written."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trio

from liken_events.cluster import SliceView
from liken_events.cluster.kubernetes import KubernetesCluster
from liken_events.core.model.device import Inventory, PublishedDevice
from liken_events.core.model.snapshot import Key
from liken_events.sinks.slices import SliceSink, plan_slices
from tests.cluster.following import is_list, is_watch, lists, until_devices, watches
from tests.fakes.apifaults import Hold, Late
from tests.fakes.apiserver import ApiServer
from tests.fakes.slices import NAME, NODE, device_names, slice_body
from tests.fakes.waiting import until


def offer(*names: str) -> Inventory:
    return Inventory(
        offered=tuple(
            PublishedDevice(name=name, key=Key(bus="usb", address=name), nodes=())
            for name in names
        )
    )


class Races:
    """A sink and what it sees.

    Attributes:
        view: what the watch told.
    """

    def __init__(self, api: ApiServer, cluster: KubernetesCluster) -> None:
        self.view = SliceView()
        self._api = api
        self._sink = SliceSink(cluster, self.view, NODE)

    async def reach(self, *names: str) -> None:
        """Has these devices published. Raises SinkUnavailable for a conflict."""
        for change in plan_slices(await self._sink.observe(), offer(*names)):
            await self._sink.apply(change)

    @asynccontextmanager
    async def listing(self) -> AsyncIterator[None]:
        """What is written within comes after a list was read, and before it is answered. No watch
        tells of it until `heal` is called."""
        await until(lambda: self._api.open_watches)
        late, quiet = Late(), Hold()
        self._api.fail(late, on=is_list)
        self._api.fail(quiet, on=is_watch)
        self.view.doubt()
        await until(lambda: late.done.is_set() and not self._api.open_watches)
        yield
        number = self.view.latest.number
        late.released.set()
        with trio.fail_after(10):
            await self.view.latest.wait_newer(number)
        self._quiet = quiet

    def heal(self) -> None:
        """Lets the watch tell."""
        self._quiet.released.set()


@pytest.fixture
async def races(api: ApiServer, cluster: KubernetesCluster) -> AsyncIterator[Races]:
    made = Races(api, cluster)
    api.state.add_node(NODE)
    async with trio.open_nursery() as nursery:
        await nursery.start(
            lambda task_status: cluster.watch_slices(NODE, made.view, task_status=task_status)
        )
        yield made
        nursery.cancel_scope.cancel()


def refused(api: ApiServer) -> int:
    """Writes beyond those that made a version of the slice."""
    writes = api.count(lambda request: request.method in ("POST", "PATCH"))
    return writes - int(api.state.slice(NAME)["metadata"]["generation"])


async def test_what_is_written_while_a_list_is_read_is_not_undone_by_it(
    api: ApiServer, races: Races
) -> None:
    await races.reach("a")
    async with races.listing():
        await races.reach("a", "b")
    await until_devices(races.view, ["a", "b"])
    await races.reach("a", "b", "c")
    assert device_names(api.state.slice(NAME)) == ["a", "b", "c"]
    races.heal()
    await until(lambda: api.open_watches)
    await races.reach("a", "b", "c", "d")
    assert (refused(api), lists(api)) == (0, 2)


async def test_a_slice_that_is_made_while_a_list_is_read_is_known(
    api: ApiServer, races: Races
) -> None:
    async with races.listing():
        await races.reach("a")
    await races.reach("a", "b")
    assert device_names(api.state.slice(NAME)) == ["a", "b"]
    assert (refused(api), lists(api)) == (0, 2)


async def test_a_slice_that_is_deleted_while_a_list_is_read_stays_deleted(
    api: ApiServer, races: Races
) -> None:
    await races.reach("a")
    async with races.listing():
        await races.reach()
    assert races.view.latest.get() == ()
    await races.reach("b")
    races.heal()
    await until(lambda: api.open_watches)
    await until_devices(races.view, ["b"])
    assert (refused(api), lists(api)) == (1, 2), "generations of an object count from 1 again"


async def test_what_another_server_took_while_a_list_was_read_is_looked_at_again(
    api: ApiServer, races: Races
) -> None:
    """It was restored from a backup behind its address: it counts from an older version on and
    knows nothing of the write. Nothing of ours is written afterwards that could find it out."""
    api.state.create(slice_body("old"))
    await until_devices(races.view, ["old"])
    taken = slice_body("new")
    taken["metadata"] = {**api.state.slice(NAME)["metadata"], "resourceVersion": "1000"}
    async with races.listing():
        races.view.put(taken)
    await until_devices(races.view, ["new"])
    races.heal()
    await until(lambda: api.open_watches)
    api.send_bookmark()
    await until_devices(races.view, ["old"])
    await until(lambda: len(watches(api)) == 3 and api.open_watches == 1)
    api.send_bookmark()
    api.state.create(slice_body("more", name="n1-liken.sh-1"))
    await until_devices(races.view, ["old"], ["more"])
    assert lists(api) == 3


async def test_what_was_written_to_a_server_that_lost_its_state_is_not_kept(
    api: ApiServer, races: Races
) -> None:
    api.state.advance(1000)
    await races.reach("a")
    await until(lambda: api.open_watches)
    api.stop()
    api.lose_state()
    api.start()
    await until_devices(races.view)
    await races.reach("b")
    assert device_names(api.state.slice(NAME)) == ["b"]
