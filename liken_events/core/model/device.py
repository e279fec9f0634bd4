"""What is offered of a machine's hardware, and what is held back.

One physical device becomes one or several published devices (a GPU's render node and its display
are different authorities over the same silicon), or none, and then there is a reason that a person
can read.

This file holds those three values. Who makes them is `core.model.publish`; who sends them on is
`core.plan`.
"""

from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TypeAlias

from liken_events.core.model.snapshot import Device, Key, Node

Attribute: TypeAlias = str | bool


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedDevice:
    """One entry of the ResourceSlice.

    Attributes:
        name: DNS label of at most 63 characters; names the slot.
        key: the physical device. All published devices of one physical device share it.
        nodes: what a claim delivers, sorted by path. No two published devices of one physical
            device share a node.
        shareable: more than one claim may hold it at a time (`allowMultipleAllocations`).
        attributes: name and value, sorted by name. Strings hold at most 64 bytes.
    """

    name: str
    key: Key
    nodes: tuple[Node, ...]
    shareable: bool = False
    attributes: tuple[tuple[str, Attribute], ...] = ()

    def __hash__(self) -> int:
        """By name alone: names are unique in an offer, and a hundred devices are looked up at each
        change."""
        return hash(self.name)


class Reason(StrEnum):
    """Why a device, or a part of it, is not published. The values are what commands print."""

    NO_DRIVER = "no-driver"
    BUS_STRUCTURE = "bus-structure"
    NO_NODES = "no-nodes"
    IN_USE = "in-use"
    STORAGE_UNKNOWN = "storage-unknown"
    IGNORED = "ignored"
    SAME_NAME = "same-name"
    OVER_LIMIT = "over-limit"


@dataclass(frozen=True, slots=True, kw_only=True)
class Withheld:
    """A judgement: this is not offered. `detail` is one sentence for a person, already safe to
    print."""

    reason: Reason
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """What became of one physical device: what it publishes, or why it is withheld, or both (over
    the limit)."""

    device: Device
    published: tuple[PublishedDevice, ...] = ()
    withheld: Withheld | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Cause:
    """Why an inventory was looked at again.

    Attributes:
        text: what the kernel said, such as `bind 1-2:1.0`.
        at: when the last event of the burst arrived, in seconds of the monotonic clock.
    """

    text: str
    at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Inventory:
    """All that one machine offers, and all that it holds back.

    Attributes:
        offered: sorted by name; names are unique.
        judgements: one for each physical device, sorted by key.
        causes: for each key that was looked at again since the start, why it was last. Left out of
            comparisons: two inventories that offer the same are equal however they came about.
    """

    offered: tuple[PublishedDevice, ...] = ()
    judgements: tuple[Judgement, ...] = ()
    causes: dict[Key, Cause] = field(default_factory=dict, compare=False, repr=False)

    def by_name(self) -> dict[str, PublishedDevice]:
        """The offered devices by their names."""
        return {device.name: device for device in self.offered}

    def judgement(self, key: Key) -> Judgement | None:
        """What became of one physical device; None if there is none."""
        place = bisect_left(self.judgements, key, key=lambda item: item.device.key)
        found = self.judgements[place : place + 1]
        return found[0] if found and found[0].device.key == key else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """What changed between two offers, by device name, each tuple sorted."""

    added: tuple[PublishedDevice, ...] = ()
    changed: tuple[tuple[PublishedDevice, PublishedDevice], ...] = ()
    removed: tuple[PublishedDevice, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.added or self.changed or self.removed)


def difference(before: Iterable[PublishedDevice], after: Iterable[PublishedDevice]) -> Difference:
    """What has to be said to somebody who knows `before` and is told `after`."""
    before, after = tuple(before), tuple(after)
    same = {*map(id, before)} & {*map(id, after)}  # mostly nearly all: not even compared
    old = {device.name: device for device in before if id(device) not in same}
    new = {device.name: device for device in after if id(device) not in same}
    return Difference(
        added=tuple(new[name] for name in sorted(new.keys() - old.keys())),
        changed=tuple(
            (old[name], new[name])
            for name in sorted(new.keys() & old.keys())
            if old[name] != new[name]
        ),
        removed=tuple(old[name] for name in sorted(old.keys() - new.keys())),
    )
