"""Claims for devices of a guest, and every version of their CDI specs.

A claim is a file in the agent's directory, as a scheduler leaves it. The agent prepares it and
keeps its spec in step with the hardware; each version of the file is a record.

What a spec must say when is in `docs/claims.md`; the tests compare.
"""

import json
from typing import Any

import yaml

from tests.fakes.claims import claim_body, uid_of
from tests.vm.desk import CDI, CLUSTER, Desk

FOLDER = f"{CLUSTER}/resourceclaims/default"

Nodes = tuple[tuple[Any, ...], ...]
"""The nodes of a device in a spec: path, and type, major and minor where they are given."""


class Claims:
    """The claims of one test.

    Args:
        desk: the guest.
    """

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._files: dict[str, str] = {}

    def claim(self, device: str) -> str:
        """Claims a device, waits until the claim is prepared, and returns its uid."""
        body = claim_body(device, name=f"c{len(self._files)}-{device}")
        uid = uid_of(body)
        path = f"{FOLDER}/{body['metadata']['name']}.yaml"
        control = self._desk.control
        control.run("mkdir", "-p", FOLDER)
        control.write(f"{path}.draft", yaml.safe_dump(body))
        control.run("mv", f"{path}.draft", path)
        self._files[uid] = path
        self._desk.until(lambda: self.versions(uid, device), f"a spec for {device}")
        return uid

    def release(self, uid: str) -> None:
        """Ends a claim and waits until its spec is gone."""
        self._desk.control.run("rm", self._files.pop(uid))
        self._desk.until(lambda: self._texts(uid)[-1][1] is None, "the spec to go")
        self._desk.until_logged("claim.released")

    def release_all(self) -> None:
        """Ends all that are left."""
        for uid in list(self._files):
            self.release(uid)

    def versions(self, uid: str, device: str) -> list[Nodes]:
        """The nodes of a device in each version of a claim's spec, oldest first."""
        return [nodes for _, nodes in self.timed(uid, device)]

    def timed(self, uid: str, device: str) -> list[tuple[float, Nodes]]:
        """The same, with the moment when each was there."""
        return [
            (moment, _nodes(text, uid, device))
            for moment, text in self._texts(uid)
            if text is not None
        ]

    def now(self, address: str) -> Nodes:
        """What a spec has to say of a device that is there, such as `1-2:1.0`."""
        nodes = self._desk.numbered(address)
        return tuple((path, "c", *numbers) for path, numbers in nodes.items())

    def until(self, uid: str, device: str, nodes: Nodes) -> None:
        """Waits until a spec has these nodes of a device."""
        self._desk.until(
            lambda: self.versions(uid, device)[-1] == nodes, f"{nodes} in the spec of {device}"
        )

    def _texts(self, uid: str) -> list[tuple[float, str | None]]:
        name = f"liken.sh-{uid}.json"
        return [
            (item["time"], item["text"])
            for item in self._desk.records("file")
            if item["directory"] == CDI and item["name"] == name
        ]


def _nodes(text: str, uid: str, device: str) -> Nodes:
    (found,) = [item for item in json.loads(text)["devices"] if item["name"] == f"{uid}-{device}"]
    keys = ("path", "type", "major", "minor")
    return tuple(
        tuple(node[key] for key in keys if key in node)
        for node in found["containerEdits"]["deviceNodes"]
    )
