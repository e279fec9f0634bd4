"""The objects of the fake API server: versions, uids, a history for watches. No HTTP in here."""

import contextlib
import copy
import queue
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tests.fakes.apirules import (
    GROUP,
    ApiError,
    apply_patch,
    check,
    details,
    without_empty,
)

SELECTABLE = {
    "metadata.name": ("metadata", "name"),
    "spec.driver": ("spec", "driver"),
    "spec.nodeName": ("spec", "nodeName"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One entry of the history: what a watch is told."""

    kind: str
    version: int
    body: Mapping[str, Any]


class State:
    """ResourceSlices, ResourceClaims and Nodes.

    Every change counts the version up and is kept for watches, the newest `window` of them. All
    methods are thread-safe.

    Attributes:
        denies: by what answer an admission policy refuses to write a slice of this name; None if
            there is no such policy.
    """

    def __init__(self, *, window: int = 100) -> None:
        self.lock = threading.RLock()
        self.window = window
        self.drops_multiple_allocations = False
        self.denies: Callable[[str], ApiError] | None = None
        self.version = 1
        self.slices: dict[str, dict[str, Any]] = {}
        self.nodes: dict[str, dict[str, Any]] = {}
        self.claims: dict[tuple[str, str], dict[str, Any]] = {}
        self.history: list[Change] = []
        self.forgotten = 0
        self._made = 0
        self._subscribers: list[queue.SimpleQueue[Change]] = []

    def add_node(self, name: str) -> str:
        """Makes a Node and returns its uid."""
        with self.lock:
            self.version += 1
            metadata = {**self._identity(name), "resourceVersion": str(self.version)}
            self.nodes[name] = {"apiVersion": "v1", "kind": "Node", "metadata": metadata}
            return str(metadata["uid"])

    def node(self, name: str) -> dict[str, Any]:
        with self.lock:
            if name not in self.nodes:
                raise _not_found("", "nodes", name)
            return copy.deepcopy(self.nodes[name])

    def add_claim(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """Makes a ResourceClaim, or puts it in the place of another; with a uid if it has none.
        No watch is told: nobody watches claims."""
        new = copy.deepcopy(dict(body))
        with self.lock:
            self.version += 1
            metadata = {**self._identity(new["metadata"]["name"]), **new["metadata"]}
            new["metadata"] = {**metadata, "resourceVersion": str(self.version)}
            self.claims[metadata["namespace"], metadata["name"]] = new
            return copy.deepcopy(new)

    def claim(self, namespace: str, name: str) -> dict[str, Any]:
        with self.lock:
            if (namespace, name) not in self.claims:
                raise _not_found("resource.k8s.io", "resourceclaims", name)
            return copy.deepcopy(self.claims[namespace, name])

    def slice(self, name: str) -> dict[str, Any]:
        with self.lock:
            if name not in self.slices:
                raise _not_found("resource.k8s.io", "resourceslices", name)
            return copy.deepcopy(self.slices[name])

    def select(self, selector: Mapping[str, str]) -> tuple[list[dict[str, Any]], int]:
        """The slices that a field selector takes, by name, and the version of this list."""
        with self.lock:
            found = [body for body in self.slices.values() if selects(selector, body)]
            found.sort(key=lambda body: str(body["metadata"]["name"]))
            return copy.deepcopy(found), self.version

    def create(self, body: Mapping[str, Any]) -> dict[str, Any]:
        new = copy.deepcopy(dict(body))
        name = new["metadata"]["name"]
        with self.lock:
            new = without_empty(new)
            self._drop_fields(new)
            check(new, None)
            self._deny(name)
            if name in self.slices:
                message = f'resourceslices.{GROUP} "{name}" already exists'
                about = details(name, GROUP, "resourceslices")
                raise ApiError(409, "AlreadyExists", message, details=about)
            new["metadata"] = {**new["metadata"], **self._identity(name), "generation": 1}
            return self._store("ADDED", new)

    def patch(self, name: str, operations: Any) -> dict[str, Any]:
        with self.lock:
            old = self.slice(name)
            new = apply_patch(old, operations)
            based_on = new["metadata"].get("resourceVersion")
            if based_on not in (None, "", old["metadata"]["resourceVersion"]):
                why = "the object has been modified; please apply your changes to the latest"
                raise _conflict("resourceslices", name, f"{why} version and try again")
            new = without_empty(new)
            self._drop_fields(new)
            check(new, old)
            self._deny(name)
            if new == old:
                return new
            if new["spec"] != old["spec"]:
                new["metadata"]["generation"] = old["metadata"]["generation"] + 1
            return self._store("MODIFIED", new)

    def delete(self, name: str, preconditions: Mapping[str, str] | None = None) -> dict[str, Any]:
        with self.lock:
            old = self.slice(name)
            for key, called in (("uid", "UID"), ("resourceVersion", "ResourceVersion")):
                value = (preconditions or {}).get(key, old["metadata"][key])
                if old["metadata"][key] != value:
                    why = f"the {called} in the precondition ({value}) does not match the {called}"
                    raise _conflict("ResourceSlice", name, f"{why} in record")
            self._deny(name)
            del self.slices[name]
            return self._remember("DELETED", old)

    @contextlib.contextmanager
    def subscribed(self, version: int) -> Iterator[queue.SimpleQueue[Change]]:
        """All changes after a version, as they come.

        Raises:
            ApiError: 410, some of them are forgotten. Later forgetting does not matter.
        """
        changes: queue.SimpleQueue[Change] = queue.SimpleQueue()
        with self.lock:
            if version < self.forgotten:
                message = f"too old resource version: {version} ({self.forgotten})"
                raise ApiError(410, "Expired", message)
            for change in self.history:
                if change.version > version:
                    changes.put(change)
            self._subscribers.append(changes)
        try:
            yield changes
        finally:
            with self.lock:
                self._subscribers.remove(changes)

    def forget(self) -> None:
        """Throws the whole history away, as a compaction does."""
        with self.lock:
            self.history = []
            self.forgotten = self.version

    def advance(self, steps: int) -> None:
        """Counts versions up, as changes of other objects do."""
        with self.lock:
            self.version += steps

    def _deny(self, name: str) -> None:
        if self.denies is not None:
            raise self.denies(name)

    def _identity(self, name: str) -> dict[str, Any]:
        self._made += 1
        return {"name": name, "uid": f"00000000-0000-4000-8000-{self._made:012d}"}

    def _drop_fields(self, body: dict[str, Any]) -> None:
        """A server whose gate is off removes the field without a word."""
        if self.drops_multiple_allocations:
            for device in body["spec"].get("devices") or []:
                device.pop("allowMultipleAllocations", None)

    def _store(self, kind: str, body: dict[str, Any]) -> dict[str, Any]:
        stored = self._remember(kind, body)
        self.slices[stored["metadata"]["name"]] = stored
        return copy.deepcopy(stored)

    def _remember(self, kind: str, body: dict[str, Any]) -> dict[str, Any]:
        self.version += 1
        metadata = {**body["metadata"], "resourceVersion": str(self.version)}
        stored = {**body, "metadata": metadata}
        self.history.append(Change(kind=kind, version=self.version, body=copy.deepcopy(stored)))
        for changes in self._subscribers:
            changes.put(self.history[-1])
        while len(self.history) > self.window:
            self.forgotten = self.history.pop(0).version
        return stored


def selects(selector: Mapping[str, str], body: Mapping[str, Any]) -> bool:
    """Whether a field selector takes a slice. Raises ApiError 400 for a field it does not know."""
    for key, value in selector.items():
        if key not in SELECTABLE:
            raise ApiError(400, "BadRequest", f"field label not supported: {key}")
        outer, inner = SELECTABLE[key]
        if body.get(outer, {}).get(inner) != value:
            return False
    return True


def _not_found(group: str, kind: str, name: str) -> ApiError:
    resource = f"{kind}.{group}" if group else kind
    message = f'{resource} "{name}" not found'
    return ApiError(404, "NotFound", message, details=details(name, group, kind))


def _conflict(kind: str, name: str, why: str) -> ApiError:
    message = f'Operation cannot be fulfilled on {kind}.{GROUP} "{name}": {why}'
    return ApiError(409, "Conflict", message, details=details(name, GROUP, kind))
