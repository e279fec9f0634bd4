"""A snapshot as JSON text, both ways.

A user's machine, written down with one command, is a test fixture and a bug report. So the text is
meant to be read and cut by hand: two spaces of indent, absent values left out, and an error that
names the place that is wrong.

What the values mean is said in `core.model.snapshot`.
"""

from dataclasses import fields

from liken_events.core.model.json import Json, dump
from liken_events.core.model.names import printable
from liken_events.core.model.reading import FORMAT_KEY, Place, ReadingError, parse
from liken_events.core.model.snapshot import (
    Bus,
    Device,
    Disk,
    Key,
    Node,
    Snapshot,
    Storage,
    Use,
    sort_devices,
    sort_disks,
    sort_nodes,
    sort_uses,
)

FORMAT = 1
"""Version of the JSON form. A reader refuses a higher one: it cannot know what it would leave
out."""


def to_json(snapshot: Snapshot) -> str:
    """The snapshot as JSON text that ends with a newline and can be encoded as UTF-8.

    A mount point that is not UTF-8 is known with surrogates in place of its odd bytes
    (`surrogateescape`); those are written as escapes.
    """
    storage = snapshot.storage
    body: dict[str, Json] = {
        FORMAT_KEY: FORMAT,
        "devices": [_device_to_json(device) for device in snapshot.devices],
        "storage": {
            "uses": [plain(use) for use in storage.uses],
            "disks": [plain(disk) for disk in storage.disks],
            **({} if storage.unknown is None else {"unknown": storage.unknown}),
        },
    }
    return dump(body, indent=2) + "\n"


def from_json(text: str) -> Snapshot:
    """Reads what `to_json` wrote.

    Raises:
        ReadingError: the text is no JSON, or a value is missing or of the wrong type; the
            message says which.
    """
    top = parse(text, "the snapshot", newest=FORMAT)
    storage = top.place("storage")
    return Snapshot(
        devices=sort_devices(_device_from_json(place) for place in top.places("devices")),
        storage=Storage(
            uses=sort_uses(_use_from_json(place) for place in storage.places("uses")),
            disks=sort_disks(_disk_from_json(place) for place in storage.places("disks")),
            unknown=storage.text_or_none("unknown"),
        ),
    )


def plain(value: Node | Disk | Use) -> dict[str, Json]:
    """A flat value as JSON: fields that have their defaults are left out, except the minor
    number."""
    out: dict[str, Json] = {}
    for item in fields(value):
        content = getattr(value, item.name)
        if content != item.default or item.name == "minor":
            out[item.name] = list(content) if isinstance(content, tuple) else content
    return out


def _device_to_json(device: Device) -> dict[str, Json]:
    out: dict[str, Json] = {
        "bus": device.key.bus,
        "address": device.key.address,
        "path": device.path,
    }
    for name in _TEXTS:
        content: str | None = getattr(device, name)
        if content is not None:
            out[name] = content
    if device.nodes:
        out["nodes"] = [plain(node) for node in device.nodes]
    if device.bus_node is not None:
        out["bus_node"] = plain(device.bus_node)
    if device.hidden_disks:
        out["hidden_disks"] = list(device.hidden_disks)
    return out


_TEXTS = ("driver", "modalias", "vendor", "product", "class_code", "serial", "maker", "model")


def key_from_json(place: Place) -> Key:
    """A slot from its `bus` and `address`. Raises ReadingError."""
    bus = place.text("bus")
    buses: dict[str, Bus] = {"pci": "pci", "usb": "usb"}
    if bus not in buses:
        raise ReadingError(f"bus '{printable(bus)}' is neither pci nor usb")
    return Key(bus=buses[bus], address=place.text("address"))


def _device_from_json(place: Place) -> Device:
    raw_bus_node = place.place("bus_node") if place.has("bus_node") else None
    texts = {name: place.text_or_none(name) for name in _TEXTS}
    return Device(
        key=key_from_json(place),
        path=place.text("path"),
        nodes=sort_nodes(node_from_json(node) for node in place.places("nodes")),
        bus_node=None if raw_bus_node is None else node_from_json(raw_bus_node),
        hidden_disks=tuple(sorted(place.texts("hidden_disks"))),
        **texts,
    )


def node_from_json(place: Place) -> Node:
    """A node from what `plain` made of it. Raises ReadingError."""
    return Node(
        path=place.text("path"),
        subsystem=place.text_or_none("subsystem"),
        major=place.integer("major", 0),
        minor=place.integer("minor", 0),
        place=place.text_or_none("place") or "",
    )


def _disk_from_json(place: Place) -> Disk:
    return Disk(
        name=place.text("name"),
        number=place.text("number"),
        whole=place.text_or_none("whole"),
        slaves=place.texts("slaves"),
        mapper=place.text_or_none("mapper"),
        btrfs=place.texts("btrfs"),
    )


def _use_from_json(place: Place) -> Use:
    return Use(
        what=place.text("what"),
        fstype=place.text("fstype"),
        source=place.text("source"),
        number=place.text_or_none("number"),
    )
