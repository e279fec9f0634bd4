import json
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from liken_events.core.model.names import device_name
from liken_events.core.model.prepared import Prepared, PreparedDevice, Presence, Sight, look_at
from liken_events.core.model.snapshot import Device, Key, Node
from liken_events.core.plan.cdi import (
    KIND,
    NOWHERE,
    VERSION,
    refreshed,
    spec,
)
from tests.fakes.cdi_rules import complaints, needed_version
from tests.fakes.devices import drm, pci, scsi_disk, tty, usb
from tests.fakes.held import AWAY, REFERENCE, UID, held, judged, prepared

STICK = usb("1-2:1.0", "10c4:ea60", "ff0000", "cp210x", 7, nodes=[tty("ttyUSB0", 0)])
MOVED = usb("1-2:1.0", "10c4:ea60", "ff0000", "cp210x", 9, nodes=[tty("ttyUSB0", 0)])
DETACHED = replace(STICK, driver=None, nodes=())
OTHER = replace(STICK, vendor="0403")
RADIO = usb("1-4:1.0", "8087:0aaa", "e00101", "btusb", 3)
GPU = pci(
    "0000:03:00.0", "1002:73e3", "030000", "amdgpu",
    nodes=[drm("card0", 0), drm("renderD128", 128)],
)  # fmt: skip
DISK = pci("0000:04:00.0", "1b4b:9230", "010601", "ahci", nodes=scsi_disk("", 0, 0, 1))

SPEC = """{
  "cdiVersion": "0.5.0",
  "kind": "liken.sh/device",
  "devices": [
    {
      "name": "3f1c2a9e-7d5b-4f0a-9c1e-2b8d6a4e0f13-usb-1-2-1-0",
      "containerEdits": {
        "deviceNodes": [
          {
            "path": "/dev/bus/usb/001/007",
            "type": "c",
            "major": 189,
            "minor": 6,
            "permissions": "rw"
          },
          {
            "path": "/dev/ttyUSB0",
            "type": "c",
            "major": 188,
            "minor": 0,
            "permissions": "rw"
          }
        ]
      }
    }
  ]
}
"""


def nobody(node: Node, held_device: PreparedDevice) -> None:
    return None


def somebody(node: Node, held_device: PreparedDevice) -> str:
    return "usb-1-3-1-0"


def looked(claim: Prepared, *now: Device) -> Mapping[str, Sight]:
    """What a look at a machine with these devices finds of a claim's."""
    there = {device.key: judged(device) for device in now}
    return {device.name: look_at(device, there.get(device.key)) for device in claim.devices}


def text_of(claim: Prepared, *now: Device, owner: Any = nobody) -> str:
    text = spec(claim, looked(claim, *now), owner)
    assert text is not None
    assert complaints(text, newest="0.5.0") == []
    return text


def nodes_of(claim: Prepared, *now: Device, owner: Any = nobody) -> list[dict[str, Any]]:
    """The nodes of a claim's only device."""
    (device,) = json.loads(text_of(claim, *now, owner=owner))["devices"]
    found: list[dict[str, Any]] = device["containerEdits"]["deviceNodes"]
    return found


def paths_of(claim: Prepared, *now: Device, owner: Any = nobody) -> list[str]:
    return [node["path"] for node in nodes_of(claim, *now, owner=owner)]


def test_a_spec_is_what_a_runtime_reads_and_a_person_too() -> None:
    assert text_of(prepared(held(STICK)), STICK) == SPEC


def test_the_version_is_the_lowest_that_allows_uids_in_names() -> None:
    body = json.loads(SPEC)
    assert needed_version(body) == VERSION == body["cdiVersion"]
    letters = text_of(prepared(held(STICK), uid="abc-1"), STICK)
    assert json.loads(letters)["cdiVersion"] == VERSION


def test_vendor_and_class_have_more_than_one_letter() -> None:
    assert re.fullmatch(r"[a-z][a-z.]+[a-z]/[a-z]{2,}", KIND)


def test_a_disk_is_a_block_device() -> None:
    kinds = {node["path"]: node["type"] for node in nodes_of(prepared(held(DISK)), DISK)}
    assert kinds == {"/dev/bsg/0:0:0:0": "c", "/dev/sda": "b", "/dev/sda1": "b", "/dev/sg0": "c"}


def test_each_device_of_a_claim_has_its_own_nodes() -> None:
    claim = prepared(held(STICK), held(GPU), held(GPU, "-display"), held(RADIO))
    body = json.loads(text_of(claim, STICK, GPU, RADIO))
    assert {
        item["name"]: [node["path"] for node in item["containerEdits"]["deviceNodes"]]
        for item in body["devices"]
    } == {
        f"{UID}-pci-0000-03-00-0": ["/dev/dri/renderD128"],
        f"{UID}-pci-0000-03-00-0-display": ["/dev/dri/card0"],
        f"{UID}-usb-1-2-1-0": ["/dev/bus/usb/001/007", "/dev/ttyUSB0"],
        f"{UID}-usb-1-4-1-0": ["/dev/bus/usb/001/003"],
    }


def test_a_claim_without_devices_has_no_spec() -> None:
    assert spec(prepared(), {}, nobody) is None


ALL = ["/dev/bus/usb/001/007", "/dev/ttyUSB0"]


def test_a_device_that_is_away_has_its_paths_and_no_number() -> None:
    expected = [{"path": path, "permissions": "rw"} for path in ALL]
    assert nodes_of(prepared(held(STICK))) == expected


@pytest.mark.parametrize(
    ("now", "paths"),
    [
        ([STICK], ALL),
        ([MOVED], ["/dev/bus/usb/001/009", "/dev/ttyUSB0"]),
        ([DETACHED], ["/dev/bus/usb/001/007"]),
        ([replace(STICK, driver="usbfs", nodes=())], ["/dev/bus/usb/001/007"]),
        ([], ALL),
        ([OTHER], ALL),
        ([replace(STICK, driver=None)], ALL),
    ],
)
def test_a_spec_says_what_the_device_is_now(now: list[Device], paths: list[str]) -> None:
    assert paths_of(prepared(held(STICK)), *now) == paths


def test_whatever_changes_for_the_device_changes_the_text() -> None:
    """containerd keeps a number until some file is written again."""
    claim = prepared(held(STICK))
    renumbered = replace(STICK, nodes=(replace(tty("ttyUSB0", 0), minor=1),))
    texts = {
        text_of(claim, STICK),
        text_of(claim, MOVED),
        text_of(claim, renumbered),
        text_of(claim, DETACHED),
        text_of(claim),
        text_of(claim, owner=somebody),
    }
    assert len(texts) == 6
    assert text_of(claim, OTHER) == text_of(claim), "another model is no device of this claim"


def test_equal_devices_give_equal_text() -> None:
    again = prepared(held(usb("1-2:1.0", "10c4:ea60", "ff0000", "cp210x", 7, nodes=STICK.nodes)))
    assert text_of(again, STICK) == text_of(prepared(held(STICK)), STICK)
    assert text_of(again) == text_of(prepared(held(STICK)))


def test_what_was_given_does_not_matter_to_the_next_container() -> None:
    mine = held(STICK)
    claim = prepared(replace(mine, given=(tty("ttyUSB9", 9),), vendor="10c4"))
    assert text_of(claim, STICK) == text_of(prepared(mine), STICK)
    assert text_of(claim) == text_of(prepared(mine))


def test_a_path_that_is_somebody_elses_is_replaced_by_one_that_says_so() -> None:
    taken = {"/dev/ttyUSB0": "usb-1-3-1-0"}
    claim = prepared(held(STICK))
    assert nodes_of(claim, owner=lambda node, _: taken.get(node.path)) == [
        {"path": "/dev/bus/usb/001/007", "permissions": "rw"},
        {
            "path": f"{NOWHERE}usb-1-2-1-0-is-away-and-ttyUSB0-belongs-to-usb-1-3-1-0",
            "permissions": "rw",
        },
    ]
    assert paths_of(claim, STICK, owner=somebody) == ALL, "a device's own nodes are its own"
    assert all(path.startswith(NOWHERE) for path in paths_of(claim, OTHER, owner=somebody))


def test_the_owner_is_asked_for_each_node_of_the_device_that_is_away() -> None:
    asked = []

    def owner(node: Node, device: PreparedDevice) -> None:
        asked.append((node, device))

    claim = prepared(held(STICK), held(RADIO))
    text_of(claim, RADIO, owner=owner)
    stick = claim.devices[0]
    assert asked == [(node, stick) for node in stick.nodes]


def test_a_device_that_never_had_a_node_still_has_an_edit() -> None:
    claim = prepared(replace(held(STICK), nodes=()))
    assert paths_of(claim) == [f"{NOWHERE}usb-1-2-1-0-is-away"]


@pytest.mark.parametrize(
    "stranger", ["", "..", "/", "a/b\0c", "\x1b[31m", "x" * 300, "é" * 300, "input7::capslock"]
)
@pytest.mark.parametrize("path", ["/dev/x", f"/dev/{'odd name' * 30}", f"/dev/{'d/' * 2000}x"])
@pytest.mark.parametrize("key", [STICK.key, Key(bus="usb", address="1-" + "9" * 200)])
def test_a_path_that_stands_for_nothing_is_a_good_path_whoever_has_it(
    stranger: str, path: str, key: Key
) -> None:
    mine = replace(held(STICK), name=device_name(key, "-drm-dp-aux-dev"), nodes=(Node(path=path),))
    (found,) = paths_of(prepared(mine), owner=lambda *_: stranger)
    assert re.fullmatch(r"/dev/liken\.sh/[A-Za-z0-9.-]+", found)
    assert max(map(len, found.split("/"))) <= 255
    assert len(found) <= 4096
    assert found.removeprefix(NOWHERE).startswith(f"{mine.name}-is-away-and-")


def test_a_claim_remembers_the_nodes_that_were_seen_last() -> None:
    claim = prepared(held(STICK), held(RADIO))
    moved = refreshed(claim, looked(claim, MOVED, RADIO))
    assert moved.devices == (replace(held(STICK), nodes=held(MOVED).nodes), held(RADIO))
    assert refreshed(moved, looked(moved)) == moved, "what left keeps its nodes"
    assert refreshed(moved, looked(moved, OTHER, RADIO)) == moved
    detached = refreshed(moved, looked(moved, DETACHED, RADIO))
    assert [node.path for node in detached.devices[0].nodes] == ["/dev/bus/usb/001/007"]


def test_what_was_given_and_who_it_is_stays_through_every_look() -> None:
    claim = prepared(held(STICK))
    known = {device.name: device for device in claim.devices}
    for now in ([MOVED], [DETACHED], [OTHER], []):
        claim = refreshed(claim, looked(claim, *now))
        assert claim.reference == REFERENCE
        for device in claim.devices:
            assert replace(device, nodes=known[device.name].nodes) == known[device.name]


def test_a_look_that_found_nothing_is_not_mistaken_for_one_that_was_not_made() -> None:
    claim = prepared(held(STICK))
    assert AWAY.presence is Presence.AWAY
    with pytest.raises(KeyError):
        spec(claim, {}, nobody)
