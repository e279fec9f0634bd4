"""The keeper of claims: prepares when the kubelet asks, rewrites specs when hardware moves.

The kubelet prepares a claim before it makes a pod's sandbox and unprepares it after the last
container ended. It may ask twice, for one claim from two pods at once, or for a new claim of the
name of an old one; it gives up on a call after 45 seconds, and then asks again or unprepares.

This file answers those calls, one after the other for each claim and side by side for different
ones, and follows the inventory: specs are rewritten before anything is published. A device that is
just being plugged in is waited for. What is prepared is kept in `sinks.holdings`, claims are read
in `sinks.claim_reader`, USB hardware is given back in `sinks.usb_drivers`.
"""

import random
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager

import structlog
import trio

from liken_events.core.backoff import Backoff
from liken_events.core.model.claims import Claim, ClaimReference, Granted, Refused
from liken_events.core.model.device import Inventory
from liken_events.core.model.prepared import Prepared, PreparedDevice, is_called
from liken_events.core.model.snapshot import Key
from liken_events.core.plan.cdi import granted
from liken_events.inotify import DirectoryWatch
from liken_events.latest import Latest
from liken_events.node_watch import NodeWatch
from liken_events.sinks.claim_reader import ClaimReader
from liken_events.sinks.holdings import Holdings
from liken_events.sinks.spec_writer import Conflict
from liken_events.sinks.usb_drivers import UsbDrivers

PREPARE_SECONDS = 35.0
"""For one claim as a whole. The kubelet gives up after 45."""

READY_SECONDS = 5.0
"""How long a device is waited for that is being plugged in, and how long ago it may have left to
count as coming back. A device that loads its firmware is away for one to three seconds."""

LOOK_AGAIN_SECONDS = 0.1
"""While waiting for a device: it may settle without becoming another one, which nobody tells."""

OVERRULE_SECONDS = 0.1
"""Between two looks at specs because somebody wrote one. Two instances find a new device settled
at different moments, milliseconds apart, and may call it differently until then."""

RETRY = Backoff(base=0.5, ceiling=30.0)
"""Before specs that could not be made right are tried again, and a home that did not answer."""

log = structlog.get_logger()


class ClaimKeeper:
    """Answers for the claims of this machine.

    Args:
        node: this node's name.
        holdings: what is prepared.
        reader: reads claims.
        drivers: gives USB hardware back.
        inventories: the newest inventory.
        nodes: the watched paths of nodes.
        unsettled: the devices that the loop waits for.
    """

    def __init__(
        self,
        *,
        node: str,
        holdings: Holdings,
        reader: ClaimReader,
        drivers: UsbDrivers,
        inventories: Latest[Inventory],
        nodes: NodeWatch,
        unsettled: Callable[[], frozenset[Key]],
    ) -> None:
        self.holdings = holdings
        self._node = node
        self._reader = reader
        self._drivers = drivers
        self._inventories = inventories
        self._nodes = nodes
        self._unsettled = unsettled
        self._turns: defaultdict[str, trio.Lock] = defaultdict(trio.Lock)
        self._waiting: defaultdict[str, int] = defaultdict(int)
        self._doubt = trio.Event()

    async def prepare(self, reference: ClaimReference) -> tuple[Granted, ...] | Refused:
        """See `servers.Claims`. Ends within `PREPARE_SECONDS`, waiting for its turn included."""
        outcome = await self.attempt(reference)
        if isinstance(outcome, Refused):
            log.warning(
                "claim.refused", claim=str(reference), uid=reference.uid, reason=outcome.reason
            )
        return outcome

    async def attempt(self, reference: ClaimReference) -> tuple[Granted, ...] | Refused:
        """The same for one who asks again and again: a refusal is not logged."""
        if not reference.is_valid:
            return Refused(reason="the claim's uid is no uid")
        outcome: tuple[Granted, ...] | Refused
        outcome = Refused(reason=f"the claim {reference} took too long to prepare")
        with trio.move_on_after(PREPARE_SECONDS):
            async with self._turn(reference.uid):
                claim = await self._reader.read(reference)
                outcome = claim if isinstance(claim, Refused) else await self._prepare(claim)
        if not isinstance(outcome, Refused) and outcome:
            log.info(
                "claim.prepared",
                claim=str(reference),
                uid=reference.uid,
                devices=[item.device for item in outcome],
            )
        return outcome

    async def unprepare(self, reference: ClaimReference) -> Refused | None:
        """See `servers.Claims`. Asks no API server: the claim may be gone."""
        if not reference.is_valid:
            return None  # nothing of that uid was ever prepared
        async with self._turn(reference.uid):
            return await self._unprepare(reference)

    async def clean(self) -> None:
        """Ends the prepared claims that their home says are no more, and asks until it answered
        for each that is prepared now."""
        asked = list(self.holdings.prepared.values())
        failures = 0
        while asked:
            unanswered = []
            for item in asked:
                reference = item.reference
                is_over = await self._reader.is_over(reference) if reference.name else False
                if is_over is None:
                    unanswered.append(item)
                elif is_over:
                    async with self._turn(reference.uid):
                        if reference.uid in self.holdings.prepared:
                            await self._unprepare(reference)
            asked, failures = unanswered, failures + 1
            if asked:
                await trio.sleep(RETRY.delay(failures, random.random()))  # noqa: S311  # jitter

    async def follow(self, ready: Latest[Inventory]) -> None:
        """Refreshes the specs with each newest inventory, and only then passes it on to `ready`,
        until there are no newer ones. What cannot be written holds nothing up."""
        number = 0
        while True:
            newest = await self._inventories.wait_newer(number)
            if newest == number:
                break  # it was closed
            number, inventory = newest, self._inventories.get()
            await self._refresh()
            ready.set(inventory)
        ready.close()

    async def follow_doubts(self) -> None:
        """Refreshes again, with growing pauses, until every spec could be made right."""
        while True:
            await self._doubt.wait()
            failures = 0
            while self._doubt.is_set():
                self._doubt = trio.Event()
                failures += 1
                await trio.sleep(RETRY.delay(failures, random.random()))  # noqa: S311  # jitter
                await self._refresh()

    async def follow_nodes(self) -> None:
        """Refreshes as soon as a device comes with the node of a held one that is away."""
        while True:
            await self._nodes.wait()
            await self._refresh()

    async def follow_files(
        self,
        directory: str,
        *,
        task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        """Puts specs right that somebody removes or edits, and learns of the claims that another
        instance prepared or ended. Two that do not see the same yet do not chase each other.
        `started()` once the directory is watched and was looked at."""
        with DirectoryWatch(directory) as watch:
            await self._refresh()  # what happened before there was a watch
            task_status.started()
            while True:
                await watch.changed()
                await self._refresh()
                await trio.sleep(OVERRULE_SECONDS)

    async def _refresh(self) -> None:
        if self._inventories.number and not await self.holdings.refresh(self._inventories.get()):
            self._doubt.set()

    async def _prepare(self, claim: Claim) -> tuple[Granted, ...] | Refused:
        """Tries until it is done, or until there is nothing more to wait for."""
        if not claim.allocated:
            return ()  # all its devices are other drivers'
        names = {item.device for item in claim.allocated}
        deadline = trio.current_time() + READY_SECONDS
        while True:
            late = trio.current_time() >= deadline
            if not late and self._is_unsettled(names):
                await self._wait_until(deadline)
                continue
            outcome = await self.holdings.hold(claim, self._node)
            match outcome:
                case Prepared():
                    await self._refresh()  # it may be moving just now
                    await self._until_settled(claim.reference.uid, deadline)
                    return granted(claim)
                case Refused() if late or not self._is_returning(names):
                    return outcome
                case Refused():
                    await self._wait_until(deadline)
                case Conflict():
                    if not await self._is_freed(outcome):
                        other = outcome.other
                        whom = str(other) if other.name else f"with the uid {other.uid}"
                        return Refused(reason=f"{outcome.device} is prepared for the claim {whom}")

    async def _until_settled(self, uid: str, deadline: float) -> None:
        """Waits while a device of a claim is there and nobody has told of it yet: until then its
        spec says that it is away, and the container would not start."""
        while not self.holdings.are_usable(uid) and trio.current_time() < deadline:
            await self._wait_until(deadline)
            await self._refresh()

    async def _wait_until(self, deadline: float) -> None:
        with trio.move_on_at(min(deadline, trio.current_time() + LOOK_AGAIN_SECONDS)):
            await self._inventories.wait_newer(self._inventories.number)

    def _is_unsettled(self, names: Iterable[str]) -> bool:
        return any(is_called(key, name) for key in self._unsettled() for name in names)

    def _is_returning(self, names: Iterable[str]) -> bool:
        """Whether one of these devices was heard of just now: it left, or changed its driver."""
        if self._is_unsettled(names):
            return True
        if not self._inventories.number:
            return False
        since = trio.current_time() - READY_SECONDS
        recent = [key for key, c in self._inventories.get().causes.items() if c.at > since]
        return any(is_called(key, name) for key in recent for name in names)

    async def _is_freed(self, conflict: Conflict) -> bool:
        """Ends the claim that has the device if it is no more, as after a forced deletion."""
        other = conflict.other
        if not other.name or not await self._reader.is_over(other):
            return False
        async with self._turn(other.uid):
            return await self._unprepare(other) is None

    async def _unprepare(self, reference: ClaimReference) -> Refused | None:
        uid = reference.uid
        failure = await self.holdings.take_over()
        prepared = self.holdings.prepared.get(uid)
        if failure is None:
            devices = () if prepared is None else prepared.devices
            shared = [device for device in devices if self._is_held_by_another(uid, device)]
            for device in devices:
                if device not in shared:
                    await self._drivers.give_back(device)
            failure = await self.holdings.end(uid, prepared)
            for device in shared if failure is None else ():
                # The other one may have ended at the same time, and left it to this one.
                if not self._is_held_by_another(uid, device):
                    await self._drivers.give_back(device)
        if failure is not None:
            log.warning(
                "claim.release_failed", claim=str(reference), uid=uid, reason=failure.reason
            )
        elif prepared is not None and uid not in self.holdings.prepared:
            log.info("claim.released", claim=str(reference), uid=uid)
        return failure

    def _is_held_by_another(self, uid: str, held: PreparedDevice) -> bool:
        return any(
            device.key == held.key
            for other in self.holdings.prepared.values()
            if other.reference.uid != uid
            for device in other.devices
        )

    @asynccontextmanager
    async def _turn(self, uid: str) -> AsyncIterator[None]:
        """Calls for one claim, one after the other, in the order in which they came."""
        self._waiting[uid] += 1
        try:
            async with self._turns[uid]:
                yield
        finally:
            self._waiting[uid] -= 1
            if not self._waiting[uid]:
                del self._waiting[uid], self._turns[uid]
