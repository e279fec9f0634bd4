"""The record of a prepared claim, as JSON text, both ways.

A CDI spec of version 0.5.0 has no room for anything but names and nodes. What else has to be known
of a prepared claim after a restart, above all which unit it holds, stands in a small file of our
own. Slots and numbers mean something only until the next boot, so a record says in which boot it
was written.

This file writes and reads that text. Where the file is, and what becomes of one that cannot be
read, is left to `sinks.spec_files`; what the values mean is said in `core.model.prepared`.
"""

from typing import Final

from liken_events.core.model.claims import ClaimReference, is_device_name
from liken_events.core.model.json import Json, dump
from liken_events.core.model.names import printable
from liken_events.core.model.prepared import Prepared, PreparedDevice
from liken_events.core.model.reading import FORMAT_KEY, Place, ReadingError, parse
from liken_events.core.model.recording import key_from_json, node_from_json, plain
from liken_events.core.model.snapshot import Node

FORMAT: Final = 1
"""Version of the form; a reader refuses a higher one."""


def to_json(prepared: Prepared, boot: str) -> str:
    """The record as JSON text that ends with a newline.

    Args:
        prepared: the claim.
        boot: id of the boot that it was prepared in.
    """
    body: dict[str, Json] = {
        FORMAT_KEY: FORMAT,
        "boot": boot,
        "namespace": prepared.reference.namespace,
        "name": prepared.reference.name,
        "uid": prepared.reference.uid,
        "devices": [_device_to_json(device) for device in prepared.devices],
    }
    if prepared.stamp:
        body["stamp"] = prepared.stamp
    return dump(body, indent=2) + "\n"


def from_json(text: str) -> tuple[Prepared, str]:
    """The claim and the boot that it was prepared in.

    Raises:
        ReadingError: the text is no record; the message names the place.
    """
    top = parse(text, "the record", newest=FORMAT)
    reference = ClaimReference(
        namespace=top.text("namespace"), name=top.text("name"), uid=top.text("uid")
    )
    if not reference.is_valid:
        raise ReadingError("the record: 'uid' cannot be part of a file's name")
    devices = [_device_from_json(place) for place in top.places("devices")]
    if len({device.name for device in devices}) < len(devices):
        raise ReadingError("the record: two of its devices have one name")
    prepared = Prepared(
        reference=reference,
        devices=tuple(sorted(devices, key=lambda device: device.name)),
        stamp=top.text_or_none("stamp") or "",
    )
    return prepared, top.text("boot")


def _device_to_json(device: PreparedDevice) -> dict[str, Json]:
    out: dict[str, Json] = {
        "name": device.name,
        "bus": device.key.bus,
        "address": device.key.address,
        "shared": device.is_shared,
        "given": [plain(node) for node in device.given],
        "nodes": [plain(node) for node in device.nodes],
    }
    if device.vendor is not None:
        out["vendor"] = device.vendor
    if device.product is not None:
        out["product"] = device.product
    return out


def _device_from_json(place: Place) -> PreparedDevice:
    name = place.text("name")
    if not is_device_name(name):
        raise ReadingError(f"the record: '{printable(name)}' is no device")
    key = key_from_json(place)
    if "\0" in key.address:
        raise ReadingError(f"the record: '{printable(key.address)}' is no address")
    return PreparedDevice(
        name=name,
        key=key,
        vendor=place.text_or_none("vendor"),
        product=place.text_or_none("product"),
        is_shared=place.switch("shared"),
        given=_nodes_from_json(place, "given"),
        nodes=_nodes_from_json(place, "nodes"),
    )


def _nodes_from_json(place: Place, key: str) -> tuple[Node, ...]:
    found = tuple(node_from_json(item) for item in place.places(key))
    for node in found:
        if not node.path.startswith("/dev/") or "\0" in node.path:
            raise ReadingError(f"the record: '{printable(node.path)}' is no device node")
    return found
