"""Reading a claim while its home has trouble."""

from typing import Any

import pytest
import trio
from trio.testing import MockClock

from liken_events.cluster import ClusterError, Rejected, Unavailable
from liken_events.core.model.claims import Claim, ClaimReference, Refused
from liken_events.sinks import claim_reader
from liken_events.sinks.claim_reader import READ_SECONDS, ClaimReader
from tests.fakes.claims import claim_body
from tests.fakes.cluster import FakeCluster

UID = "3f1c2a9e-7d5b-4f0a-9c1e-2b8d6a4e0f13"
REFERENCE = ClaimReference(namespace="default", name="c", uid=UID)
KEY = ("default", "c")


class Home(FakeCluster):
    """Answers with these first, one after the other, and notes when it was asked."""

    def __init__(self, *answers: ClusterError, then: Any = None) -> None:
        super().__init__()
        self.answers = [*answers]
        self.asked: list[float] = []
        self.claims[KEY] = claim_body("usb-1-9-1-0", uid=UID) if then is None else then

    async def read_claim(self, reference: ClaimReference) -> Any:
        self.asked.append(trio.current_time())
        if self.answers:
            raise self.answers.pop(0)
        return await super().read_claim(reference)


DOWN = Unavailable("connection refused")


async def test_a_claim_is_read_at_once(clock: MockClock) -> None:
    home = Home()
    began = trio.current_time()
    found = await ClaimReader(home).read(REFERENCE)
    assert isinstance(found, Claim)
    assert [item.device for item in found.allocated] == ["usb-1-9-1-0"]
    assert trio.current_time() == began
    assert home.claims_read == [REFERENCE]


async def test_trouble_that_passes_is_waited_out(clock: MockClock) -> None:
    home = Home(DOWN, Rejected("bad request"), DOWN)
    began = trio.current_time()
    assert isinstance(await ClaimReader(home).read(REFERENCE), Claim)
    assert len(home.asked) == 4
    assert 0.3 < trio.current_time() - began < 2.0


async def test_trouble_that_stays_is_told_in_time(clock: MockClock) -> None:
    home = Home(then=DOWN)
    began = trio.current_time()
    assert await ClaimReader(home).read(REFERENCE) == Refused(
        reason="the claim default/c could not be read: connection refused"
    )
    assert trio.current_time() - began == pytest.approx(READ_SECONDS)
    assert 6 <= len(home.asked) <= 20, "neither seldom nor all the time"


async def test_a_home_that_says_nothing_is_not_waited_for_longer(clock: MockClock) -> None:
    home = Home()
    home.claims_free = trio.Event()
    began = trio.current_time()
    assert await ClaimReader(home).read(REFERENCE) == Refused(
        reason="the claim default/c could not be read: nothing answered in time"
    )
    assert trio.current_time() - began == pytest.approx(READ_SECONDS)


async def test_a_home_that_asks_for_patience_gets_it(clock: MockClock) -> None:
    home = Home(Unavailable("too many requests", retry_after=7.0))
    assert isinstance(await ClaimReader(home).read(REFERENCE), Claim)
    assert home.asked[1] - home.asked[0] >= 7.0


async def test_a_home_that_asks_for_more_patience_than_there_is_is_given_up(
    clock: MockClock,
) -> None:
    home = Home(Unavailable("too many requests", retry_after=60.0))
    began = trio.current_time()
    assert isinstance(await ClaimReader(home).read(REFERENCE), Refused)
    assert trio.current_time() - began == pytest.approx(READ_SECONDS)
    assert len(home.asked) == 1


async def test_what_the_home_says_is_final(clock: MockClock) -> None:
    home = Home()
    del home.claims[KEY]
    found = await ClaimReader(home).read(REFERENCE)
    assert found == Refused(reason="the claim default/c does not exist any more")
    assert len(home.asked) == 1


@pytest.mark.parametrize(
    ("answer", "is_over"),
    [
        (claim_body(uid=UID), False),
        (claim_body(uid="another"), True),
        ({}, False),  # an object that is not understood ends nothing
        ({"metadata": {}}, False),
        ({"metadata": {"uid": 7}}, False),
        (DOWN, None),
        (Rejected("bad request"), None),
    ],
)
async def test_a_claim_is_over_when_its_home_says_so(answer: Any, is_over: bool | None) -> None:
    assert await ClaimReader(Home(then=answer)).is_over(REFERENCE) is is_over


async def test_a_claim_that_its_home_does_not_have_is_over() -> None:
    home = Home()
    del home.claims[KEY]
    assert await ClaimReader(home).is_over(REFERENCE) is True


def test_reading_leaves_the_kubelet_time_for_the_rest() -> None:
    assert claim_reader.READ_SECONDS < 45 / 2
