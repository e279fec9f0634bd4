"""CDI specs: what a container runtime is told of a prepared claim.

A runtime reads the spec when it creates a container. With a node's type and numbers it makes the
node without looking; with the path alone it looks at the host's node, and fails if there is none.
containerd keeps the numbers that it found until some spec file is written again, so whatever
changes for the device has to change the file.

This file decides the content of a claim's spec. While the device is there its nodes stand with
their numbers. While it is away they stand with their paths alone, so a container that is restarted
fails visibly; and a path that the kernel gave to another device is replaced by one that cannot
exist and says why. Writing the file is left to `sinks.spec_files`, when to `sinks.cdi`.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from liken_events.core.model.claims import Allocated, Claim, Granted
from liken_events.core.model.json import Json, dump
from liken_events.core.model.prepared import Prepared, PreparedDevice, Sight
from liken_events.core.model.snapshot import Node

VERSION = "0.5.0"
"""The lowest that allows device names to begin with a digit, as uids do; and the highest that
podman 4.3 reads."""

KIND = "liken.sh/device"

PERMISSIONS = "rw"
"""What a container may do with a node: read and write, but not make nodes of these numbers."""

NOWHERE = "/dev/liken.sh/"
"""Below it are paths that stand for no node. Nobody makes such a directory, and a runtime that is
given one says `failed to stat CDI host device` and the path, which says why."""

MOST_WORD = 64
"""Characters of each of the three words in such a path at most. With what joins them a component
stays below 255 bytes (`NAME_MAX`): a runtime would say `file name too long` instead."""

_UNSAFE = re.compile(r"[^A-Za-z0-9.]+")

Owner = Callable[[Node, PreparedDevice], str | None]
"""Whose a node's path is now if not the held device's; None if nobody's."""


def device_id(uid: str, device: str) -> str:
    """The qualified name of a claim's device, which the runtime is given."""
    return f"{KIND}={_device_name(uid, device)}"


def granted(claim: Claim) -> tuple[Granted, ...]:
    """What the kubelet is told of a prepared claim: a pure function of the claim, because the
    kubelet adds a second answer to the first instead of replacing it."""
    return tuple(
        Granted(
            request=item.request,
            pool=item.pool,
            device=item.device,
            cdi_id=device_id(claim.reference.uid, item.device),
            share_id=item.share_id,
        )
        for item in claim.allocated
    )


def allocated_once(claim: Claim) -> tuple[Allocated, ...]:
    """The allocated devices of a claim, sorted by name, each once: two requests may share one."""
    found: dict[str, Allocated] = {}
    for item in claim.allocated:
        known = found.setdefault(item.device, item)
        if known.is_admin and not item.is_admin:
            found[item.device] = item  # whoever wants it for himself decides
    return tuple(found[name] for name in sorted(found))


def spec(prepared: Prepared, sights: Mapping[str, Sight], owner: Owner) -> str | None:
    """The text of a claim's spec; None if it holds no device, because a spec must have one.

    Args:
        prepared: the claim.
        sights: how each of its devices stands, by name.
        owner: tells whose a path is.
    """
    if not prepared.devices:
        return None
    devices: list[Json] = [
        {
            "name": _device_name(prepared.reference.uid, device.name),
            "containerEdits": {"deviceNodes": _edits(device, sights[device.name], owner)},
        }
        for device in prepared.devices
    ]
    body: dict[str, Json] = {"cdiVersion": VERSION, "kind": KIND, "devices": devices}
    return dump(body, indent=2) + "\n"


def refreshed(prepared: Prepared, sights: Mapping[str, Sight]) -> Prepared:
    """The claim with the nodes that its devices were last seen to deliver."""
    return replace(
        prepared,
        devices=tuple(
            replace(device, nodes=sights[device.name].nodes)
            if sights[device.name].is_usable
            else device
            for device in prepared.devices
        ),
    )


def device_names(uid: str, names: Sequence[str]) -> tuple[str, ...]:
    """From the names of the devices in a claim's spec to the published names."""
    prefix = _device_name(uid, "")
    return tuple(name.removeprefix(prefix) for name in names if name.startswith(prefix))


def _device_name(uid: str, device: str) -> str:
    return f"{uid}-{device}"


def _edits(device: PreparedDevice, sight: Sight, owner: Owner) -> list[Json]:
    if sight.is_usable:
        return [_known(node) for node in sight.nodes]
    edits = [_unknown(node, device, owner) for node in device.nodes]
    return edits or [_nowhere(f"{_word(device.name)}-is-away")]  # no edit is no valid spec


def _known(node: Node) -> Json:
    return {
        "path": node.path,
        "type": "b" if node.block else "c",
        "major": node.major,
        "minor": node.minor,
        "permissions": PERMISSIONS,
    }


def _unknown(node: Node, device: PreparedDevice, owner: Owner) -> Json:
    stranger = owner(node, device)
    if stranger is None:
        return {"path": node.path, "permissions": PERMISSIONS}
    place = _word(node.path.removeprefix("/dev/"))
    return _nowhere(f"{_word(device.name)}-is-away-and-{place}-belongs-to-{_word(stranger)}")


def _nowhere(reason: str) -> Json:
    return {"path": NOWHERE + reason, "permissions": PERMISSIONS}


def _word(text: str) -> str:
    return _UNSAFE.sub("-", text).strip("-")[:MOST_WORD]
