"""What a container runtime refuses in a CDI spec.

Taken from the rules that the CDI library checks: a spec is read strictly, so one unknown field,
one wrong type or one invalid device makes the whole file invalid, and a version below what its
content needs does too. Runtimes read `.json` files with a YAML parser; the text has to be good for
both.
"""

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias

import yaml

VERSIONS = ("0.3.0", "0.4.0", "0.5.0", "0.6.0", "0.7.0", "0.8.0", "1.0.0", "1.1.0")
"""That a runtime of today knows; lower ones are refused by all."""

WORD = re.compile(r"[A-Za-z]([A-Za-z0-9_.-]*[A-Za-z0-9])?")
NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9_.:-]*[A-Za-z0-9])?")
NODE_TYPES = ("", "b", "c", "u", "p")
INT64 = range(-(2**63), 2**63)
UINT32 = range(2**32)

Fields: TypeAlias = Mapping[str, type | range]
"""What an object may hold: each field with its type, or with the range of a whole number."""

SPEC: Fields = {
    "cdiVersion": str,
    "kind": str,
    "annotations": dict,
    "devices": list,
    "containerEdits": dict,
}
DEVICE: Fields = {"name": str, "annotations": dict, "containerEdits": dict}
EDITS: Fields = {
    "env": list,
    "deviceNodes": list,
    "hooks": list,
    "mounts": list,
    "intelRdt": dict,
    "additionalGids": list,
    "netDevices": list,
}
NODE: Fields = {
    "path": str,
    "hostPath": str,
    "type": str,
    "major": INT64,
    "minor": INT64,
    "fileMode": UINT32,
    "permissions": str,
    "uid": UINT32,
    "gid": UINT32,
}
MOUNT: Fields = {"hostPath": str, "containerPath": str, "options": list, "type": str}
HOOK: Fields = {"hookName": str, "path": str, "args": list, "env": list, "timeout": INT64}


def complaints(text: str, newest: str = VERSIONS[-1]) -> list[str]:
    """Everything that is wrong with a spec, each with its place; empty for a valid one.

    Args:
        text: the file.
        newest: the highest version that the runtime knows.
    """
    try:
        body = json.loads(text)
        yaml.load(text, yaml.CSafeLoader)
    except (ValueError, yaml.YAMLError) as error:
        return [f"spec: cannot be parsed: {error}"]
    if not isinstance(body, dict):
        return ["spec: no object"]
    found = [*_fields(body, SPEC, "spec", ("cdiVersion", "kind", "devices"))]
    if not found:
        found = [*_kind(body["kind"]), *_devices(body["devices"])]
        found += _edits(body.get("containerEdits", {}), "spec, containerEdits")
    # Which version the content needs can only be told of content that is understood.
    return found or [*_version(body, newest)]


def needed_version(body: Mapping[str, Any]) -> str:
    """The lowest version that allows what is in a spec without other faults."""
    devices = body["devices"]
    edits = [body.get("containerEdits", {}), *(item["containerEdits"] for item in devices)]
    nodes = [node for item in edits for node in item.get("deviceNodes", ())]
    mounts = [mount for item in edits for mount in item.get("mounts", ())]
    needs = ["0.3.0"]
    if any("type" in mount for mount in mounts):
        needs.append("0.4.0")
    if any("hostPath" in node for node in nodes) or any(
        item["name"][0].isdigit() for item in devices
    ):
        needs.append("0.5.0")
    annotated = any("annotations" in item for item in (body, *devices))
    if annotated or "." in body["kind"].partition("/")[2]:
        needs.append("0.6.0")
    if any("intelRdt" in item or "additionalGids" in item for item in edits):
        needs.append("0.7.0")
    if any("netDevices" in item for item in edits):
        needs.append("1.1.0")
    return max(needs, key=VERSIONS.index)


def _version(body: Mapping[str, Any], newest: str) -> Iterable[str]:
    version = body["cdiVersion"]
    known = VERSIONS[: VERSIONS.index(newest) + 1]
    if version not in known:
        yield f"spec: the version {version} is not known"
        return
    needed = needed_version(body)
    if known.index(version) < VERSIONS.index(needed):
        yield f"spec: the version {version} is too low: its content needs {needed}"


def _kind(kind: str) -> Iterable[str]:
    vendor, slash, word = kind.partition("/")
    if not (slash and WORD.fullmatch(vendor) and WORD.fullmatch(word)):
        yield f"spec: '{kind}' is no kind"


def _devices(devices: list[Any]) -> Iterable[str]:
    if not devices:
        yield "spec: no device"
    seen = set()
    for index, device in enumerate(devices):
        where = f"spec, devices[{index}]"
        wrong = [*_fields(device, DEVICE, where, ("name", "containerEdits"))]
        yield from wrong
        if wrong:
            continue
        name = device["name"]
        if not NAME.fullmatch(name):
            yield f"{where}: '{name}' is no name"
        if name in seen:
            yield f"{where}: '{name}' is there twice"
        seen.add(name)
        if not any(device["containerEdits"].values()):
            yield f"{where}: no edit"
        yield from _edits(device["containerEdits"], f"{where}, containerEdits")


def _edits(edits: Mapping[str, Any], where: str) -> Iterable[str]:
    wrong = [*_fields(edits, EDITS, where)]
    yield from wrong
    if wrong:
        return
    for index, node in enumerate(edits.get("deviceNodes", ())):
        yield from _node(node, f"{where}, deviceNodes[{index}]")
    for index, mount in enumerate(edits.get("mounts", ())):
        yield from _fields(
            mount, MOUNT, f"{where}, mounts[{index}]", ("hostPath", "containerPath")
        )
    for index, hook in enumerate(edits.get("hooks", ())):
        yield from _fields(hook, HOOK, f"{where}, hooks[{index}]", ("hookName", "path"))
    for index, text in enumerate(edits.get("env", ())):
        if not isinstance(text, str) or not text.partition("=")[0] or "=" not in text:
            yield f"{where}, env[{index}]: no variable"


def _node(node: Any, where: str) -> Iterable[str]:
    wrong = [*_fields(node, NODE, where, ("path",))]
    yield from wrong
    if wrong:
        return
    if node.get("type", "") not in NODE_TYPES:
        yield f"{where}: no type of a node: '{node['type']}'"
    if not set(node.get("permissions", "")) <= set("rwm"):
        yield f"{where}: no permissions: '{node['permissions']}'"


def _fields(value: Any, known: Fields, where: str, required: Iterable[str] = ()) -> Iterable[str]:
    """What is wrong with the fields of an object. Required ones must not be empty text."""
    if not isinstance(value, dict):
        yield f"{where}: no object"
        return
    for key, content in value.items():
        kind = known.get(key)
        if kind is None:
            yield f"{where}: unknown field '{key}'"
        elif isinstance(kind, range):
            if type(content) is not int or content not in kind:
                yield f"{where}: '{key}' has the wrong type"
        elif not isinstance(content, kind):
            yield f"{where}: '{key}' has the wrong type"
    for key in required:
        if value.get(key, "") == "":
            yield f"{where}: '{key}' is missing"
