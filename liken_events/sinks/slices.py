"""The slice sink: this node's ResourceSlice follows the inventory.

The API server validates a slice as a whole and names what it does not like; older ones drop fields
without a word; others delete slices (the kubelet at each start) or change them. The sink sees all
of it in the `SliceView` that a watch keeps fresh, and never reads for a change.

This file carries changes out and learns from the answers. What to change is decided in
`core.plan.slices`, how a home is spoken to in `cluster`, when to try again in `converge`.
"""

import math
import random
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import structlog
import trio

from liken_events.cluster import (
    Cause,
    Cluster,
    ClusterError,
    Conflict,
    Rejected,
    SliceView,
    Unavailable,
)
from liken_events.core.backoff import Backoff
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

UID_RETRY = Backoff(base=10.0, ceiling=600.0)
"""Pauses before the Node's uid is asked for again while it is not known. A server that has just
started can tell within seconds; a right has to be granted by a person, and a Node made by its
kubelet. At the ceiling two thousand nodes without the right ask 4.4 times a second together."""

_FIELD = re.compile(r"spec\.devices\[(\d+)\](\.attributes(?:\[([^\]]+)\])?)?")
"""How the API server names a device, its attributes, or one of them, in a complaint."""

_VALUE = re.compile(r'Invalid value: "([^"]*)"')
"""How it quotes what it complains of. Of an attribute's invalid name this is all that it says: the
part before the slash or the part after it."""

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
        self._outdated = 0
        self._uid_due = -1.0
        self._uid_failures = 0
        self._uid_trouble: str | None = None
        self._written: dict[str, ObservedSlice] = {}

    @property
    def number(self) -> int:
        """See `Sink.number`."""
        return self._view.latest.number

    async def wait_changed(self, number: int) -> None:
        """See `Sink.wait_changed`. It is also time to look if a slice has no owner, and the Node
        may be asked for again."""
        has_orphans = self._lacks_uid and bool(self._view.latest.get())
        with trio.move_on_at(self._uid_due if has_orphans else math.inf):
            await self._view.latest.wait_newer(number)

    async def observe(self) -> Observed:
        """See `Sink.observe`. Waits until the slices were listed once, and again after a conflict:
        a plan from what led to the first would lead to the next. So would one after a refused
        patch, if what is there is not what the patch was made for."""
        await self._view.latest.wait_newer(self._outdated)
        slices = self._view.latest.get()
        known = (*self._state.slices, *self._written.values())
        if {item.uid for item in known} - {item.uid for item in slices}:
            self._forget_uid()
            self._written.clear()
        if self._lacks_uid and trio.current_time() >= self._uid_due:
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
            self._look_again()
            raise SinkUnavailable(error.reason, at_once=True) from error
        except Rejected as error:
            if isinstance(change, PatchSlice) and not error.causes:
                # An API server applies the operations before it compares versions. If one does not
                # fit what is there, it answers 422 without a cause: a lost race by another name.
                self._look_again()
            raise SinkUnavailable(
                error.reason, at_once=self._learn(change, error.causes)
            ) from error

    def _look_again(self) -> None:
        """Has the slices be listed before the next plan."""
        self._outdated = self._view.latest.number
        self._view.doubt()

    @property
    def _lacks_uid(self) -> bool:
        return self._cluster.has_nodes and self._state.node_uid is None

    def _forget_uid(self) -> None:
        """Has the Node be asked for again. One that is deleted takes its slices with it and comes
        back under another uid; a slice with the old one would be collected as soon as it is made,
        again and again."""
        self._state = replace(self._state, node_uid=None)
        self._uid_due = -1.0

    async def _ask_uid(self) -> None:
        uid, trouble, asked = None, None, None
        try:
            uid = await self._cluster.node_uid(self._state.node)
        except ClusterError as error:  # whichever: a slice without an owner is better than none
            trouble = error.reason
            asked = error.retry_after if isinstance(error, Unavailable) else None
        if trouble is not None and trouble != self._uid_trouble:
            log.warning("slice.no_owner", node=self._state.node, reason=trouble)
        self._uid_trouble = trouble
        self._uid_failures = 0 if uid is not None else self._uid_failures + 1
        chance = random.random()  # noqa: S311  # jitter, no secret
        delay = UID_RETRY.delay(self._uid_failures, chance, asked)
        self._uid_due = trio.current_time() + delay
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
            found = _attributes(body, cause, match[3]) if match[2] else []
            if not found:
                whole[name] = dict(body)
            attributes |= {(name, *each) for each in found}
            log.error(
                "slice.refused_device",
                device=name,
                attribute=match[3] or ", ".join(each for each, _ in found),
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


def _attributes(
    device: Mapping[str, Json], cause: Cause, named: str | None
) -> list[tuple[str, Attribute]]:
    """Names and values of the attributes that a complaint is about.

    Args:
        device: whose attributes they are.
        cause: the complaint.
        named: the attribute that it names, with or without the driver's domain; None if it is
            about a name. Then it tells a part of that name, and of one that is too long not even
            that.
    """
    attributes = device.get("attributes")
    if not isinstance(attributes, dict):
        return []
    if named is not None:
        names = [each for each in (named, named.removeprefix("liken.sh/")) if each in attributes]
        names = names[:1]
    else:
        quoted = _VALUE.match(cause.message)
        told = quoted[1] if quoted else None
        names = [each for each in attributes if told in (each, *each.split("/", 1))]
    found: list[tuple[str, Attribute]] = []
    for name in names:
        value = attributes[name]
        content = value.get("string", value.get("bool")) if isinstance(value, dict) else None
        if isinstance(content, str | bool):
            found.append((name, content))
    return found
