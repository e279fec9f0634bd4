"""A ResourceSlice as a YAML file.

The file is for people, so it is YAML and not JSON. A slice of 128 devices takes 44 ms to emit as a
whole, and a change touches one device of it.

This file emits each device once and keeps the text while the device stays the same. Where the text
goes is left to `cluster.directory`.
"""

from collections.abc import Mapping

from liken_events.cluster.plain_yaml import NotPlain, emit, load
from liken_events.core.model.json import Json

KEPT_TEXTS = 1024
"""Texts kept, also of devices that left and may be back: eight full slices, at half a kilobyte
each."""

_INDENT = "    "


class Emitter:
    """Writes versions of one slice as YAML text. Bodies must not be changed after they were
    written: what is the same object is taken for the same device."""

    def __init__(self) -> None:
        self._texts: dict[str, tuple[Json, str]] = {}

    def dump(self, body: Mapping[str, Json]) -> str:
        """The object as text. Every string comes back as it was, whatever characters it holds."""
        spec = body.get("spec")
        devices = spec.get("devices") if isinstance(spec, dict) else None
        if not isinstance(spec, dict) or not isinstance(devices, list) or not devices:
            return emit(dict(body))
        # `devices` is written last, at the end of `spec`, which is written last.
        head = emit(
            {
                **{name: value for name, value in body.items() if name != "spec"},
                "spec": {name: value for name, value in spec.items() if name != "devices"},
            }
        )
        if len(self._texts) > KEPT_TEXTS:
            self._texts = {}
        items = []
        for device in devices:
            name = str(device.get("name")) if isinstance(device, dict) else ""
            kept = self._texts.get(name)
            if kept is None or (kept[0] is not device and kept[0] != device):
                kept = self._texts[name] = device, _list_item(device)
            items.append(kept[1])
        return f"{head}  devices:\n{''.join(items)}"


def dump_slice(body: Mapping[str, Json]) -> str:
    """One slice as YAML text; see `Emitter.dump`."""
    return Emitter().dump(body)


def load_slice(text: str) -> dict[str, Json] | None:
    """The object in a file; None if the text is no YAML, or no object with metadata and spec."""
    try:
        body = load(text)
    except NotPlain:
        return None
    if not isinstance(body, dict) or body.get("kind") != "ResourceSlice":
        return None
    if not isinstance(body.get("metadata"), dict) or not isinstance(body.get("spec"), dict):
        return None
    return body


def _list_item(device: Json) -> str:
    """A device as one item of the list below `devices:`."""
    lines = emit(device).rstrip("\n").split("\n")
    return f"  - {lines[0]}\n" + "".join(f"{_INDENT}{line}\n" for line in lines[1:])
