import pytest
from hypothesis import given
from hypothesis import strategies as st

from liken_events.core.backlog import LONGEST, Backlog


def behind(backlog: Backlog, now: float = 0.0) -> list[str]:
    return sorted(backlog.paths(now))


def test_a_path_is_behind_until_udevd_has_told_of_its_last_event() -> None:
    backlog = Backlog()
    backlog.heard("/a", 1, 0.0)
    backlog.heard("/b", 2, 0.0)
    backlog.heard("/a", 3, 0.0)
    backlog.told("/a", 1, 0.5)
    assert behind(backlog) == ["/a", "/b"]
    backlog.told("/a", 3, 0.5)
    assert behind(backlog) == ["/b"]
    backlog.told("/b", 2, 0.5)
    assert behind(backlog) == []


def test_udevd_may_be_heard_before_the_kernel() -> None:
    backlog = Backlog()
    backlog.told("/a", 2, 0.0)
    backlog.heard("/a", 1, 0.0)
    backlog.heard("/a", 2, 0.0)
    assert behind(backlog) == []
    backlog.heard("/a", 3, 0.0)
    assert behind(backlog) == ["/a"]


def test_what_udevd_never_tells_of_is_forgotten() -> None:
    backlog = Backlog()
    backlog.heard("/a", 1, 0.0)
    backlog.heard("/b", 2, 1.0)
    backlog.heard("/a", 3, 5.0)
    assert behind(backlog, LONGEST) == ["/a", "/b"]
    assert behind(backlog, LONGEST + 0.5) == ["/b"]
    assert behind(backlog, LONGEST + 1.5) == []


def test_after_a_loss_nobody_is_behind() -> None:
    backlog = Backlog()
    backlog.heard("/a", 1, 0.0)
    backlog.told("/b", 2, 0.0)
    backlog.forget()
    assert behind(backlog) == []
    backlog.heard("/b", 2, 0.0)
    assert behind(backlog) == ["/b"]


def test_memory_is_bounded_by_time_if_only_one_of_the_two_is_heard() -> None:
    backlog = Backlog()
    for number in range(10_000):
        backlog.told(f"/{number}", number, float(number))
        backlog.heard(f"/{number}/x", number, float(number))
        assert len(behind(backlog, float(number))) <= LONGEST + 1
    for number in range(10_000):
        backlog.heard(f"/{number}", number, 10_000.0)
    assert len(behind(backlog, 10_000.0)) >= 10_000 - LONGEST - 1


paths = st.lists(st.sampled_from(["/a", "/b"]), min_size=1, max_size=8)


@given(paths.flatmap(lambda found: st.tuples(st.just(found), st.permutations("kd" * len(found)))))
def test_however_the_two_are_mixed_the_end_is_that_nobody_is_behind(
    story: tuple[list[str], list[str]],
) -> None:
    paths, order = story
    backlog = Backlog()
    tell = {"k": backlog.heard, "d": backlog.told}
    events = {who: iter(enumerate(paths)) for who in tell}
    for who in order:
        number, path = next(events[who])
        tell[who](path, number, 0.0)
    assert behind(backlog) == []


@pytest.mark.parametrize("numbers", [(5, 4), (4, 4)])
def test_a_number_that_does_not_grow_harms_nothing(numbers: tuple[int, int]) -> None:
    backlog = Backlog()
    for number in numbers:
        backlog.heard("/a", number, 0.0)
    backlog.told("/a", max(numbers), 0.0)
    assert behind(backlog) == []
