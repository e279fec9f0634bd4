"""A keeper of claims that answers as told, and remembers what it was asked."""

import errno
import os
from collections import Counter

import trio

from liken_events.core.model.claims import ClaimReference, Granted, Refused


class Keeper:
    """Answers for a claim as its name asks for: `refused`, `full` (the disk), `broken` (a bug),
    `slow-…` (until released); any other has one device of its own.

    Attributes:
        prepared, unprepared: how often each uid was asked for.
        running: uids that are worked on now.
        cancelled: uids whose work was cancelled.
        released: lets the slow ones go.
    """

    def __init__(self) -> None:
        self.prepared: Counter[str] = Counter()
        self.unprepared: Counter[str] = Counter()
        self.running: set[str] = set()
        self.cancelled: list[str] = []
        self.released = trio.Event()

    async def prepare(self, reference: ClaimReference) -> tuple[Granted, ...] | Refused:
        self.prepared[reference.uid] += 1
        refused = await self._work(reference)
        return refused or (granted(reference),)

    async def unprepare(self, reference: ClaimReference) -> Refused | None:
        self.unprepared[reference.uid] += 1
        return await self._work(reference)

    async def _work(self, reference: ClaimReference) -> Refused | None:
        self.running.add(reference.uid)
        try:
            match reference.name.split("-")[0]:
                case "slow":
                    await self.released.wait()
                case "refused":
                    return Refused(reason=f"{reference} is not for us")
                case "full":
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
                case "broken":
                    raise KeyError(reference.name)
        except trio.Cancelled:
            self.cancelled.append(reference.uid)
            raise
        finally:
            self.running.discard(reference.uid)
        return None


def granted(reference: ClaimReference) -> Granted:
    """What a claim is granted; one that is called `shared` has a share."""
    device = f"usb-{reference.uid}"
    return Granted(
        request="camera",
        pool="node-1",
        device=device,
        cdi_id=f"liken.sh/device={reference.uid}-{device}",
        share_id=f"share-{reference.uid}" if reference.name == "shared" else None,
    )
