"""Claim files as the agent is told of them, and a keeper that follows them."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import trio
from structlog.typing import EventDict

from liken_events.cluster.claim_file import ClaimFile
from liken_events.core.model.claims import ClaimReference
from liken_events.core.model.device import Inventory
from liken_events.latest import Latest
from liken_events.sinks.claim_follower import ClaimFollower
from tests.fakes.keeping import Keeping


class Desk:
    """Claim files, and a keeper that follows them.

    Attributes:
        kept: the keeper.
        files: what is told of the files; nothing before the first `tell`.
        ready: what was published.
    """

    def __init__(self, kept: Keeping) -> None:
        self.kept = kept
        self.files: Latest[tuple[ClaimFile, ...]] = Latest()
        self.ready: Latest[Inventory] = Latest()
        self.follower = ClaimFollower(kept.keeper, self.files, self.ready)
        self._there: dict[tuple[str, str], ClaimFile] = {}

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Follows until the end of the block."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self.follower.run)
            yield
            nursery.cancel_scope.cancel()

    def put(self, *claims: ClaimReference) -> None:
        """Files appear, or are good again."""
        for item in claims:
            self._put(item, self.kept.body(item))
        self.tell()

    def drop(self, claim: ClaimReference) -> None:
        """A file is removed."""
        self.kept.delete(claim)
        del self._there[claim.namespace, claim.name]
        self.tell()

    def spoil(
        self, claim: ClaimReference, problem: str = "is empty", *, known: bool = True
    ) -> None:
        """A file cannot be understood; `known` if it was good before."""
        self._put(claim if known else ClaimReference(
            namespace=claim.namespace, name=claim.name, uid=""
        ), {}, problem)  # fmt: skip
        self.tell()

    def tell(self) -> None:
        """The files are looked at."""
        self.files.set(tuple(self._there.values()))

    def publish(self) -> None:
        """The loop finds the machine as it is, and it is published."""
        self.ready.set(self.kept.look())

    def logged(self, logs: list[EventDict], event: str) -> int:
        """How often an event was logged."""
        return sum(line["event"] == event for line in logs)

    def _put(self, item: ClaimReference, body: dict[str, object], problem: str = "") -> None:
        self._there[item.namespace, item.name] = ClaimFile(
            path=f"/claims/{item.name}.yaml",
            namespace=item.namespace,
            name=item.name,
            uid=item.uid,
            body=body,  # type: ignore[arg-type]  # any JSON
            problem=problem,
        )
