"""What changed in an offer, and why, told to somebody.

A person who plugs in a stick wants one line: what appeared, what made it appear, how long it took.
The log, the `watch` command and the simulation all tell the same.

This file compares two offers and gives one value for each change. How a change is shown is left to
`tables` and `log`.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal, TypeAlias

import structlog

from liken_events.core.model.device import Inventory, PublishedDevice, difference
from liken_events.core.model.json import Json

Kind: TypeAlias = Literal["added", "changed", "removed"]

log = structlog.get_logger()


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One device that is offered now and was not, or was and is not, or is another now.

    Attributes:
        kind: what happened to the offer.
        device: the device as it is now; as it was, if it was removed.
        details: what differs (`nodes`, names of attributes), or why it was removed.
        cause: what the kernel said, `""` at the first look.
        seconds: from the last event of the burst until now; None at the first look.
    """

    kind: Kind
    device: PublishedDevice
    details: tuple[str, ...] = ()
    cause: str = ""
    seconds: float | None = None

    @property
    def nodes(self) -> list[str]:
        """Paths of the device's nodes."""
        return [node.path for node in self.device.nodes]

    def to_json(self) -> dict[str, Json]:
        """The change as one JSON object."""
        return {
            "change": self.kind,
            "device": self.device.name,
            "nodes": list(self.nodes),
            "details": list(self.details),
            "cause": self.cause,
            "milliseconds": None if self.seconds is None else round(self.seconds * 1000, 1),
        }


def changes(
    before: Iterable[PublishedDevice], inventory: Inventory, now: float
) -> Iterator[Change]:
    """All changes from one offer to an inventory's, in the order added, changed, removed, each by
    name.

    Args:
        before: the offer that was known.
        inventory: the one that is known now, with its causes.
        now: seconds of the monotonic clock, as in the causes.
    """
    found = difference(before, inventory.offered)
    listed: list[tuple[Kind, PublishedDevice, tuple[str, ...]]] = [
        *(("added", device, ()) for device in found.added),
        *(("changed", new, _differing(old, new)) for old, new in found.changed),
    ]
    for device in found.removed:
        judgement = inventory.judgement(device.key)
        if judgement is None:
            detail = "gone"
        elif judgement.withheld is None:
            detail = "no longer a part of it"
        else:
            detail = f"{judgement.withheld.reason}: {judgement.withheld.detail}"
        listed.append(("removed", device, (detail,)))
    for kind, device, details in listed:
        cause = inventory.causes.get(device.key)
        yield Change(
            kind=kind,
            device=device,
            details=details,
            cause="" if cause is None else cause.text,
            seconds=None if cause is None else now - cause.at,
        )


def log_change(change: Change) -> None:
    """One log line for one change."""
    log.info(
        f"device.{change.kind}",
        device=change.device.name,
        nodes=change.nodes,
        cause=change.cause,
        **({"details": list(change.details)} if change.details else {}),
        **({} if change.seconds is None else {"milliseconds": round(change.seconds * 1000, 1)}),
    )


def _differing(old: PublishedDevice, new: PublishedDevice) -> tuple[str, ...]:
    before, after = dict(old.attributes), dict(new.attributes)
    names = [name for name in sorted(before | after) if before.get(name) != after.get(name)]
    if old.nodes != new.nodes:
        names.insert(0, "nodes")
    if old.shareable != new.shareable:
        names.insert(0, "shareable")
    return tuple(names)
