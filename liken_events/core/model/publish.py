"""From one physical device to what is published of it, or to the reason why nothing is.

The slice is an offer. The scheduler can allocate only what it lists, so what is left out of it is
the control: bus structure, hardware with no driver or no node, disks that the machine stands on,
and what the configuration ignores.

This file judges one device at a time and puts the judgements of a machine together. Which nodes
make which device is said in `core.model.shapes`; what is written where, in `core.plan`.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase

from liken_events.core.model.device import (
    Attribute,
    Cause,
    Inventory,
    Judgement,
    PublishedDevice,
    Reason,
    Withheld,
)
from liken_events.core.model.names import class_word, clean, cut, device_name, fits, printable
from liken_events.core.model.shapes import Shape, shapes
from liken_events.core.model.snapshot import Device, Key, Snapshot
from liken_events.core.model.storage import Dependence, dependence

BUS_STRUCTURE = frozenset({"usb", "hub", "pcieport"})
"""Drivers of what peripherals attach to."""

MAX_OFFERED = 128
"""Devices that one ResourceSlice holds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """What the configuration says about publishing.

    Attributes:
        ignore: glob patterns; a device that one of them matches by address, name, `vendor:product`
            or `driver=<driver>` is not published.
        limit: devices that are offered at most; None for all (a pool that is divided over several
            slices).
    """

    ignore: tuple[str, ...] = ()
    limit: int | None = MAX_OFFERED


def judge(device: Device, depends: Dependence, policy: Policy) -> Judgement:
    """What becomes of one physical device."""
    withheld = _withhold(device, depends, policy)
    if withheld is not None:
        return Judgement(device=device, withheld=withheld)
    found = shapes(device)
    if not found:
        driver = printable(device.driver or "")
        detail = f"{driver} registers no device node"
        return Judgement(device=device, withheld=Withheld(reason=Reason.NO_NODES, detail=detail))
    common = _common_attributes(device)
    published = tuple(
        PublishedDevice(
            name=device_name(device.key, shape.suffix),
            key=device.key,
            nodes=shape.nodes,
            shareable=shape.shareable,
            attributes=tuple(sorted({**common, **_shape_attributes(shape)}.items())),
        )
        for shape in found
    )
    return Judgement(device=device, published=published)


def assemble(
    judgements: Iterable[Judgement], policy: Policy, causes: Mapping[Key, Cause] | None = None
) -> Inventory:
    """Puts the judgements of one machine together: names are unique, and there are not too many of
    them.

    Args:
        judgements: in any order, one for each key.
        policy: holds the limit.
        causes: carried along, see `Inventory.causes`.
    """
    ordered = sorted(judgements, key=lambda judgement: judgement.device.key)
    owners: dict[str, PublishedDevice] = {}
    for judgement in ordered:
        for device in judgement.published:
            owners.setdefault(device.name, device)
    names = sorted(owners)
    kept = set(names if policy.limit is None else names[: policy.limit])
    if len(kept) < sum(len(judgement.published) for judgement in ordered):
        ordered = [
            restrict(judgement, policy, owner=owners.__getitem__, kept=kept.__contains__)
            for judgement in ordered
        ]
    return Inventory(
        offered=tuple(owners[name] for name in names if name in kept),
        judgements=tuple(ordered),
        causes=dict(causes or {}),
    )


def inventory(snapshot: Snapshot, policy: Policy | None = None) -> Inventory:
    """All that a machine offers and holds back, from one look at it."""
    rules = policy or Policy()
    depends = dependence(snapshot.storage)
    return assemble((judge(device, depends, rules) for device in snapshot.devices), rules)


def restrict(
    judgement: Judgement,
    policy: Policy,
    *,
    owner: Callable[[str], PublishedDevice],
    kept: Callable[[str], bool],
) -> Judgement:
    """Takes out of a judgement what the whole machine has no room for.

    Args:
        judgement: of one device, as if it were alone.
        policy: holds the limit.
        owner: the device that has a name which several may claim.
        kept: whether a name is within the limit.
    """
    left = tuple(d for d in judgement.published if owner(d.name) is d and kept(d.name))
    lost = [device.name for device in judgement.published if device not in left]
    if not lost:
        return judgement
    twin = owner(lost[0])
    if twin.key != judgement.device.key:
        withheld = Withheld(
            reason=Reason.SAME_NAME,
            detail=f"{lost[0]} is the name of {twin.key.bus} {printable(twin.key.address)} too",
        )
    else:
        withheld = Withheld(
            reason=Reason.OVER_LIMIT,
            detail=f"a slice holds {policy.limit} devices; left out by name: {', '.join(lost)}",
        )
    return replace(judgement, published=left, withheld=withheld)


def _withhold(device: Device, depends: Dependence, policy: Policy) -> Withheld | None:
    if device.driver is None:
        return Withheld(reason=Reason.NO_DRIVER, detail="no kernel driver is bound to it")
    if device.driver in BUS_STRUCTURE:
        return Withheld(
            reason=Reason.BUS_STRUCTURE, detail="peripherals attach to it, it is none itself"
        )
    for pattern in policy.ignore:
        if any(fnmatchcase(handle, pattern) for handle in _handles(device)):
            return Withheld(
                reason=Reason.IGNORED, detail=f"the configuration ignores '{printable(pattern)}'"
            )
    return depends.withhold(device)


def _handles(device: Device) -> tuple[str, ...]:
    """The texts by which a configuration may mean this device."""
    return (
        device.key.address,
        device_name(device.key),
        f"{device.vendor}:{device.product}",
        f"driver={device.driver}",
    )


def _common_attributes(device: Device) -> dict[str, Attribute]:
    """What every published device of one physical device says, without what the hardware lacks."""
    code = _identifier(device.class_code)
    found = {
        "bus": device.key.bus,
        "address": _identifier(device.key.address),
        "driver": _identifier(device.driver),
        "class": class_word(device.key, code),
        "classCode": code,
        "name": _words(device),
        "modalias": _identifier(device.modalias),
        "serial": _free_text(device.serial),
        "vendor": _identifier(device.vendor),
        "product": _identifier(device.product),
    }
    return {name: value for name, value in found.items() if value is not None}


def _shape_attributes(shape: Shape) -> dict[str, Attribute]:
    found: dict[str, Attribute] = {}
    subsystem = _identifier(shape.subsystem)
    if subsystem is not None:
        found["subsystem"] = subsystem
    if shape.render:
        found["renderNode"] = True
    if shape.display:
        found["displayNode"] = True
    if shape.sound:
        found["sound.liken.sh/supportsSound"] = True
    return found


def _words(device: Device) -> str | None:
    """The device's name in words; on PCI as far as the database knows it, and its numbers where it
    does not."""
    maker, model = clean(device.maker), clean(device.model)
    if device.key.bus == "pci":
        if maker is None:
            model = None
            known = device.vendor is not None and device.product is not None
            maker = f"{device.vendor}:{device.product}" if known else None
        elif model is None:
            model = device.product
    return _free_text(" ".join(word for word in (maker, model) if word is not None))


def _identifier(text: str | None) -> str | None:
    """A value that something is compared with. One that does not fit is left out: half of it would
    match wrongly.

    A `modalias` can be longer than the API's limit (an input device's lists every key); those of
    PCI functions and USB interfaces have 45 to 53 characters.
    """
    cleaned = clean(text)
    return cleaned if cleaned is not None and fits(cleaned) else None


def _free_text(text: str | None) -> str | None:
    cleaned = clean(text)
    return None if cleaned is None else cut(cleaned)
