"""The slice sink: this node's ResourceSlice follows the inventory.

The API server validates a slice as a whole and names what it does not like; older ones drop fields
without a word; others delete slices (the kubelet at each start) or change them. The sink sees all
of it in the `SliceView` that a watch keeps fresh, and never reads for a change.

This file carries changes out and learns from the answers. What to change is decided in
`core.plan.slices`, how a home is spoken to in `cluster`, when to try again in `converge`.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import structlog
import trio

from liken_events.cluster import Cause, Cluster, Conflict, Rejected, SliceView, Unavailable
from liken_events.core.model.device import Attribute, Inventory
from liken_events.core.model.json import Json
from liken_events.core.plan.slice_body import SHAREABLE, Learned
from liken_events.core.plan.slices import (
    CreateSlice,
    DeleteSlice,
    Observed,
    ObservedSlice,
    PatchSlice,
    SliceChange,
    plan,
)
from liken_events.sinks import SinkUnavailable

UID_RETRY_SECONDS = 300.0
"""How long to go on without the Node's uid before asking again: somebody has to grant the right to
read it first."""

_FIELD = re.compile(r"spec\.devices\[(\d+)\](?:\.attributes\[([^\]]+)\])?")
"""How the API server names a device, or one of its attributes, in a complaint."""

log = structlog.get_logger()


def plan_slices(observed: Observed, inventory: Inventory) -> Sequence[SliceChange]:
    """The sink's plan: see `core.plan.slices.plan`."""
    return plan(observed, inventory.offered)


class SliceSink:
    """Observes and changes one node's slices.

    Attributes:
        name: `slices`.
    """

    name = "slices"

    def __init__(
        self, cluster: Cluster, view: SliceView, node: str, *, divide: bool = False
    ) -> None:
        self._cluster = cluster
        self._view = view
        self._state = Observed(node=node, divide=divide)
        self._uid_due = -1.0
        self._written: dict[str, ObservedSlice] = {}

    @property
    def number(self) -> int:
        """See `Sink.number`."""
        return self._view.latest.number

    async def wait_changed(self, number: int) -> None:
        """See `Sink.wait_changed`."""
        await self._view.latest.wait_newer(number)

    async def observe(self) -> Observed:
        """See `Sink.observe`. Waits until the slices were listed once."""
        await self._view.latest.wait_newer(0)
        slices = self._view.latest.get()
        known = (*self._state.slices, *self._written.values())
        if {item.uid for item in known} - {item.uid for item in slices}:
            self._forget_uid()
            self._written.clear()
        if self._state.node_uid is None and trio.current_time() >= self._uid_due:
            await self._ask_uid()
            slices = self._view.latest.get()
        learned = replace(
            self._state.learned,
            dropped=self._state.learned.dropped | self._newly_dropped(slices),
        )
        generation = max([self._state.last_generation, *(item.generation for item in slices)])
        self._state = replace(
            self._state, slices=slices, last_generation=generation, learned=learned
        )
        return self._state

    async def apply(self, change: SliceChange) -> None:
        """See `Sink.apply`."""
        try:
            match change:
                case CreateSlice():
                    self._took(await self._cluster.create_slice(change))
                    log.info("slice.created", slice=change.name)
                case PatchSlice():
                    self._took(await self._cluster.patch_slice(change))
                    log.debug(
                        "slice.patched", slice=change.name, operations=len(change.operations)
                    )
                case DeleteSlice():
                    await self._cluster.delete_slice(change)
                    self._view.drop(change.name, change.version)
                    log.info("slice.deleted", slice=change.name)
        except Unavailable as error:
            raise SinkUnavailable(error.reason, retry_after=error.retry_after) from error
        except Conflict as error:
            self._forget_uid()
            self._view.doubt()
            raise SinkUnavailable(error.reason, at_once=True) from error
        except Rejected as error:
            raise SinkUnavailable(
                error.reason, at_once=self._learn(change, error.causes)
            ) from error

    def _forget_uid(self) -> None:
        """Has the Node be asked for again. One that is deleted takes its slices with it and comes
        back under another uid; a slice with the old one would be collected as soon as it is made,
        again and again."""
        self._state = replace(self._state, node_uid=None)
        self._uid_due = -1.0

    async def _ask_uid(self) -> None:
        try:
            uid = await self._cluster.node_uid(self._state.node)
        except Unavailable as error:
            log.warning("slice.no_owner", node=self._state.node, reason=error.reason)
            uid = None
        self._uid_due = trio.current_time() + UID_RETRY_SECONDS
        self._state = replace(self._state, node_uid=uid)

    def _took(self, outcome: ObservedSlice) -> None:
        # Somebody may delete it before it is observed, and its generation is used up all the same.
        generation = max(self._state.last_generation, outcome.generation)
        self._state = replace(self._state, last_generation=generation)
        self._written[outcome.name] = outcome
        self._view.put(outcome.body)

    def _newly_dropped(self, slices: Sequence[ObservedSlice]) -> frozenset[str]:
        """Fields that were sent in our last write and are missing in what the server made of
        it."""
        if SHAREABLE in self._state.learned.dropped:
            return frozenset()
        for item in slices:
            sent = self._written.get(item.name)
            if sent is None or sent.version != item.version or sent.body is item.body:
                continue
            kept = dict(_devices(item.body))
            for name, device in _devices(sent.body):
                if device.get(SHAREABLE) and not kept.get(name, device).get(SHAREABLE):
                    log.warning("slice.field_dropped", field=SHAREABLE, slice=item.name)
                    return frozenset({SHAREABLE})
        return frozenset()

    def _learn(self, change: SliceChange, causes: Sequence[Cause]) -> bool:
        """Leaves out what the server complained of, and nothing else. False if it named nothing of
        ours."""
        if isinstance(change, DeleteSlice):
            return False
        devices = list(_devices(change.body))
        attributes: set[tuple[str, str, Attribute]] = set()
        whole: dict[str, Json] = {}
        for cause in causes:
            match = _FIELD.match(cause.field)
            if match is None or int(match[1]) >= len(devices):
                continue
            name, body = devices[int(match[1])]
            found = _attribute(body, match[2]) if match[2] else None
            if found is None:
                whole[name] = dict(body)
            else:
                attributes.add((name, *found))
            log.error(
                "slice.refused_device",
                device=name,
                attribute=match[2] or "",
                reason=cause.message,
                result="left out until it changes",
            )
        learned = self._state.learned
        self._state = replace(
            self._state,
            learned=Learned(
                dropped=learned.dropped,
                attributes=learned.attributes | attributes,
                devices={**learned.devices, **whole},
            ),
        )
        return bool(attributes or whole)


def _devices(body: Mapping[str, Json]) -> Iterator[tuple[str, Mapping[str, Json]]]:
    """Name and body of each device of a slice."""
    spec = body.get("spec")
    devices = spec.get("devices") if isinstance(spec, dict) else None
    for device in devices if isinstance(devices, list) else []:
        if isinstance(device, dict):
            yield str(device.get("name", "")), device


def _attribute(device: Mapping[str, Json], named: str) -> tuple[str, Attribute] | None:
    """Name and value of the attribute that a complaint names, with or without the driver's
    domain."""
    attributes = device.get("attributes")
    if not isinstance(attributes, dict):
        return None
    for name in (named, named.removeprefix("liken.sh/")):
        value = attributes.get(name)
        if isinstance(value, dict):
            content = value.get("string", value.get("bool"))
            if isinstance(content, str | bool):
                return name, content
    return None
