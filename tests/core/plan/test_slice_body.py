from dataclasses import replace

import pytest

from liken_events.core.model.device import Attribute, PublishedDevice
from liken_events.core.model.json import Json
from liken_events.core.model.snapshot import Key, Node
from liken_events.core.plan.slice_body import Learned, device_bodies, slice_name

GPU = PublishedDevice(
    name="pci-0000-03-00-0",
    key=Key(bus="pci", address="0000:03:00.0"),
    nodes=(Node(path="/dev/dri/renderD128", subsystem="drm"),),
    shareable=True,
    attributes=(("bus", "pci"), ("renderNode", True), ("vendor", "1002")),
)
BODY: dict[str, Json] = {
    "name": "pci-0000-03-00-0",
    "attributes": {
        "bus": {"string": "pci"},
        "renderNode": {"bool": True},
        "vendor": {"string": "1002"},
    },
    "allowMultipleAllocations": True,
}
BARE = PublishedDevice(name="usb-1-2-1-0", key=Key(bus="usb", address="1-2:1.0"), nodes=())


def without(*names: str) -> dict[str, Json]:
    attributes = BODY["attributes"]
    assert isinstance(attributes, dict)
    kept = {name: value for name, value in attributes.items() if name not in names}
    return {**BODY, "attributes": kept}


@pytest.mark.parametrize(
    ("node", "index", "name"),
    [
        ("n1", 0, "n1-liken.sh"),
        ("n1", 1, "n1-liken.sh-1"),
        ("host.example.org", 12, "host.example.org-liken.sh-12"),
    ],
)
def test_a_slice_is_named_for_its_node(node: str, index: int, name: str) -> None:
    assert slice_name(node, index) == name
    assert slice_name(node) == f"{node}-liken.sh"


def test_a_device_is_its_name_its_attributes_and_whether_it_may_be_shared() -> None:
    assert device_bodies([GPU, BARE], Learned()) == [BODY, {"name": "usb-1-2-1-0"}]
    assert device_bodies([], Learned()) == []


def test_the_nodes_of_a_device_are_nobody_elses_business() -> None:
    assert "/dev" not in str(device_bodies([GPU], Learned()))


@pytest.mark.parametrize(
    ("learned", "expected"),
    [
        (
            Learned(dropped=frozenset({"allowMultipleAllocations"})),
            {"name": BODY["name"], "attributes": BODY["attributes"]},
        ),
        (Learned(dropped=frozenset({"other"})), BODY),
        (Learned(attributes=frozenset({(GPU.name, "vendor", "1002")})), without("vendor")),
        (Learned(attributes=frozenset({(GPU.name, "renderNode", True)})), without("renderNode")),
        (Learned(attributes=frozenset({(GPU.name, "vendor", "8086")})), BODY),
        (Learned(attributes=frozenset({(GPU.name, "renderNode", False)})), BODY),
        (Learned(attributes=frozenset({("other", "vendor", "1002")})), BODY),
        (Learned(devices={GPU.name: BODY}), None),
        (Learned(devices={GPU.name: without("vendor")}), BODY),
        (Learned(devices={"other": BODY}), BODY),
        (
            Learned(
                devices={GPU.name: without("vendor")},
                attributes=frozenset({(GPU.name, "vendor", "1002")}),
            ),
            None,
        ),
    ],
)
def test_what_was_refused_is_left_out_while_it_stays_what_it_was(
    learned: Learned, expected: Json
) -> None:
    left = [] if expected is None else [expected]
    assert device_bodies([GPU, BARE], learned) == [*left, {"name": "usb-1-2-1-0"}]


def test_a_device_without_attributes_has_no_empty_ones() -> None:
    every: frozenset[tuple[str, str, Attribute]] = frozenset(
        (GPU.name, name, value) for name, value in GPU.attributes
    )
    expected = {"name": GPU.name, "allowMultipleAllocations": True}
    assert device_bodies([GPU], Learned(attributes=every)) == [expected]


def test_devices_that_differ_in_anything_have_bodies_of_their_own() -> None:
    others = [replace(GPU, shareable=False), replace(GPU, attributes=()), GPU]
    sizes = [len(str(body)) for device in others for body in device_bodies([device], Learned())]
    assert len(set(sizes)) == 3
