"""A ResourceSlice as a YAML file.

The file is for people, so it is YAML and not JSON. A slice of 128 devices takes 44 ms to emit as a
whole, and a change touches one device of it.

This file emits each device once and keeps the text while the device stays the same. Where the text
goes is left to `cluster.directory`.
"""

import json
from collections.abc import Mapping
from functools import lru_cache

import yaml

from liken_events.core.model.json import Json

KEPT_DEVICES = 1024
"""Device texts kept: some slices of 128 devices, at half a kilobyte each."""

_INDENT = "    "


def dump_slice(body: Mapping[str, Json]) -> str:
    """The object as YAML text. Every string comes back as it was, whatever characters it holds."""
    spec = body.get("spec")
    devices = spec.get("devices") if isinstance(spec, dict) else None
    if not isinstance(spec, dict) or not isinstance(devices, list) or not devices:
        return _emit(dict(body))
    # `devices` is written last, at the end of `spec`, which is written last.
    head = _emit(
        {
            **{name: value for name, value in body.items() if name != "spec"},
            "spec": {name: value for name, value in spec.items() if name != "devices"},
        }
    )
    items = [_device(json.dumps(device, ensure_ascii=False)) for device in devices]
    return f"{head}  devices:\n{''.join(items)}"


def load_slice(text: str) -> dict[str, Json] | None:
    """The object in a file; None if the text is no YAML, or no object with metadata and spec."""
    try:
        body = yaml.load(text, Loader=yaml.CSafeLoader)
    except (yaml.YAMLError, ValueError, RecursionError):
        return None
    if not isinstance(body, dict) or body.get("kind") != "ResourceSlice":
        return None
    if not isinstance(body.get("metadata"), dict) or not isinstance(body.get("spec"), dict):
        return None
    return body


@lru_cache(maxsize=KEPT_DEVICES)
def _device(text: str) -> str:
    """One list item below `devices:`, from the device as JSON text (which, unlike the object, can
    be a cache's key)."""
    lines = _emit(json.loads(text)).rstrip("\n").split("\n")
    return f"  - {lines[0]}\n" + "".join(f"{_INDENT}{line}\n" for line in lines[1:])


def _emit(value: Json) -> str:
    text: str = yaml.dump(
        value, Dumper=yaml.CSafeDumper, sort_keys=False, allow_unicode=True, width=4096
    )
    return text
