from collections.abc import Iterable
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from liken_events.core.timing import MOST_STRAIN, Burst, Settling, Timing

TIMES = Timing(quiet=1.0, ceiling=4.0, longest=16.0, probing_usb=6.0, probing_pci=20.0)
"""Round numbers, which floating point adds without an error."""


def settling(timing: Timing = TIMES) -> Settling[str]:
    return Settling(timing)


def looks(waiting: Settling[str], until: float) -> list[tuple[float, str]]:
    """Looks at each device exactly when it is due."""
    found = []
    while (due := waiting.deadline()) is not None and due <= until:
        found += [(due, key) for key in waiting.take_due(due)]
    return found


def test_the_quiet_time_covers_every_gap_that_was_seen() -> None:
    assert Timing().quiet > 0.197
    assert Timing() == Timing(
        quiet=0.25, ceiling=2.0, longest=10.0, probing_usb=2.0, probing_pci=8.0
    )


def test_a_device_is_looked_at_once_it_is_quiet() -> None:
    waiting = settling()
    waiting.note("a", 10.0, "add child")
    waiting.note("a", 10.5, "change child")
    assert waiting.deadline() == 11.5
    assert waiting.take_due(11.25) == {}
    assert waiting.take_due(11.5) == {
        "a": Burst(first=10.0, last=10.5, heard=10.5, text="add child")
    }
    assert waiting.take_due(99.0) == {}
    assert waiting.deadline() is None


def test_a_look_that_is_put_off_is_due_after_a_quiet_time_and_tells_when_the_event_came() -> None:
    waiting = settling()
    waiting.note("a", 10.0, "change a")
    [burst] = waiting.take_due(11.0).values()
    waiting.put_off("a", 11.0, burst)
    assert waiting.deadline() == 12.0
    waiting.put_off("a", 11.5, burst)
    assert waiting.take_due(12.5) == {
        "a": Burst(first=11.0, last=11.5, heard=10.0, text="change a")
    }


def test_a_device_that_is_not_quiet_is_looked_at_at_the_ceiling() -> None:
    waiting = settling()
    for now in (0.0, 0.75, 1.5, 2.25, 3.0, 3.75):
        waiting.note("a", now, "change")
    assert looks(waiting, 99.0) == [(4.0, "a")]


def storm(waiting: Settling[str], start: float, end: float, step: float) -> list[float]:
    """Events of one device every `step` seconds; when it is looked at meanwhile."""
    found, now = [], start
    while now < end:
        found += [at for at, _ in looks(waiting, now)]
        waiting.note("a", now, "change")
        now += step
    return found


def test_a_storm_is_looked_at_less_and_less_often_down_to_a_bound() -> None:
    waiting = settling()
    at = storm(waiting, 0.0, 100.0, 0.5)
    assert at == [4.0, 12.0, 28.0, 44.0, 60.0, 76.0, 92.0]


def test_a_storm_that_ended_is_forgotten() -> None:
    waiting = settling()
    storm(waiting, 0.0, 40.0, 0.5)
    quiet = looks(waiting, 99.0)
    assert quiet == [(40.5, "a")]
    assert storm(waiting, 100.0, 110.0, 0.5) == [104.0]


def test_a_device_that_was_looked_at_for_another_reason_is_strained_no_longer() -> None:
    waiting = settling()
    storm(waiting, 0.0, 40.0, 0.5)
    assert waiting.take("a") is not None
    assert storm(waiting, 40.0, 45.0, 0.5) == [44.0]


def test_a_broken_card_reader_is_looked_at_once_in_ten_seconds() -> None:
    waiting = settling(Timing())
    at = storm(waiting, 0.0, 600.0, 1 / 32)
    assert len(at) <= 600 / 10 + 3
    gaps = [later - earlier for earlier, later in zip([0.0, *at], at, strict=False)]
    assert max(gaps) <= 10 + 1 / 32
    assert at[0] == 2.0


def test_a_storm_never_delays_another_device() -> None:
    waiting = settling()
    for step in range(8):
        waiting.note("noisy", step * 0.5, "change")
        if step == 3:
            waiting.note("a", step * 0.5, "bind")
    assert looks(waiting, 4.0) == [(2.5, "a"), (4.0, "noisy")]


def test_a_device_that_was_added_waits_for_the_end_of_its_probe() -> None:
    waiting = settling()
    waiting.note("a", 0.0, "add child")
    waiting.note_added("a", 0.5, "add a", path="a", probing=6.0)
    waiting.note("a", 5.5, "add child")
    assert waiting.deadline() == 6.5
    assert waiting.take_due(6.5) == {
        "a": Burst(
            first=0.5, last=5.5, heard=5.5, awaited=frozenset({"a"}), probing=6.0, text="add a"
        )
    }


def test_after_the_probe_the_last_children_may_come() -> None:
    waiting = settling()
    waiting.note_added("a", 0.0, "add a", path="a", probing=6.0)
    waiting.note_bound("a", 2.0, "bind a")
    assert waiting.deadline() == 3.0
    for now in (2.5, 3.25, 4.0, 4.75, 5.5):
        waiting.note("a", now, "add child")
    assert waiting.take_due(5.75) == {}
    assert waiting.take_due(6.0) == {"a": Burst(first=2.0, last=5.5, heard=5.5, text="bind a")}


def test_all_parts_that_were_added_are_waited_for() -> None:
    waiting = settling()
    waiting.note_added("a", 0.0, "add a", path="a", probing=2.0)
    waiting.note_bound("a", 0.5, "bind a", path="a")
    waiting.note_added("a", 1.0, "add a1", path="a1", probing=6.0)
    waiting.note_added("a", 1.5, "add a2", path="a2", probing=6.0)
    waiting.note_bound("a", 4.0, "bind a2", path="a2")
    assert (waiting.awaits("a", "a1"), waiting.awaits("a", "a2")) == (True, False)
    assert waiting.deadline() == 7.0
    waiting.note_bound("a", 5.5, "bind a1", path="a1")
    assert looks(waiting, 99.0) == [(6.5, "a")]
    assert not waiting.awaits("a", "a1")


def test_a_bind_of_what_nobody_waits_for_ends_no_probe() -> None:
    waiting = settling()
    waiting.note_added("a", 0.0, "add a", path="a", probing=6.0)
    waiting.note_bound("a", 1.0, "bind b", path="b")
    assert looks(waiting, 99.0) == [(6.0, "a")]


def test_what_was_here_before_is_waited_for_no_more() -> None:
    waiting = settling()
    waiting.note_added("a", 0.0, "add a", path="a", probing=6.0)
    waiting.note_bound("a", 1.0, "remove a")
    assert looks(waiting, 99.0) == [(2.0, "a")]


def test_being_bound_again_and_again_does_not_put_the_look_off() -> None:
    waiting = settling()
    for now in (0.0, 0.75, 1.5, 2.25, 3.0, 3.75, 4.5):
        waiting.note_bound("a", now, f"bind {now}")
    assert waiting.take_due(4.0) == {"a": Burst(first=0.0, last=4.5, heard=4.5, text="bind 4.5")}


def test_being_added_again_and_again_does_not_put_the_look_off() -> None:
    waiting = settling()
    for now in (0.0, 2.0, 4.0):
        waiting.note_added("a", now, f"add {now}", path="a", probing=6.0)
    assert waiting.take_due(6.0) == {
        "a": Burst(
            first=0.0, last=4.0, heard=4.0, awaited=frozenset({"a"}), probing=6.0, text="add 4.0"
        )
    }


def test_a_device_that_is_added_in_a_storm_is_looked_at_after_its_probe() -> None:
    waiting = settling()
    storm(waiting, 0.0, 40.0, 0.5)
    waiting.note_bound("a", 40.0, "unbind a")
    waiting.note_added("a", 40.0, "add a", path="a", probing=6.0)
    assert looks(waiting, 99.0) == [(46.0, "a")]


def test_a_look_that_ends_without_a_bind_makes_no_strain() -> None:
    waiting = settling()
    waiting.note_added("a", 0.0, "add a", path="a", probing=6.0)
    waiting.note("a", 5.75, "add child")
    assert looks(waiting, 6.0) == [(6.0, "a")]
    assert storm(waiting, 7.0, 12.0, 0.5) == [11.0]


def test_taking_a_device_ends_its_wait() -> None:
    waiting = settling()
    waiting.note("a", 0.0, "change")
    waiting.note("b", 0.5, "change")
    assert (len(waiting), set(waiting.keys())) == (2, {"a", "b"})
    assert waiting.take("a") == Burst(first=0.0, last=0.0, heard=0.0, text="change")
    assert waiting.take("a") is None
    assert ("a" in waiting, "b" in waiting, len(waiting)) == (False, True, 1)
    assert waiting.deadline() == 1.5


def test_a_late_report_of_an_earlier_event_makes_no_device_quiet() -> None:
    waiting = settling()
    waiting.note("a", 5.0, "change")
    waiting.note("a", 4.5, "change")
    assert waiting.deadline() == 6.0


def test_a_ceiling_above_the_longest_wait_stays_as_it_is() -> None:
    waiting = settling(Timing(quiet=1.0, ceiling=8.0, longest=2.0))
    assert storm(waiting, 0.0, 30.0, 0.5) == [8.0, 16.0, 24.0]


@pytest.mark.parametrize("strain", [MOST_STRAIN, 0])
def test_the_ceiling_is_bounded_however_long_a_storm_lasts(strain: int) -> None:
    burst = Burst(first=0.0, last=1e9, heard=1e9)
    assert burst.due(TIMES, strain) == (16.0 if strain else 4.0)


PROBING = {"a": 2.0, "b": 8.0}
"""A key is of one bus, and so has one time to wait for its driver."""


@dataclass
class Watch:
    """Settling as the loop uses it, with the laws that every look has to keep.

    Attributes:
        events: of each device that waits, when its events came and what they were.
    """

    timing: Timing
    waiting: Settling[str]
    now: float = 0.0
    events: dict[str, list[tuple[float, str]]] = field(default_factory=dict)

    def pass_until(self, now: float) -> None:
        while (due := self.waiting.deadline()) is not None and due <= now:
            self.now = max(self.now, due)
            assert set(self.waiting.keys()) == set(self.events)
            for key, burst in self.waiting.take_due(self.now).items():
                self.check(key, burst, self.events.pop(key))
            left = self.waiting.deadline()
            assert left is None or left > self.now
        self.now = now

    def check(self, key: str, burst: Burst, events: list[tuple[float, str]]) -> None:
        timing = self.timing
        longest = max(timing.longest, timing.ceiling)
        since, last = events[0][0], events[-1][0]
        assert burst.last == last
        waited, quiet = self.now - burst.first, self.now - last
        if burst.awaited:
            assert waited == PROBING[key]
        else:
            assert quiet == timing.quiet or (waited >= timing.ceiling and quiet < timing.quiet)
        added = sum(kind == "added" for _, kind in events)
        if added == 0:
            assert self.now - since <= longest
        if added == 1:
            assert self.now - since <= longest + PROBING[key] + longest

    def event(self, key: str, kind: str) -> None:
        match kind:
            case "note":
                self.waiting.note(key, self.now, "change")
            case "bound":
                self.waiting.note_bound(key, self.now, "bind", path=key)
            case _:
                self.waiting.note_added(key, self.now, "add", path=key, probing=PROBING[key])
        self.events.setdefault(key, []).append((self.now, kind))

    def take(self, key: str) -> None:
        assert (self.waiting.take(key) is None) == (key not in self.events)
        self.events.pop(key, None)


stories = st.lists(
    st.tuples(
        st.sampled_from([0, 1, 2, 3, 5, 8, 16, 64]),
        st.sampled_from("ab"),
        st.sampled_from(["note", "note", "note", "bound", "added", "take"]),
    ),
    max_size=60,
)
timings = st.builds(
    lambda quiet, ceiling, longest: Timing(
        quiet=quiet / 8, ceiling=ceiling / 8, longest=longest / 8
    ),
    st.integers(1, 8),
    st.integers(8, 32),
    st.integers(8, 128),
)


@settings(max_examples=200)
@given(timings, stories)
def test_no_look_is_early_or_late(timing: Timing, story: Iterable[tuple[int, str, str]]) -> None:
    waiting: Settling[str] = Settling(timing)
    watch = Watch(timing=timing, waiting=waiting)
    for eighths, key, kind in story:
        watch.pass_until(watch.now + eighths / 8)
        if kind == "take":
            watch.take(key)
        else:
            watch.event(key, kind)
    watch.pass_until(watch.now + 100.0)
    assert (len(waiting), watch.events) == (0, {})


@given(timings, st.sampled_from([1, 2, 4, 7]), st.integers(50, 300))
def test_a_device_that_is_never_quiet_is_looked_at_within_the_longest_wait(
    timing: Timing, eighths: int, count: int
) -> None:
    waiting: Settling[str] = Settling(timing)
    last, longest = 0.0, max(timing.longest, timing.ceiling)
    for step in range(count):
        now = step * eighths / 8
        for at, _ in looks(waiting, now):
            assert at - last <= longest + eighths / 8
            last = at
        waiting.note("a", now, "change")
        assert now - last <= longest + eighths / 8
