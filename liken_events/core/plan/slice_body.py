"""How a published device is written in a ResourceSlice.

The API server validates a slice as a whole: one bad value refuses all devices of the node. Older
servers drop fields that they do not know yet, without a word. Both are learned from, so that one
odd device never keeps the others away and a dropped field does not make the agent write for ever.

This file holds the form of a device, the limits of the API, and what was learned. Which slices to
change is decided in `core.plan.slices`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from liken_events.core.model.device import Attribute, PublishedDevice
from liken_events.core.model.json import Json

API_VERSION = "resource.k8s.io/v1"
DRIVER = "liken.sh"

SHAREABLE = "allowMultipleAllocations"

MAX_DEVICES = 128
"""Devices in one slice without taints or counters; the API server answers 422 to 129."""

KEPT_BODIES = 1024
"""Bodies kept: of all devices of a machine with a divided pool, at some 2 KB each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Learned:
    """What the other side was found to do.

    Attributes:
        dropped: fields of a device that it silently drops (`allowMultipleAllocations` with an old
            server).
        attributes: device name, attribute and value that it refused: left out while the value
            stays.
        devices: by name, the devices that it refused as a whole, as they were sent: left out while
            they stay so.
    """

    dropped: frozenset[str] = frozenset()
    attributes: frozenset[tuple[str, str, Attribute]] = frozenset()
    devices: Mapping[str, Json] = field(default_factory=dict)


def slice_name(node: str, index: int = 0) -> str:
    """`<node>-liken.sh`, and `<node>-liken.sh-<index>` for the further slices of a divided
    pool."""
    return f"{node}-{DRIVER}" + (f"-{index}" if index else "")


def device_bodies(devices: Sequence[PublishedDevice], learned: Learned) -> list[Json]:
    """The devices as a slice holds them, without those that were refused as a whole.

    The same device gives the same object again, so that comparing and writing slices costs little.
    It must not be changed.
    """
    dropped, attributes, whole = learned.dropped, learned.attributes, learned.devices
    bodies = [_body(device, dropped, attributes) for device in devices]
    if not whole:
        return bodies
    return [
        body
        for device, body in zip(devices, bodies, strict=True)
        if whole.get(device.name) != body
    ]


@lru_cache(maxsize=KEPT_BODIES)
def _body(
    device: PublishedDevice,
    dropped: frozenset[str],
    refused: frozenset[tuple[str, str, Attribute]],
) -> Json:
    attributes: dict[str, Json] = {
        name: {"bool": value} if isinstance(value, bool) else {"string": value}
        for name, value in device.attributes
        if (device.name, name, value) not in refused
    }
    body: dict[str, Json] = {"name": device.name}
    if attributes:
        body["attributes"] = attributes
    if device.shareable and SHAREABLE not in dropped:
        body[SHAREABLE] = True
    return body
