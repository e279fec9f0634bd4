"""Where slices and claims live: one protocol, two homes.

On a cluster, ResourceSlices and ResourceClaims are objects of the API server. On a machine without
one they are files in a directory, of exactly the same form. The agent knows only this protocol.

What was observed is kept fresh by a watch and is not polled: `watch_slices` follows this node's
slices into a `SliceView`, the sink plans against the view, and a write puts its own outcome there.
A claim is read when it is needed, as the kubelet does: what was seen of it before may be old.

The two homes are `cluster.kubernetes` and `cluster.directory`, and `cluster.choice` tells which of
them is meant; what to write is decided by `core.plan.slices`.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol

import trio

from liken_events.core.model.claims import ClaimReference
from liken_events.core.model.json import Json
from liken_events.core.plan.slices import CreateSlice, DeleteSlice, ObservedSlice, PatchSlice
from liken_events.latest import Latest


class ClusterError(Exception):
    """A call did not do what it should. `reason` is one sentence for a person."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class BadConfiguration(ClusterError):
    """What was configured names no usable cluster. `reason` names the file and what is wrong.

    Raised while connecting: waiting does not help, somebody has to change something.
    """


class Unavailable(ClusterError):
    """The other side cannot be reached or refuses for now.

    Refused connection, time-out, TLS failure, 401, 403, 429, 5xx, disk full.

    Attributes:
        retry_after: seconds that the other side asked to wait, or None.
    """

    def __init__(self, reason: str, *, retry_after: float | None = None) -> None:
        super().__init__(reason)
        self.retry_after = retry_after


class Unreachable(Unavailable):
    """There was no answer."""


class Forbidden(Unavailable):
    """The answer was that we may not: 401, 403."""


class Conflict(ClusterError):
    """The object is not as it was thought to be: 404, 409, 'already exists'.

    Whoever meets this calls `SliceView.doubt`.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class Cause:
    """One complaint of the API server.

    Attributes:
        field: where, as it writes it: `spec.devices[7].attributes[x].string`; `""` if it does not
            say, as with a refusal by a policy.
        message: why.
    """

    field: str
    message: str


class Rejected(ClusterError):
    """The other side found the object wrong (400, 422): the same again is answered the same."""

    def __init__(self, reason: str, causes: Iterable[Cause] = ()) -> None:
        super().__init__(reason)
        self.causes = tuple(causes)


class SliceView:
    """This node's slices as the other side was last seen to hold them.

    A write's own outcome (`put`, `drop`) and the watch (`replace`, `observe`, `drop`) arrive in
    any order. Versions are compared as numbers where both are numbers: an older body never
    replaces a newer, also if the slice was deleted and made anew in between, and what the watch
    has reported already is never undone by the outcome of a write that came before it.

    A list replaces everything, whatever the versions are: after a restore from a backup a server
    counts from an older version on. Only what was written while the list was under way outlives
    it, if the list is older, and only until the watch had the time to tell of it.

    Attributes:
        latest: set with a tuple of `ObservedSlice`, sorted by name, at each change; unset until
            the first list.
    """

    def __init__(self) -> None:
        self.latest: Latest[tuple[ObservedSlice, ...]] = Latest()
        self._slices: dict[str, ObservedSlice] = {}
        self._listed = 0
        self._reported: dict[str, int] = {}
        self._written: dict[str, int] = {}
        self._unconfirmed: set[str] = set()
        self._stale = trio.Event()

    def listing(self) -> None:
        """Says that a list is asked for from now on: it may be older than what is written
        meanwhile."""
        self._written = {}

    def replace(self, bodies: Iterable[Mapping[str, Json]], version: str = "") -> None:
        """Takes a complete list, as after each LIST, and the version at which it was complete."""
        before = self._slices
        self._slices = {item.name: item for item in map(ObservedSlice.from_body, bodies)}
        self._listed = _number(version)
        self._reported = {}
        self._unconfirmed = set()
        for name, written in self._written.items():
            self._keep(name, before.get(name), written)
        self._written = {}
        self._publish()

    def put(self, body: Mapping[str, Json]) -> None:
        """Takes one slice as a write of ours is thought to have left it.

        If the watch was faster, this changes nothing: it may have told since that fields were
        dropped, or that somebody deleted the slice.
        """
        new = ObservedSlice.from_body(body)
        if 0 < _number(new.version) <= self._reported.get(new.name, self._listed):
            return
        self._written[new.name] = _number(new.version)
        self._take(new)

    def observe(self, body: Mapping[str, Json]) -> None:
        """Takes one slice as the watch reports it.

        A slice that is gone does not come back by a report of what it was: the event of our own
        patch may arrive after our deletion has been answered.
        """
        new = ObservedSlice.from_body(body)
        is_known = new.name in self._slices
        if not is_known and 0 < _number(new.version) <= self._reported.get(new.name, 0):
            return
        self._reported[new.name] = _number(new.version)
        if self._take(new):
            self._unconfirmed.discard(new.name)

    def bookmark(self) -> None:
        """Says that the watch has told everything until now. What it did not confirm by then was
        written to another state of the server."""
        if self._unconfirmed:
            self.doubt()

    def drop(self, name: str, version: str | None = None) -> None:
        """Forgets a slice.

        Args:
            name: which one.
            version: the version of its deletion, or the version at which we had it deleted: if
                what is known is newer, the slice was made anew and stays.
        """
        if version is not None:
            self._reported[name] = max(_number(version), self._reported.get(name, 0))
            self._written[name] = _number(version)
            self._unconfirmed.discard(name)
        old = self._slices.get(name)
        if old is None or (version is not None and _number(old.version) > _number(version) > 0):
            return
        del self._slices[name]
        self._publish()

    def doubt(self) -> None:
        """Says that the view is known to be wrong (a conflict): whoever watches lists again."""
        self._stale.set()

    async def wait_doubted(self) -> None:
        """For whoever watches: returns once somebody called `doubt`, and forgets the call."""
        await self._stale.wait()
        self._stale = trio.Event()

    def _keep(self, name: str, ours: ObservedSlice | None, written: int) -> None:
        """Has a write outlive a list that was read before it: one that made a version which the
        list has not reached, or deleted the very version that the list has."""
        listed = self._slices.get(name)
        if ours is not None and 0 < self._listed < written:
            self._slices[name] = ours
        elif ours is None and listed is not None and 0 < _number(listed.version) <= written:
            del self._slices[name]
            self._reported[name] = written
        else:
            return
        self._unconfirmed.add(name)

    def _take(self, new: ObservedSlice) -> bool:
        """Whether it is what is known now, and not older."""
        old = self._slices.get(new.name)
        if old is not None and self._is_older(new, old):
            return False
        if old != new:
            self._slices[new.name] = new
            self._publish()
        return True

    def _is_older(self, new: ObservedSlice, old: ObservedSlice) -> bool:
        """Since a list that told its version all versions are of one history of the server, also
        those of an earlier life of the slice, which had another uid."""
        is_comparable = new.uid == old.uid or self._listed > 0
        return is_comparable and 0 < _number(new.version) < _number(old.version)

    def _publish(self) -> None:
        self.latest.set(tuple(self._slices[name] for name in sorted(self._slices)))


def _number(version: str) -> int:
    """The version as a number, 0 if it is none.

    Versions of one resource may be compared as integers: promised since Kubernetes 1.35
    (KEP-5504), and true of every API server before.
    """
    is_number = version.isascii() and version.isdecimal() and len(version) < 20
    return int(version) if is_number else 0


class Cluster(Protocol):
    """A home of ResourceSlices and ResourceClaims."""

    @property
    def description(self) -> str:
        """Which home was taken, for people: `directory /var/lib/liken-events`."""
        ...

    @property
    def has_nodes(self) -> bool:
        """Whether there are Node objects, which own slices."""
        ...

    async def node_uid(self, node: str) -> str | None:
        """The uid of the Node object, for the owner reference; None where there is none.

        Raises:
            Unavailable: it could not be told.
        """
        ...

    async def watch_slices(
        self, node: str, view: SliceView, *, task_status: trio.TaskStatus[None]
    ) -> None:
        """Follows the node's slices of our driver into `view`, for ever; `started()` once
        something watches.

        It outlives every failure of the other side: expired versions, closed and silent
        connections, refusals. After `view.doubt()` it lists again at once, and tells the view
        also if nothing is different.
        """
        ...

    async def create_slice(self, change: CreateSlice) -> ObservedSlice:
        """Creates a slice. Raises Unavailable, Conflict (it exists already), Rejected."""
        ...

    async def patch_slice(self, change: PatchSlice) -> ObservedSlice:
        """Changes a slice if it is still at the version that the change is based on.

        Raises Unavailable, Conflict (gone, or changed since), Rejected.
        """
        ...

    async def delete_slice(self, change: DeleteSlice) -> None:
        """Deletes a slice; one that is gone already is no error. Raises Unavailable, Conflict."""
        ...

    async def read_claim(self, reference: ClaimReference) -> Mapping[str, Json] | None:
        """The ResourceClaim object of that namespace and name as it is now, whatever its uid; None
        if there is none. `core.model.claims.read_claim` understands both.

        Reading many at a time, or in vain, does not hold up the other calls. It takes 20 s at
        most.

        Raises:
            Unavailable: it could not be told.
        """
        ...
