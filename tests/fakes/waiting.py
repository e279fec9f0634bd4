"""Waiting for something that happens in another thread or process, with a bound."""

from collections.abc import Callable

import trio


async def until(condition: Callable[[], object], *, seconds: float = 10.0) -> None:
    """Returns once the condition holds.

    Raises:
        trio.TooSlowError: it did not within `seconds`.
    """
    with trio.fail_after(seconds):
        while not condition():  # noqa: ASYNC110  # it is another thread's or process's
            await trio.sleep(0.005)
