import pytest
import trio
from structlog.typing import EventDict
from trio.testing import MockClock

from liken_events.cluster import ClusterError, Conflict, Rejected, Unavailable
from liken_events.sinks import SinkUnavailable
from liken_events.sinks.slices import UID_RETRY
from tests.fakes.slice_sink import (
    NAME,
    NODE,
    OTHER,
    STICK,
    STICK_NAME,
    Bench,
    bench,
    converging,
    of,
)


def owners(b: Bench) -> list[str]:
    """The uids of the nodes that own the slice."""
    metadata = b.cluster.slices[NAME]["metadata"]
    return [owner["uid"] for owner in metadata.get("ownerReferences", [])]


async def test_a_conflict_makes_the_view_doubtful_and_asks_for_the_uid_again(
    clock: MockClock,
) -> None:
    async with bench() as b:
        await b.reach(of(STICK))
        assert b.cluster.uid_asked == 1
        b.cluster.faults = [Conflict("it was deleted")]
        del b.cluster.slices[NAME]  # with its Node, and the watch did not tell
        b.cluster.uid = "new-uid"
        with pytest.raises(SinkUnavailable):
            await b.reach(of(STICK, OTHER))
        await trio.sleep(0.1)
        await b.reach(of(STICK, OTHER))
        assert b.cluster.uid_asked == 2
        (owner,) = b.cluster.slices[NAME]["metadata"]["ownerReferences"]
        assert owner["uid"] == "new-uid"


async def test_a_slice_that_is_gone_is_made_with_the_uid_that_the_node_has_now(
    clock: MockClock,
) -> None:
    async with bench() as b:
        await b.reach(of(STICK))
        b.cluster.uid = "new-uid"
        b.view.drop(NAME)  # the garbage collector had it deleted, and the watch told
        del b.cluster.slices[NAME]
        await b.reach(of(STICK))
        assert b.cluster.uid_asked == 2
        (owner,) = b.cluster.slices[NAME]["metadata"]["ownerReferences"]
        assert owner["uid"] == "new-uid"


async def test_the_node_owns_its_slice(clock: MockClock) -> None:
    async with bench() as b:
        await b.reach(of(STICK))
        assert b.cluster.slices[NAME]["metadata"]["ownerReferences"] == [
            {"apiVersion": "v1", "kind": "Node", "name": NODE, "uid": "node-uid"}
        ]


async def test_without_the_right_to_read_the_node_the_slice_is_there_and_owned_later(
    clock: MockClock, logs: list[EventDict]
) -> None:
    """Nothing changes meanwhile."""
    async with bench() as b:
        b.cluster.uid = Unavailable("forbidden: get nodes")
        async with converging(b, STICK):
            await trio.sleep(1)
            assert (set(b.stored), owners(b)) == ({STICK_NAME}, [])
            await trio.sleep(24 * 3600)
            assert b.cluster.uid_asked <= 2 * 24 * 3600 / UID_RETRY.ceiling + 10
            b.cluster.uid, asked = "node-uid", b.cluster.uid_asked
            await trio.sleep(UID_RETRY.ceiling)
            assert (owners(b), b.cluster.uid_asked) == (["node-uid"], asked + 1)
            await trio.sleep(24 * 3600)
        assert b.cluster.uid_asked == asked + 1, "what is known is not asked for"
        assert len(b.cluster.writes) == 2
        assert [line["reason"] for line in logs if line["event"] == "slice.no_owner"] == [
            "forbidden: get nodes"
        ]


@pytest.mark.parametrize("trouble", [Rejected("bad request"), Conflict("modified")])
async def test_whatever_is_answered_about_the_node_the_slice_is_there(
    clock: MockClock, logs: list[EventDict], trouble: ClusterError
) -> None:
    async with bench() as b:
        b.cluster.uid = trouble
        async with converging(b, STICK):
            await trio.sleep(1)
            assert (set(b.stored), owners(b), b.cluster.uid_asked) == ({STICK_NAME}, [], 1)
            b.cluster.uid = "node-uid"
            await trio.sleep(UID_RETRY.base)
            assert owners(b) == ["node-uid"]
        assert [line["reason"] for line in logs if line["event"] == "slice.no_owner"] == [
            trouble.reason
        ]


async def test_a_node_that_is_made_after_its_slice_owns_it_soon(clock: MockClock) -> None:
    async with bench() as b:
        b.cluster.uid = None
        async with converging(b, STICK):
            await trio.sleep(1)
            assert owners(b) == []
            b.cluster.uid = "node-uid"
            await trio.sleep(UID_RETRY.base)
            assert owners(b) == ["node-uid"]


async def test_a_server_that_asks_for_patience_is_asked_for_the_node_no_sooner(
    clock: MockClock,
) -> None:
    async with bench() as b:
        b.cluster.uid = Unavailable("too many requests", retry_after=100.0)
        async with converging(b, STICK):
            await trio.sleep(99)
            assert b.cluster.uid_asked == 1
            await trio.sleep(1 + UID_RETRY.base)
            assert b.cluster.uid_asked == 2


async def test_without_a_slice_or_without_nodes_nobody_asks_for_an_owner(
    clock: MockClock,
) -> None:
    async with bench() as b:
        b.cluster.uid = None
        async with converging(b):
            await trio.sleep(24 * 3600)
        assert b.cluster.uid_asked == 1
    async with bench() as b:
        b.cluster.has_nodes = False
        async with converging(b, STICK):
            await trio.sleep(24 * 3600)
        assert (set(b.stored), owners(b), b.cluster.uid_asked) == ({STICK_NAME}, [], 0)
