import pytest
import trio
from trio.testing import MockClock

from liken_events.cluster import ClusterError, Conflict, Forbidden, Unavailable, Unreachable
from liken_events.cluster.comeback import YOUNG_SECONDS, Comeback

REFUSED = Forbidden("no")


def wait_for(comeback: Comeback) -> float | None:
    judged = comeback.judged(REFUSED)
    assert isinstance(judged, Forbidden)
    assert judged.reason == "no"
    return judged.retry_after


async def test_a_refusal_passes_while_a_server_has_just_come_back(clock: MockClock) -> None:
    comeback = Comeback()
    comeback.answered()
    assert wait_for(comeback) == 0.0
    await trio.sleep(YOUNG_SECONDS - 1)
    comeback.answered()
    assert wait_for(comeback) == 0.0
    await trio.sleep(1)
    assert wait_for(comeback) is None
    comeback.lost()
    await trio.sleep(3600)
    comeback.answered()
    assert wait_for(comeback) == 0.0


async def test_the_time_counts_from_the_first_answer_and_not_from_the_loss(
    clock: MockClock,
) -> None:
    comeback = Comeback()
    comeback.answered()
    await trio.sleep(YOUNG_SECONDS)
    comeback.judged(Unreachable("gone"))
    assert wait_for(comeback) is None, "nobody answered yet"
    await trio.sleep(YOUNG_SECONDS)
    comeback.answered()
    assert wait_for(comeback) == 0.0


@pytest.mark.parametrize(
    "error",
    [
        Forbidden("no", retry_after=7.0),
        Unavailable("etcd is away"),
        Conflict("it was changed"),
        Unreachable("gone"),
    ],
)
async def test_anything_else_means_what_it_says(clock: MockClock, error: ClusterError) -> None:
    comeback = Comeback()
    comeback.answered()
    assert comeback.judged(error) is error
