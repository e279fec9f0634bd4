"""What answers the kubelet: each server turns one of its calls into a question to the agent."""

from typing import Protocol

from liken_events.core.model.claims import ClaimReference, Granted, Refused


class Claims(Protocol):
    """What the servers ask of the keeper of claims. Calls for one claim run one after the other,
    for different claims at the same time."""

    async def prepare(self, reference: ClaimReference) -> tuple[Granted, ...] | Refused:
        """Makes a claim's devices ready for a container, and says which they are. The same when
        asked again."""
        ...

    async def unprepare(self, reference: ClaimReference) -> Refused | None:
        """Ends a claim; one that is not known is done already."""
        ...
