"""ResourceClaims as the scheduler leaves them, and specs as a runtime reads them."""

import json
import os
import uuid
from collections.abc import Sequence
from typing import Any

import yaml

NODE = "n1"


def claim_body(
    *devices: str,
    name: str = "c",
    namespace: str = "default",
    uid: str | None = None,
    pool: str = NODE,
    **more: Any,
) -> dict[str, Any]:
    """A claim to which these devices were allocated, one request each: `r0`, `r1`, …

    Args:
        devices: published names.
        name, namespace, uid: the claim's.
        pool: the devices' pool.
        more: further fields of each result.
    """
    results = [
        {"request": f"r{index}", "driver": "liken.sh", "pool": pool, "device": device, **more}
        for index, device in enumerate(devices)
    ]
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "uid": str(uuid.uuid4()) if uid is None else uid,
        },
        "spec": {"devices": {"requests": [{"name": item["request"]} for item in results]}},
        "status": {"allocation": {"devices": {"results": results}}},
    }


def uid_of(body: dict[str, Any]) -> str:
    """The claim's uid."""
    uid: str = body["metadata"]["uid"]
    return uid


def write_claim(directory: str, body: dict[str, Any]) -> str:
    """Puts a claim where the agent finds it, as an editor would; returns the file's path."""
    metadata = body["metadata"]
    folder = os.path.join(directory, "resourceclaims", metadata["namespace"])
    os.makedirs(folder, exist_ok=True)
    path = os.path.join(folder, f"{metadata['name']}.yaml")
    draft = os.path.join(folder, f".{metadata['name']}.draft")
    with open(draft, "w", encoding="utf-8") as file:
        yaml.safe_dump(body, file)
    os.replace(draft, path)
    return path


class Specs:
    """A directory of CDI specs, as a runtime reads it."""

    def __init__(self, directory: str) -> None:
        self.directory = directory

    def path(self, uid: str) -> str:
        """Where a claim's spec is."""
        return os.path.join(self.directory, f"liken.sh-{uid}.json")

    def read(self, uid: str) -> dict[str, Any] | None:
        """A claim's spec; None if there is none."""
        try:
            with open(self.path(uid), encoding="utf-8") as file:
                found: dict[str, Any] = json.load(file)
        except FileNotFoundError:
            return None
        return found

    def nodes(self, uid: str, device: str) -> list[tuple[Any, ...]]:
        """The nodes of one of a claim's devices: path, type, major and minor, as far as they are
        given; none if there is no such spec or device."""
        for item in (self.read(uid) or {"devices": []})["devices"]:
            if item["name"] == f"{uid}-{device}":
                return [
                    tuple(node[key] for key in ("path", "type", "major", "minor") if key in node)
                    for node in item["containerEdits"]["deviceNodes"]
                ]
        return []

    def paths(self, uid: str, device: str) -> list[str]:
        """The same, paths alone."""
        return [node[0] for node in self.nodes(uid, device)]

    @property
    def files(self) -> Sequence[str]:
        """The names of all files, also such that no runtime reads."""
        try:
            return sorted(os.listdir(self.directory))
        except FileNotFoundError:
            return []
