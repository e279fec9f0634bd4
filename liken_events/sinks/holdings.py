"""What prepared claims hold, in memory as in the files.

A spec is read by the runtime whenever it starts a container, so it has to be right at any moment,
and above all must never name another device's node. What an event says, and what was read for the
slice, may be old by then; so each write here is decided on a fresh look.

What is prepared is what the records say, which another instance may have written just now.

This file holds a copy of it, brings that up to date before each decision, and tells of the
devices' health. Whatever changes files runs alone on this machine, in a worker thread, in
`sinks.spec_writer`; which claims are to be prepared and when to refresh is decided in `sinks.cdi`.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TypeVar

import structlog
import trio

from liken_events.core.model.claims import Claim, DeviceHealth, Refused
from liken_events.core.model.device import Inventory
from liken_events.core.model.health import health, merged
from liken_events.core.model.names import printable
from liken_events.core.model.prepared import Prepared, Sight
from liken_events.latest import Latest
from liken_events.node_watch import NodeWatch
from liken_events.sinks.spec_files import SpecFiles
from liken_events.sinks.spec_writer import Conflict, Rewritten, SpecWriter
from liken_events.sinks.whole_files import is_passing

T = TypeVar("T")

log = structlog.get_logger()


class Holdings:
    """The prepared claims of this machine.

    Attributes:
        health: how the devices fare that are held; set when it changes, at first with the first
            refresh.
    """

    def __init__(self, *, files: SpecFiles, writer: SpecWriter, nodes: NodeWatch) -> None:
        self.health: Latest[tuple[DeviceHealth, ...]] = Latest()
        self._files = files
        self._writer = writer
        self._nodes = nodes
        self._lock = trio.Lock()
        self._threads = trio.CapacityLimiter(1)
        self._prepared: dict[str, Prepared] = {}
        self._sights: dict[str, Mapping[str, Sight]] = {}
        self._unwritten: set[str] = set()
        self._trouble = ""

    @property
    def prepared(self) -> Mapping[str, Prepared]:
        """The prepared claims by uid."""
        return self._prepared

    def are_usable(self, uid: str) -> bool:
        """Whether a prepared claim's spec names all its devices as they are now."""
        sights = self._sights.get(uid)
        if sights is None or uid in self._unwritten:
            return False
        return all(sight.is_usable for sight in sights.values())

    async def restore(self) -> None:
        """Takes over what an earlier run left. Nothing of another boot is taken over."""
        async with self._lock:
            try:
                found = await self._alone(self._writer.load, is_up_to_date=True)
            except OSError as error:
                self._tell_trouble(error)
                return
            self._prepared = {item.reference.uid: item for item in found.prepared}
            for path, reason in found.problems:
                log.warning("claims.broken_file", path=path, reason=reason)
            for uid in found.dropped:
                log.info("claims.dropped", uid=uid, reason="not of this boot, or not certain")
            if self._prepared:
                log.info("claims.restored", prepared=len(self._prepared))
            self._watch()

    async def take_over(self) -> Refused | None:
        """Brings `prepared` up to date; why it could not be done, if it could not."""
        async with self._lock:
            try:
                await self._alone(lambda: None)
            except OSError as error:
                return Refused(reason=f"{error.filename} cannot be read: {_why(error)}")
            self._watch()
            return None

    async def hold(self, claim: Claim, node: str) -> Prepared | Refused | Conflict:
        """Prepares a claim's devices, all or none; changes nothing unless it returns `Prepared`.

        Args:
            claim: with at least one device.
            node: this node's name, which is the pool's.
        """
        uid = claim.reference.uid
        async with self._lock:
            try:
                outcome = await self._alone(
                    lambda: self._writer.hold(claim, node, self._prepared), make=True
                )
            except OSError as error:
                return Refused(
                    reason=f"{self._file(error, uid)} could not be written: {_why(error)}"
                )
            if not isinstance(outcome, Rewritten):
                return outcome
            self._prepared[uid] = outcome.prepared
            self._sights[uid] = outcome.sights
            self._unwritten.discard(uid)
            self._watch()
            self._tell_health()
            return outcome.prepared

    async def end(self, uid: str, seen: Prepared | None = None) -> Refused | None:
        """Removes all that a claim left; why it could not, if it could not.

        Args:
            uid: the claim's.
            seen: what is to be ended. If another instance prepared the claim again since, that
                was asked for later, and it stays.
        """

        def work() -> bool:
            now = self._prepared.get(uid)
            if seen is not None and now is not None and now.stamp != seen.stamp:
                return False
            self._files.remove(uid)
            return True

        async with self._lock:
            try:
                if not await self._alone(work):
                    return None
            except OSError as error:
                return Refused(
                    reason=f"{self._file(error, uid)} could not be removed: {_why(error)}"
                )
            self._prepared.pop(uid, None)
            self._sights.pop(uid, None)
            self._unwritten.discard(uid)
            self._watch()
            self._tell_health()
            return None

    async def refresh(self, inventory: Inventory) -> bool:
        """Makes every spec say what its devices are now. Claims whose devices are as they were
        last seen to be are not looked at.

        Returns:
            False if it has to be done again after a while: something could not be read or written,
            or a device was seen in the middle of a change of which the inventory does not know.
            It may never come to know of it, if the device is as before in the end.
        """
        async with self._lock:
            announced, number = dict(self._nodes.announced), self._nodes.number
            doubtful: list[str] = []

            def work() -> Mapping[str, Rewritten]:
                doubtful.extend(
                    uid for uid in self._prepared if self._is_doubtful(uid, inventory, announced)
                )
                claims = [self._prepared[uid] for uid in doubtful]
                return self._writer.rewrite(claims, inventory, announced) if claims else {}

            try:
                done = await self._alone(work)
            except OSError as error:
                self._tell_trouble(error)
                return not self._prepared and not is_passing(error)
            self._take(doubtful, done)
            self._watch()
            self._nodes.forget(self._own_paths(done), number)
            self._tell_health()
            return not self._unwritten and all(self._is_known(u, inventory) for u in doubtful)

    def _is_doubtful(self, uid: str, inventory: Inventory, announced: Mapping[str, str]) -> bool:
        return (
            uid not in self._sights
            or uid in self._unwritten
            # Whose a path is can change with every device.
            or not self.are_usable(uid)
            or not self._is_known(uid, inventory)
            # Its own return, or another device's arrival: that may be told before its removal is.
            or any(path in announced for path in self._paths(uid))
            or not self._files.is_as_written(uid)
            or not self._files.records.has(uid)
        )

    def _paths(self, uid: str) -> Iterator[str]:
        return (node.path for device in self._prepared[uid].devices for node in device.nodes)

    def _own_paths(self, uids: Iterable[str]) -> Iterator[str]:
        """The paths of those of these claims whose devices are all there."""
        for uid in uids:
            if self.are_usable(uid):
                yield from self._paths(uid)

    def _is_known(self, uid: str, inventory: Inventory) -> bool:
        """Whether an inventory has a claim's devices as they were last seen."""
        return all(
            self._writer.sight(device, inventory.judgement(device.key))
            == self._sights[uid][device.name]
            for device in self._prepared[uid].devices
        )

    def _take(self, doubtful: Iterable[str], done: Mapping[str, Rewritten]) -> None:
        for uid in doubtful:
            result = done.get(uid)
            if result is None:
                self._unwritten.add(uid)
                continue
            if result.is_right:
                self._unwritten.discard(uid)
            else:
                self._unwritten.add(uid)
            self._prepared[uid] = result.prepared
            self._sights[uid] = result.sights
            if result.is_written:
                log.info(
                    "claim.refreshed",
                    claim=str(result.prepared.reference),
                    uid=uid,
                    devices={name: str(s.presence) for name, s in result.sights.items()},
                    nodes=[node.path for s in result.sights.values() for node in s.nodes],
                )

    def _watch(self) -> None:
        """Says which paths are to be watched. Those of devices that are there too: between the
        moment that one leaves and the moment that this is known, another may come with its
        path."""
        self._nodes.watch(path for uid in self._prepared for path in self._paths(uid))

    def _tell_health(self) -> None:
        """Publishes what changed of the devices' health."""
        found = merged(
            health(device, sights[device.name])
            for uid, sights in self._sights.items()
            for device in self._prepared[uid].devices
        )
        if not self.health.number or self.health.get() != found:
            self.health.set(found)

    def _file(self, error: OSError, uid: str) -> str:
        """The file that an error is about."""
        return printable(str(error.filename or self._files.spec_path(uid)))

    def _tell_trouble(self, error: OSError) -> None:
        """Says why nothing could be done, once for each reason."""
        reason = str(error)
        if reason != self._trouble:
            log.warning("claims.unreadable", reason=reason)
        self._trouble = reason

    async def _alone(
        self, work: Callable[[], T], *, make: bool = False, is_up_to_date: bool = False
    ) -> T:
        """Does something in the worker thread that looks at files or changes them, while no other
        instance does, and first brings up to date what is prepared.

        Args:
            work: raises OSError.
            make: see `RecordFiles.alone`.
            is_up_to_date: the work itself finds what is prepared.
        """

        def run() -> T:
            with self._files.records.alone(make=make or bool(self._prepared)):
                # Whoever gave up meanwhile may have asked another instance for the opposite.
                trio.from_thread.check_cancelled()
                if not is_up_to_date:
                    self._take_over()
                return work()

        found = await trio.to_thread.run_sync(
            run, thread_name="liken-claims", limiter=self._threads
        )
        self._trouble = ""
        return found

    def _take_over(self) -> None:
        """Runs in the worker thread; what the others may be reading is exchanged, not changed."""
        found, broken = self._files.records.take_over(self._prepared, self._files.has_spec)
        for path, reason in broken:
            log.warning("claims.broken_file", path=path, reason=reason)
        if found is self._prepared:
            return
        same = {uid for uid, item in found.items() if item == self._prepared.get(uid)}
        self._sights = {uid: seen for uid, seen in self._sights.items() if uid in same}
        self._unwritten = {uid for uid in self._unwritten if uid in found}
        self._prepared = dict(found)


def _why(error: OSError) -> str:
    return error.strerror or str(error)
