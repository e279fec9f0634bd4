import pytest
from hypothesis import given
from hypothesis import strategies as st

from liken_events.core.backoff import Backoff

seconds = st.floats(min_value=0.001, max_value=10_000)
chances = st.floats(min_value=0, max_value=1)
attempts = st.integers(min_value=-1, max_value=10**9)


@st.composite
def backoffs(draw: st.DrawFn) -> Backoff:
    base = draw(seconds)
    return Backoff(
        base=base,
        ceiling=base + draw(seconds),
        factor=draw(st.floats(min_value=1, max_value=1000)),
    )


@pytest.mark.parametrize(
    ("attempt", "chance", "expected"),
    [(1, 1.0, 1.0), (1, 0.0, 0.5), (2, 1.0, 2.0), (3, 0.0, 2.0), (5, 1.0, 10.0), (99, 0.0, 5.0)],
)
def test_the_wait_doubles_up_to_the_ceiling_and_half_of_it_is_chance(
    attempt: int, chance: float, expected: float
) -> None:
    assert Backoff(base=1, ceiling=10).delay(attempt, chance) == expected


@given(backoffs(), attempts, chances)
def test_a_wait_is_never_longer_than_the_ceiling_nor_shorter_than_half_the_base(
    backoff: Backoff, attempt: int, chance: float
) -> None:
    assert backoff.base / 2 <= backoff.delay(attempt, chance) <= backoff.ceiling


@given(backoffs(), attempts, st.integers(min_value=0, max_value=10**6), chances)
def test_more_failures_never_mean_a_shorter_wait(
    backoff: Backoff, attempt: int, more: int, chance: float
) -> None:
    assert backoff.delay(attempt, chance) <= backoff.delay(attempt + more, chance)


@given(backoffs(), attempts, chances, st.floats(min_value=0, max_value=1e6))
def test_a_wait_is_at_least_what_was_asked_for(
    backoff: Backoff, attempt: int, chance: float, asked: float
) -> None:
    delay = backoff.delay(attempt, chance, asked)
    assert asked <= delay
    assert delay >= backoff.delay(attempt, chance)
    assert delay <= max(asked, backoff.ceiling / 2) + backoff.ceiling / 2


@given(backoffs(), attempts, st.none() | st.floats(min_value=0, max_value=1000))
def test_chance_spreads_the_waits_also_when_all_were_told_the_same(
    backoff: Backoff, attempt: int, asked: float | None
) -> None:
    assert backoff.delay(attempt, 0.0, asked) < backoff.delay(attempt, 1.0, asked)
