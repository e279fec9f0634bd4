"""A value that readers follow.

A sink that waits for a dead API server must not make others wait, and must not find a queue of old
wishes when the server is back. So there is no queue: the newest value replaces the one before it,
and a slow reader skips to it.

This file holds that cell. What the values mean is left to those who share one.
"""

from typing import Generic, TypeVar

import trio

T = TypeVar("T")


class Latest(Generic[T]):
    """The newest value of something, and a way to wait for a newer one.

    Every value has a number, counted from 1; number 0 means that nothing was set yet. All methods
    run on the trio thread.
    """

    def __init__(self) -> None:
        self._value: T | None = None
        self._number = 0
        self._closed = False
        self._newer = trio.Event()

    @property
    def number(self) -> int:
        """The number of the newest value; 0 before the first."""
        return self._number

    @property
    def closed(self) -> bool:
        """Whether no newer value will come."""
        return self._closed

    def close(self) -> None:
        """Says that no newer value will come, and wakes all who wait for one."""
        self._closed = True
        self._newer.set()

    def set(self, value: T) -> None:
        """Makes `value` the newest one and wakes all who wait."""
        self._value = value
        self._number += 1
        self._newer.set()
        self._newer = trio.Event()

    def get(self) -> T:
        """The newest value.

        Raises:
            LookupError: nothing was set yet.
        """
        if self._number == 0:
            raise LookupError("no value was set yet")
        return self._value  # type: ignore[return-value]  # T itself may include None

    async def wait_newer(self, number: int) -> int:
        """Waits until the newest value has another number than `number`, or none will come any
        more.

        Returns the number of the newest value.
        """
        while self._number == number and not self._closed:
            await self._newer.wait()
        return self._number

    async def wait_closed(self) -> None:
        """Waits until no newer value will come."""
        while not self._closed:
            await self._newer.wait()
