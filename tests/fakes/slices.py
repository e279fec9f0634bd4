"""Slices as they are sent."""

from liken_events.core.model.json import Json

NODE = "n1"
NAME = "n1-liken.sh"


def slice_body(
    *devices: str, name: str = NAME, node: str = NODE, driver: str = "liken.sh"
) -> dict[str, Json]:
    """A slice with devices of these names."""
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": name},
        "spec": {
            "driver": driver,
            "nodeName": node,
            "pool": {"name": node, "generation": 1, "resourceSliceCount": 1},
            "devices": [{"name": device} for device in devices],
        },
    }


def device_names(body: object) -> list[str]:
    """The names of a slice's devices."""
    assert isinstance(body, dict)
    return [device["name"] for device in body["spec"].get("devices") or []]
