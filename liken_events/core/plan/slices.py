"""From the slices that are there and the devices that are offered to the changes between them.

The API server holds a node's devices as one ResourceSlice object. A change of one device should
cost one small request, must not overwrite what somebody else did in between, and must lead to the
same slice from whatever is there.

This file decides: nothing, one JSON Patch with the changed devices, a creation, a deletion.
`core.plan.slice_body` says how a device is written; what is there is observed through
`cluster.SliceView`; `sinks.slices` carries changes out and learns from refusals.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from liken_events.core.model.device import PublishedDevice
from liken_events.core.model.json import Json
from liken_events.core.plan.slice_body import (
    API_VERSION,
    DRIVER,
    MAX_DEVICES,
    Learned,
    device_bodies,
    slice_name,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedSlice:
    """One slice as the other side holds it.

    Attributes:
        name: the object's name.
        uid: the object's uid; `""` where the home gives none.
        version: the resourceVersion, to be compared only for being equal, except within
            `cluster.SliceView`.
        body: the whole object.
    """

    name: str
    uid: str
    version: str
    body: Mapping[str, Json]

    @staticmethod
    def from_body(body: Mapping[str, Json]) -> "ObservedSlice":
        """Reads name, uid and version from the object's metadata; what is missing or odd is
        `""`."""
        metadata = _mapping(body.get("metadata"))
        return ObservedSlice(
            name=_text(metadata.get("name")),
            uid=_text(metadata.get("uid")),
            version=_text(metadata.get("resourceVersion")),
            body=body,
        )

    @property
    def generation(self) -> int:
        """The pool's generation; 0 if there is none."""
        return _number(_mapping(_mapping(self.body.get("spec")).get("pool")).get("generation"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Observed:
    """All that a plan for slices depends on besides the inventory.

    Attributes:
        node: name of this node: pool name, node name and part of the slice's name.
        node_uid: uid of the Node object for the owner reference; None if there is none or it is
            not known yet.
        slices: this node's slices of our driver, sorted by name.
        last_generation: the highest generation that was ever seen, so that it only grows when a
            slice is made anew.
        divide: spread more than 128 devices over several slices instead of leaving devices out.
        learned: what the other side was found to drop or to refuse.
    """

    node: str
    node_uid: str | None = None
    slices: tuple[ObservedSlice, ...] = ()
    last_generation: int = 0
    divide: bool = False
    learned: Learned = field(default_factory=Learned)


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateSlice:
    """Make a slice. `body` is the object to send."""

    name: str
    body: Mapping[str, Json]


@dataclass(frozen=True, slots=True, kw_only=True)
class PatchSlice:
    """Change a slice.

    Attributes:
        name: which one.
        uid, version: the state that the change is based on.
        operations: JSON Patch (RFC 6902), whose first operation locks `version`.
        body: the object that the patch leads to, for a home that writes whole files. Its
            resourceVersion is the old.
    """

    name: str
    uid: str
    version: str
    operations: tuple[Json, ...]
    body: Mapping[str, Json]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteSlice:
    """Delete a slice if it is still the one, at the version, that was seen."""

    name: str
    uid: str
    version: str


SliceChange: TypeAlias = CreateSlice | PatchSlice | DeleteSlice


def plan(observed: Observed, offered: Sequence[PublishedDevice]) -> tuple[SliceChange, ...]:
    """The changes that make the slices say what is offered, in the order to carry them out; empty
    if they do.

    Args:
        observed: what is there.
        offered: sorted by name, names unique.
    """
    bodies = device_bodies(offered, observed.learned)
    chunks = [bodies[start : start + MAX_DEVICES] for start in range(0, len(bodies), MAX_DEVICES)]
    if not observed.divide:
        chunks = chunks[:1]
    known = {item.name: item for item in observed.slices}
    wanted = {slice_name(observed.node, index): chunk for index, chunk in enumerate(chunks)}
    generation = max([observed.last_generation, *(item.generation for item in observed.slices)])

    drafts = {
        name: _draft(observed, known.get(name), name, chunk, len(chunks), generation)
        for name, chunk in wanted.items()
    }
    surplus = [item for name, item in known.items() if name not in wanted]
    if any(drafts.values()) or (surplus and wanted):
        # Consumers use only the slices with the highest generation of a pool, so all slices move
        # to the new one.
        drafts = {
            name: _draft(observed, known.get(name), name, chunk, len(chunks), generation + 1)
            for name, chunk in wanted.items()
        }
    changes: list[SliceChange] = [change for draft in drafts.values() for change in draft]
    changes += [
        DeleteSlice(name=item.name, uid=item.uid, version=item.version) for item in surplus
    ]
    return tuple(changes)


def after(slices: Iterable[ObservedSlice], change: SliceChange) -> tuple[ObservedSlice, ...]:
    """The pure model of what a change does; versions grow by one. For fakes and for the laws of
    the plan."""
    state = {item.name: item for item in slices}
    match change:
        case CreateSlice():
            state[change.name] = _with_version(change.body, "1")
        case PatchSlice():
            state[change.name] = _with_version(change.body, str(int(change.version or "0") + 1))
        case DeleteSlice():
            state.pop(change.name, None)
    return tuple(state[name] for name in sorted(state))


def _draft(
    observed: Observed,
    old: ObservedSlice | None,
    name: str,
    devices: list[Json],
    count: int,
    generation: int,
) -> tuple[SliceChange, ...]:
    """What leads one slice to these devices at this generation."""
    pool: dict[str, Json] = {
        "name": observed.node,
        "generation": generation,
        "resourceSliceCount": count,
    }
    if old is None:
        return (CreateSlice(name=name, body=_new_body(observed, name, pool, devices)),)
    spec = _mapping(old.body.get("spec"))
    old_pool = _mapping(spec.get("pool"))
    if (spec.get("driver"), spec.get("nodeName"), old_pool.get("name")) != (
        DRIVER,
        observed.node,
        observed.node,
    ):
        # These three are immutable: somebody else's object stands under our name.
        return (
            DeleteSlice(name=name, uid=old.uid, version=old.version),
            CreateSlice(name=name, body=_new_body(observed, name, pool, devices)),
        )
    operations = _device_operations(spec.get("devices"), devices)
    metadata = dict(_mapping(old.body.get("metadata")))
    owners = _owners(observed)
    if owners and metadata.get("ownerReferences") != owners:
        operations.append({"op": "add", "path": "/metadata/ownerReferences", "value": owners})
        metadata["ownerReferences"] = owners
    operations += [
        {"op": "add", "path": f"/spec/pool/{key}", "value": value}
        for key, value in pool.items()
        if old_pool.get(key) != value
    ]
    if not operations:
        return ()
    # A stale `replace` of the resourceVersion is answered with 409, a stale `test` with a 422 that
    # cannot be told from a bad patch. Hence replace, by the very value that the change is based
    # on.
    lock: Json = {"op": "replace", "path": "/metadata/resourceVersion", "value": old.version}
    return (
        PatchSlice(
            name=name,
            uid=old.uid,
            version=old.version,
            operations=(lock, *operations),
            body={
                **old.body,
                "metadata": metadata,
                "spec": {**spec, "pool": {**old_pool, **pool}, "devices": devices},
            },
        ),
    )


def _new_body(
    observed: Observed, name: str, pool: dict[str, Json], devices: list[Json]
) -> dict[str, Json]:
    owners = _owners(observed)
    return {
        "apiVersion": API_VERSION,
        "kind": "ResourceSlice",
        "metadata": {"name": name, **({"ownerReferences": owners} if owners else {})},
        "spec": {
            "driver": DRIVER,
            "nodeName": observed.node,
            "pool": {**pool, "generation": max(1, _number(pool["generation"]))},
            "devices": devices,
        },
    }


def _owners(observed: Observed) -> list[Json]:
    """The Node owns its slices: they are collected with it. Its uid is part of the reference."""
    if observed.node_uid is None:
        return []
    return [{"apiVersion": "v1", "kind": "Node", "name": observed.node, "uid": observed.node_uid}]


def _device_operations(old: Json, new: list[Json]) -> list[Json]:
    """JSON Patch operations from one device list to another, touching only the devices that
    differ.

    They run from the end of the list to its start, so that no operation moves the index of a later
    one. If the old list is not in order of names, because somebody else wrote it, more devices
    than those are touched, to the same end.
    """
    if old == new:
        return []
    if not isinstance(old, list):
        return [{"op": "add", "path": "/spec/devices", "value": new}]
    operations: list[Json] = []
    here, there = len(old) - 1, len(new) - 1
    while here >= 0 or there >= 0:
        before = old[here] if here >= 0 else None
        after = new[there] if there >= 0 else None
        both = here >= 0 and there >= 0
        if both and (before is after or before == after):  # the same object is not looked into
            here, there = here - 1, there - 1
        elif there < 0 or _name(before) > _name(after):
            operations.append({"op": "remove", "path": f"/spec/devices/{here}"})
            here -= 1
        elif here < 0 or _name(before) < _name(after):
            operations.append({"op": "add", "path": f"/spec/devices/{here + 1}", "value": after})
            there -= 1
        else:
            operations.append({"op": "replace", "path": f"/spec/devices/{here}", "value": after})
            here, there = here - 1, there - 1
    return operations


def _name(device: Json) -> str:
    return _text(device.get("name")) if isinstance(device, dict) else ""


def _with_version(body: Mapping[str, Json], version: str) -> ObservedSlice:
    metadata = {**_mapping(body.get("metadata")), "resourceVersion": version}
    return ObservedSlice.from_body({**body, "metadata": metadata})


def _mapping(value: Json) -> Mapping[str, Json]:
    return value if isinstance(value, dict) else {}


def _text(value: Json) -> str:
    return value if isinstance(value, str) else ""


def _number(value: Json) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) else 0
