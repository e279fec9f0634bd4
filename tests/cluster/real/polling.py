"""Waiting, with a bound, for something that happens in another process."""

import time
from collections.abc import Callable
from typing import TypeVar

POLL_SECONDS = 0.02

T = TypeVar("T")


def poll(condition: Callable[[], T], seconds: float) -> T:
    """Asks again and again until the answer is true, but not for longer than `seconds`.

    Returns:
        The last answer, which is false if the time was over.
    """
    deadline = time.monotonic() + seconds
    while not (answer := condition()) and time.monotonic() < deadline:
        time.sleep(POLL_SECONDS)
    return answer
