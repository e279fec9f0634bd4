"""What a prepared claim holds, and how that stands on this machine now.

A claim is prepared once and held for days. Meanwhile the device may be unplugged and come back
under other numbers, another device may be put into its place, a program may detach its driver,
and the kernel gives its old numbers to somebody else. A prepared device is therefore known by its
slot, vendor and product, never by a number, and what it is now is looked up each time.

This file holds the prepared device, resolves an allocated name against a fresh look, and judges
whether a held device is there. What is written for it is decided in `core.plan.cdi`, how it fares
in `core.model.health`.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum

from liken_events.core.model.claims import Allocated, ClaimReference, Refused
from liken_events.core.model.device import Judgement
from liken_events.core.model.names import device_name, printable
from liken_events.core.model.shapes import PARTS, is_render, shapes
from liken_events.core.model.snapshot import Device, Key, Node


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedDevice:
    """One device that a claim holds.

    Attributes:
        name: the published name that was allocated.
        key: its slot.
        vendor, product: four hex digits each, as they were when the claim was prepared; None where
            the device had none.
        is_shared: more than one claim may hold it: it is shareable, or was allocated to an
            administrator.
        given: the nodes that containers were given when the claim was prepared.
        nodes: the nodes that it delivered when it was last there.
    """

    name: str
    key: Key
    vendor: str | None = None
    product: str | None = None
    is_shared: bool = False
    given: tuple[Node, ...] = ()
    nodes: tuple[Node, ...] = ()

    @property
    def is_render_share(self) -> bool:
        """Whether what was given is what a graphics driver shares out among many."""
        own = [node for node in self.given if node.subsystem != "usb"]
        return self.is_shared and bool(own) and all(map(is_render, own))

    @property
    def model(self) -> str:
        """`vendor:product`, for people and for the table of aliases."""
        return _model(self.vendor, self.product)


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """A prepared claim and its devices, sorted by name; a device occurs once.

    Attributes:
        stamp: another one each time that the claim is prepared, by whichever instance.
    """

    reference: ClaimReference
    devices: tuple[PreparedDevice, ...] = ()
    stamp: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Aliases:
    """Models that are one: a device that loads its firmware comes back with other ids.

    Attributes:
        groups: each a set of `vendor:product`, in lower case.
    """

    groups: tuple[frozenset[str], ...] = ()

    def same(self, one: str, other: str) -> bool:
        """Whether two models are the same, or are listed as one."""
        return one == other or any({one, other} <= group for group in self.groups)


NO_ALIASES = Aliases()


class Presence(StrEnum):
    """Whether a held device is there. The values are what commands print."""

    THERE = "there"
    DETACHED = "detached"
    """Without its driver: a program works it through its usbfs node alone."""
    AWAY = "away"
    REPLACED = "replaced"
    """Another model is in its slot."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sight:
    """What a look found of a held device.

    Attributes:
        presence: whether it is there.
        nodes: what it delivers now; none unless it is there or detached.
        found: the model that is in its slot, `""` if nothing is.
    """

    presence: Presence
    nodes: tuple[Node, ...] = ()
    found: str = ""

    @property
    def is_usable(self) -> bool:
        """Whether the nodes are the device's own, now."""
        return self.presence in (Presence.THERE, Presence.DETACHED)


def is_called(key: Key, name: str) -> bool:
    """Whether a published name belongs to a slot: the bare name, or one with the suffix of a
    part."""
    return any(device_name(key, part) == name for part in PARTS)


def resolve(
    allocated: Allocated,
    judgement: Judgement | None,
    held: PreparedDevice | None = None,
    aliases: Aliases = NO_ALIASES,
) -> PreparedDevice | Refused:
    """What an allocated name stands for on this machine now.

    Args:
        allocated: the name.
        judgement: of a fresh look at the slot; None if nothing is there.
        held: what the same claim was prepared with before, if it was.
        aliases: models that are one.

    Returns:
        The device; or why it cannot be prepared. A name stands for a slot, but a claim that was
        prepared with one model is not handed another.
    """
    name = printable(allocated.device)
    if judgement is None:
        return Refused(reason=f"{name} is not on this machine now")
    device = judgement.device
    if held is not None:
        seen = look_at(held, judgement, aliases)
        if seen.presence is Presence.REPLACED:
            return Refused(
                reason=f"{name} is another model now: {seen.found} instead of {held.model}"
            )
        if seen.is_usable:  # also if it is withheld by now: the claim has it
            return _prepared(allocated, device, seen.nodes, is_shared=held.is_shared)
    for published in judgement.published:
        if published.name == allocated.device:
            return _prepared(allocated, device, published.nodes, is_shared=published.shareable)
    if judgement.withheld is not None:
        withheld = judgement.withheld
        return Refused(reason=f"{name} is withheld: {withheld.reason}: {withheld.detail}")
    return Refused(reason=f"{name} is no part of its device now")


def look_at(
    held: PreparedDevice, judgement: Judgement | None, aliases: Aliases = NO_ALIASES
) -> Sight:
    """How a held device stands.

    What the machine does with it since (a disk that somebody mounted) does not matter: the claim
    holds it already.
    """
    if judgement is None:
        return Sight(presence=Presence.AWAY)
    device = judgement.device
    found = _model(device.vendor, device.product)
    if not aliases.same(held.model, found):
        return Sight(presence=Presence.REPLACED, found=found)
    for shape in shapes(device) if device.driver is not None else ():
        if device_name(held.key, shape.suffix) == held.name:
            if held.is_render_share and not shape.shareable:
                break  # another driver's: what several may hold has become what one may
            return Sight(presence=Presence.THERE, nodes=shape.nodes, found=found)
    is_primary = device_name(held.key) == held.name
    if is_primary and device.bus_node is not None and not device.nodes:
        return Sight(presence=Presence.DETACHED, nodes=(device.bus_node,), found=found)
    return Sight(presence=Presence.AWAY, found=found)


def holder(wanted: PreparedDevice, others: Iterable[Prepared]) -> Prepared | None:
    """The claim that has a device for itself already, if it is wanted for oneself too."""
    if wanted.is_shared:
        return None
    for other in others:
        for device in other.devices:
            if device.name == wanted.name and (not device.is_shared or device.is_render_share):
                return other
    return None


def _prepared(
    allocated: Allocated, device: Device, nodes: tuple[Node, ...], *, is_shared: bool
) -> PreparedDevice:
    return PreparedDevice(
        name=allocated.device,
        key=device.key,
        vendor=device.vendor,
        product=device.product,
        is_shared=is_shared or allocated.is_admin,
        given=nodes,
        nodes=nodes,
    )


def _model(vendor: str | None, product: str | None) -> str:
    return printable(f"{vendor or '-'}:{product or '-'}")
