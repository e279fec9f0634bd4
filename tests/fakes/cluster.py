"""A home of slices and claims in memory, which can refuse, hang, lose a race, and drop fields."""

import copy
from collections.abc import Mapping
from typing import Any

import trio

from liken_events.cluster import ClusterError, Conflict, SliceView
from liken_events.core.model.claims import ClaimReference
from liken_events.core.model.json import Json
from liken_events.core.plan.slices import (
    CreateSlice,
    DeleteSlice,
    ObservedSlice,
    PatchSlice,
    SliceChange,
)


class FakeCluster:
    """Behaves as `Cluster` says.

    Attributes:
        description: for people.
        has_nodes: whether there are Nodes to own slices.
        slices: what it holds, name to object.
        writes: all changes that reached it, oldest first, also those that it refused.
        faults: what the next writes end with, in order.
        uid: the Node's uid, or what asking for it ends with.
        uid_asked: how often it was asked for.
        drops: fields of a device that it does not know.
        free: writes wait until it is set.
        claims: what it holds, namespace and name to object, or what reading it ends with.
        claims_read: all claims that were asked for, oldest first.
        claims_free: reading a claim waits until it is set.
    """

    description = "memory"
    has_nodes = True

    def __init__(self) -> None:
        self.slices: dict[str, dict[str, Any]] = {}
        self.writes: list[SliceChange] = []
        self.faults: list[Exception] = []
        self.uid: str | ClusterError | None = "node-uid"
        self.uid_asked = 0
        self.drops: frozenset[str] = frozenset()
        self.free = trio.Event()
        self.free.set()
        self.claims: dict[tuple[str, str], dict[str, Any] | ClusterError] = {}
        self.claims_read: list[ClaimReference] = []
        self.claims_free = trio.Event()
        self.claims_free.set()
        self._version = 0
        self._views: list[SliceView] = []

    async def node_uid(self, node: str) -> str | None:
        await trio.lowlevel.checkpoint()
        self.uid_asked += 1
        if isinstance(self.uid, ClusterError):
            raise self.uid
        return self.uid

    async def watch_slices(
        self,
        node: str,
        view: SliceView,
        *,
        task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        self._views.append(view)
        while True:
            view.listing()
            view.replace(copy.deepcopy(list(self.slices.values())), str(self._version))
            task_status.started()
            await view.wait_doubted()
            task_status = trio.TASK_STATUS_IGNORED

    async def create_slice(self, change: CreateSlice) -> ObservedSlice:
        await self._arrive(change)
        if change.name in self.slices:
            raise Conflict("it exists already")
        return self._store(change.name, change.body)

    async def patch_slice(self, change: PatchSlice) -> ObservedSlice:
        await self._arrive(change)
        stored = self.slices.get(change.name)
        if stored is None or stored["metadata"]["resourceVersion"] != change.version:
            raise Conflict("it was changed by somebody else")
        return self._store(change.name, change.body)

    async def delete_slice(self, change: DeleteSlice) -> None:
        await self._arrive(change)
        self.delete(change.name)

    async def read_claim(self, reference: ClaimReference) -> Mapping[str, Json] | None:
        await trio.lowlevel.checkpoint()
        self.claims_read.append(reference)
        await self.claims_free.wait()
        found = self.claims.get((reference.namespace, reference.name))
        if isinstance(found, ClusterError):
            raise found
        return copy.deepcopy(found)

    def edit(self, name: str, **spec: Any) -> None:
        """Somebody else changes a slice."""
        body = copy.deepcopy(self.slices[name])
        body["spec"].update(spec)
        self._store(name, body)

    def delete(self, name: str) -> None:
        """Somebody deletes a slice; nothing if it is not there."""
        if self.slices.pop(name, None) is not None:
            self._version += 1
            for view in self._views:
                view.drop(name, str(self._version))

    async def _arrive(self, change: SliceChange) -> None:
        await trio.lowlevel.checkpoint()
        self.writes.append(change)
        await self.free.wait()
        if self.faults:
            raise self.faults.pop(0)

    def _store(self, name: str, body: Any) -> ObservedSlice:
        """Keeps what it understands of an object, tells those who watch, and answers with the
        object as it was sent."""
        self._version += 1
        sent = copy.deepcopy(dict(body))
        sent["metadata"] |= {"uid": f"uid-of-{name}", "resourceVersion": str(self._version)}
        kept = copy.deepcopy(sent)
        for device in kept["spec"]["devices"]:
            for field in self.drops & device.keys():
                del device[field]
        self.slices[name] = kept
        for view in self._views:
            view.observe(copy.deepcopy(kept))
        return ObservedSlice.from_body(sent)
