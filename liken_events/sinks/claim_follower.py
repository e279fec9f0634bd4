"""Claims without a kubelet: what the files say is prepared.

On a machine without a cluster nobody calls. A claim file that appears is the wish to have its
devices, one that goes is the end of it. The hardware may not be there yet, or another claim may
have it: then the claim waits.

This file asks the keeper to prepare and to end claims as the files come and go, and again whenever
the machine changed. When a file has ended its claim is said in `cluster.claim_file`.
"""

from collections.abc import Awaitable, Callable, Iterable
from typing import TypeAlias

import structlog
import trio

from liken_events.cluster.claim_file import ClaimFile, has_ended
from liken_events.core.model.claims import ClaimReference, Refused
from liken_events.core.model.device import Inventory
from liken_events.latest import Latest
from liken_events.sinks.cdi import ClaimKeeper

RETRY_SECONDS = 30.0
"""How often claims that wait are tried without a reason: a directory may have become writable."""

Work: TypeAlias = Callable[[ClaimReference], Awaitable[bool]]
"""What is done about one claim; whether others have to be gone through again because of it."""

log = structlog.get_logger()


class ClaimFollower:
    """Keeps what is prepared at what the claim files say.

    Args:
        keeper: prepares and ends claims.
        files: the claim files, newest state.
        inventories: what was published; a claim that waits is tried with each.
    """

    def __init__(
        self,
        keeper: ClaimKeeper,
        files: Latest[tuple[ClaimFile, ...]],
        inventories: Latest[Inventory],
    ) -> None:
        self._keeper = keeper
        self._files = files
        self._inventories = inventories
        self._told: dict[str, str] = {}
        self._problems: dict[str, str] = {}
        self._busy: set[ClaimReference] = set()
        self._missed: set[ClaimReference] = set()
        self._something = trio.Event()

    async def run(self) -> None:
        """Follows for ever."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._wake_with, self._files.wait_newer)
            nursery.start_soon(self._wake_with, self._inventories.wait_newer)
            while True:
                waits = False
                if self._files.number:
                    waits = self._go_through(self._files.get(), nursery)
                with trio.move_on_after(RETRY_SECONDS if waits else float("inf")):
                    await self._something.wait()
                self._something = trio.Event()

    def _go_through(self, files: Iterable[ClaimFile], nursery: trio.Nursery) -> bool:
        """Starts what is to be done, each claim on its own: one that is waited for delays no
        other. Returns whether there was anything."""
        self._tell_problems(files)
        todo: list[tuple[Work, ClaimReference]] = []
        prepared = {uid: item.reference for uid, item in self._keeper.holdings.prepared.items()}
        todo += [(self._end, item) for item in prepared.values() if _is_over(item, files)]
        for file in files:
            # A claim that was found without its record has no name: it is given one.
            if file.uid and not (file.uid in prepared and prepared[file.uid].name):
                todo.append((self._prepare, file.reference))
        for work, reference in todo:
            self._start(nursery, work, reference)
        waiting = {file.uid for file in files}
        self._told = {uid: reason for uid, reason in self._told.items() if uid in waiting}
        return bool(todo)

    def _start(self, nursery: trio.Nursery, work: Work, reference: ClaimReference) -> None:
        async def once() -> None:
            try:
                changed = await work(reference)
            finally:
                self._busy.discard(reference)
            if changed or reference in self._missed:
                self._something.set()  # others may wait for that; or it was decided on old grounds
            self._missed.discard(reference)

        if reference in self._busy:
            self._missed.add(reference)
        else:
            self._busy.add(reference)
            nursery.start_soon(once)

    async def _prepare(self, reference: ClaimReference) -> bool:
        """Returns whether the claim is over by now."""
        outcome = await self._keeper.attempt(reference)
        if isinstance(outcome, Refused):
            if self._told.get(reference.uid) != outcome.reason:
                log.info("claim.waiting", claim=str(reference), reason=outcome.reason)
            self._told[reference.uid] = outcome.reason
            return False
        self._told.pop(reference.uid, None)
        return reference.uid in self._keeper.holdings.prepared and _is_over(
            reference, self._files.get()
        )

    async def _end(self, reference: ClaimReference) -> bool:
        """Returns whether the claim was ended, and its devices are free."""
        return await self._keeper.unprepare(reference) is None

    def _tell_problems(self, files: Iterable[ClaimFile]) -> None:
        problems = {file.path: file.problem for file in files if file.problem}
        for path, problem in problems.items():
            if self._problems.get(path) != problem:
                log.warning("claim.bad_file", path=path, reason=problem)
        self._problems = problems

    async def _wake_with(self, wait_newer: Callable[[int], Awaitable[int]]) -> None:
        number = 0
        while True:
            newest = await wait_newer(number)
            if newest == number:
                return  # it was closed
            number = newest
            self._something.set()


def _is_over(reference: ClaimReference, files: Iterable[ClaimFile]) -> bool:
    """Whether no file says any more that this claim is wished for."""
    if reference.name:
        return has_ended(reference, files)
    return all(file.uid and file.uid != reference.uid for file in files)
