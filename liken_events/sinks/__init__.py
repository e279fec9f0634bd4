"""What changes the world: each sink sees what is there, and carries out one change at a time."""

from typing import Protocol, TypeVar

ObservedT = TypeVar("ObservedT", covariant=True)
ChangeT = TypeVar("ChangeT", contravariant=True)


class SinkUnavailable(Exception):
    """The other side cannot be reached, refuses for now, or has moved on.

    Attributes:
        reason: one sentence for a person.
        retry_after: seconds that the other side asked to wait, or None.
        at_once: looking again will help, and waiting will not: somebody else was quicker.
    """

    def __init__(
        self, reason: str, *, retry_after: float | None = None, at_once: bool = False
    ) -> None:
        super().__init__(reason)
        self.reason = reason
        self.retry_after = retry_after
        self.at_once = at_once


class Sink(Protocol[ObservedT, ChangeT]):
    """One thing that follows the inventory."""

    @property
    def name(self) -> str:
        """For logs: `slices`."""
        ...

    @property
    def number(self) -> int:
        """Grows whenever what is there was seen to change."""
        ...

    async def wait_changed(self, number: int) -> None:
        """Returns once there is something to look at again: `number` is no longer the given one,
        because somebody else changed what is there, or something could not be told before."""
        ...

    async def observe(self) -> ObservedT:
        """What is there now. Raises SinkUnavailable."""
        ...

    async def apply(self, change: ChangeT) -> None:
        """Carries out one change; safe to repeat. Raises SinkUnavailable."""
        ...
