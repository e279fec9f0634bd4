"""The comparison of specs with whose each node was says what is wrong, and nothing else."""

from typing import Any

import pytest

from tests.vm.soak.ownership import LATE_SECONDS, Ownership, address

DEVICE = "usb-1-1-1-0"
PATH, NUMBERS = "/dev/ttyUSB0", (188, 0)
KNOWN: list[dict[str, Any]] = [{"path": PATH, "type": "c", "major": 188, "minor": 0}]
UNKNOWN: list[dict[str, Any]] = [{"path": PATH}]


@pytest.fixture
def ownership() -> Ownership:
    """A device had its node from 1 on, which is in its spec, and another one has it from 10 on."""
    found = Ownership()
    found.came(PATH, NUMBERS, "1-1", 1.0)
    found.wrote("u", DEVICE, KNOWN, 2.0)
    assert found.judge(5.0) == []
    found.went(PATH, 9.0)
    found.came(PATH, NUMBERS, "1-2", 10.0)
    return found


def test_a_spec_that_is_put_right_in_time_is_right(ownership: Ownership) -> None:
    ownership.wrote("u", DEVICE, [{"path": "/dev/liken.sh/away"}], 10.0 + LATE_SECONDS / 2)
    assert ownership.judge(20.0) == []
    assert ownership.worst == pytest.approx(LATE_SECONDS / 2)


def test_a_spec_that_is_put_right_too_late_is_wrong(ownership: Ownership) -> None:
    ownership.removed("u", 10.1 + LATE_SECONDS)
    (sentence,) = ownership.judge(20.0)
    assert "is 1-2's since 10.000" in sentence
    assert ownership.judge(30.0) == []  # what was judged is over


def test_a_spec_that_is_never_put_right_is_wrong(ownership: Ownership) -> None:
    assert len(ownership.judge(20.0)) == 1


def test_a_path_without_numbers_is_another_devices_too(ownership: Ownership) -> None:
    ownership.wrote("u", DEVICE, UNKNOWN, 9.5)
    assert len(ownership.judge(20.0)) == 1


def test_nobody_puts_a_spec_right_while_no_agent_is_at_work(ownership: Ownership) -> None:
    ownership.down.append((8.0, 15.0))
    ownership.wrote("u", DEVICE, [], 15.0 + LATE_SECONDS / 2)
    assert ownership.judge(20.0) == []


def test_numbers_that_the_device_never_had_are_wrong() -> None:
    ownership = Ownership()
    ownership.came(PATH, NUMBERS, "1-1", 1.0)
    ownership.wrote("u", DEVICE, [{**KNOWN[0], "minor": 1}], 2.0)
    (sentence,) = ownership.judge(3.0)
    assert "was never 1-1's" in sentence


def test_the_address_of_a_published_device() -> None:
    assert address("usb-3-12-1-0") == "3-12"
