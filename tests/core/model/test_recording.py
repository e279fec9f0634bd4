import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from liken_events.core.model.reading import ReadingError
from liken_events.core.model.recording import FORMAT, from_json, to_json
from liken_events.core.model.snapshot import (
    Device,
    Disk,
    Key,
    Node,
    Snapshot,
    Storage,
    Use,
    sort_devices,
)
from tests.core import generated
from tests.fakes.machines import desktop, empty_vm, homelab, server
from tests.fakes.snapshots import snapshots

SMALL = Snapshot(
    devices=(
        Device(
            key=Key(bus="pci", address="0000:00:1d.0"),
            path="/devices/pci0000:00/0000:00:1d.0",
            driver="nvme",
            modalias="pci:v0000144Dd0000A824sv0000144Dsd0000A801bc01sc08i02",
            vendor="144d",
            product="a824",
            class_code="010802",
            maker="Samsung",
            model="NVMe SSD Controller",
            nodes=(
                Node(path="/dev/nvme0", subsystem="nvme", major=239, minor=0, place="nvme/nvme0"),
            ),
            hidden_disks=("nvme0c0n1",),
        ),
        Device(
            key=Key(bus="usb", address="1-2:1.0"),
            path="/devices/pci0000:00/0000:00:14.0/usb1/1-2/1-2:1.0",
            serial="0001",
            bus_node=Node(path="/dev/bus/usb/001/002", subsystem="usb", major=189, minor=1),
        ),
    ),
    storage=Storage(
        uses=(Use(what="/é", fstype="ext4", source="/dev/nvme0n1p1", number="259:1"),),
        disks=(
            Disk(name="dm-0", number="253:0", slaves=("nvme0n1p1",), mapper="vault"),
            Disk(name="nvme0n1p1", number="259:1", whole="nvme0n1", btrfs=("7f9a",)),
        ),
        unknown="the mounts could not be read",
    ),
)

TEXT = """{
  "format": 1,
  "devices": [
    {
      "bus": "pci",
      "address": "0000:00:1d.0",
      "path": "/devices/pci0000:00/0000:00:1d.0",
      "driver": "nvme",
      "modalias": "pci:v0000144Dd0000A824sv0000144Dsd0000A801bc01sc08i02",
      "vendor": "144d",
      "product": "a824",
      "class_code": "010802",
      "maker": "Samsung",
      "model": "NVMe SSD Controller",
      "nodes": [
        {
          "path": "/dev/nvme0",
          "subsystem": "nvme",
          "major": 239,
          "minor": 0,
          "place": "nvme/nvme0"
        }
      ],
      "hidden_disks": [
        "nvme0c0n1"
      ]
    },
    {
      "bus": "usb",
      "address": "1-2:1.0",
      "path": "/devices/pci0000:00/0000:00:14.0/usb1/1-2/1-2:1.0",
      "serial": "0001",
      "bus_node": {
        "path": "/dev/bus/usb/001/002",
        "subsystem": "usb",
        "major": 189,
        "minor": 1
      }
    }
  ],
  "storage": {
    "uses": [
      {
        "what": "/é",
        "fstype": "ext4",
        "source": "/dev/nvme0n1p1",
        "number": "259:1"
      }
    ],
    "disks": [
      {
        "name": "dm-0",
        "number": "253:0",
        "slaves": [
          "nvme0n1p1"
        ],
        "mapper": "vault"
      },
      {
        "name": "nvme0n1p1",
        "number": "259:1",
        "whole": "nvme0n1",
        "btrfs": [
          "7f9a"
        ]
      }
    ],
    "unknown": "the mounts could not be read"
  }
}
"""


def test_a_recording_is_text_that_people_can_read() -> None:
    assert to_json(SMALL) == TEXT
    assert from_json(TEXT) == SMALL


def test_an_empty_machine_is_a_short_recording() -> None:
    assert from_json('{"format": 1}') == Snapshot()
    assert json.loads(to_json(Snapshot())) == {
        "format": FORMAT,
        "devices": [],
        "storage": {"uses": [], "disks": []},
    }


@pytest.mark.parametrize("machine", [desktop(), server(), homelab(), empty_vm()])
def test_a_whole_machine_is_the_same_after_a_recording(machine: Snapshot) -> None:
    assert from_json(to_json(machine)) == machine


@given(generated.machines() | snapshots())
def test_any_machine_is_the_same_after_a_recording_and_can_be_written_to_a_file(
    machine: Snapshot,
) -> None:
    text = to_json(machine)
    assert from_json(text) == machine
    assert from_json(text.encode("utf-8").decode("utf-8")) == machine
    assert text.endswith("}\n")


def test_a_mount_point_that_is_not_utf_8_is_written_as_an_escape() -> None:
    odd = Use(what="/m\udce9dia/é", fstype="ext4", source="/dev/sda1")
    machine = Snapshot(storage=Storage(uses=(odd,)))
    assert '"/m\\udce9dia/é"' in to_json(machine)
    assert from_json(to_json(machine)) == machine


@given(generated.machines(), st.randoms(use_true_random=False))
def test_a_recording_that_was_edited_by_hand_need_not_be_in_order(
    machine: Snapshot, random: Any
) -> None:
    body = json.loads(to_json(machine))
    for found in (body["devices"], body["storage"]["disks"], body["storage"]["uses"]):
        random.shuffle(found)
    for device in body["devices"]:
        random.shuffle(device.get("nodes", []))
        random.shuffle(device.get("hidden_disks", []))
    assert from_json(json.dumps(body)) == machine


def edited(**top: object) -> str:
    return json.dumps({**json.loads(TEXT), **top})


def device(**changes: object) -> str:
    body = json.loads(TEXT)
    body["devices"][1] |= changes
    return json.dumps(body)


def storage(**changes: object) -> str:
    body = json.loads(TEXT)
    body["storage"] |= changes
    return json.dumps(body)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "not JSON"),
        ("{", "not JSON"),
        ("[" * 100_000, "not JSON"),
        ("9" * 5000, "not JSON"),
        ("[]", "the snapshot: expected an object"),
        ("null", "the snapshot: expected an object"),
        ("{}", "the snapshot: 'format' should be a whole number"),
        (edited(format="1"), "the snapshot: 'format' should be a whole number"),
        (edited(format=True), "the snapshot: 'format' should be a whole number"),
        (edited(format=1.5), "the snapshot: 'format' should be a whole number"),
        (edited(format=FORMAT + 1), "format 2 is newer than this program reads (1)"),
        (edited(devices={}), "the snapshot: 'devices' should be a list"),
        (edited(devices=None), "the snapshot: 'devices' should be a list"),
        (edited(devices=[1]), "the snapshot, devices[0]: expected an object"),
        (edited(storage=[]), "the snapshot, storage: expected an object"),
        (device(bus="scsi"), "bus 'scsi' is neither pci nor usb"),
        (device(bus=None), "the snapshot, devices[1]: 'bus' should be text"),
        (device(address=7), "the snapshot, devices[1]: 'address' should be text"),
        (device(path=None), "the snapshot, devices[1]: 'path' should be text"),
        (device(driver=7), "the snapshot, devices[1]: 'driver' should be text"),
        (device(nodes=7), "the snapshot, devices[1]: 'nodes' should be a list"),
        (device(nodes=[{}]), "the snapshot, devices[1], nodes[0]: 'path' should be text"),
        (
            device(nodes=[{"path": "/dev/x", "major": "8"}]),
            "the snapshot, devices[1], nodes[0]: 'major' should be a whole number",
        ),
        (
            device(nodes=[{"path": "/dev/x", "minor": None}]),
            "the snapshot, devices[1], nodes[0]: 'minor' should be a whole number",
        ),
        (device(bus_node=[]), "the snapshot, devices[1], bus_node: expected an object"),
        (device(bus_node={}), "the snapshot, devices[1], bus_node: 'path' should be text"),
        (
            device(hidden_disks="sda"),
            "the snapshot, devices[1]: 'hidden_disks' should be a list of texts",
        ),
        (
            device(hidden_disks=[7]),
            "the snapshot, devices[1]: 'hidden_disks' should be a list of texts",
        ),
        (storage(uses=[{}]), "the snapshot, storage, uses[0]: 'what' should be text"),
        (
            storage(disks=[{"name": "sda"}]),
            "the snapshot, storage, disks[0]: 'number' should be text",
        ),
        (
            storage(disks=[{"name": "sda", "number": "8:0", "slaves": [None]}]),
            "the snapshot, storage, disks[0]: 'slaves' should be a list of texts",
        ),
        (storage(unknown=7), "the snapshot, storage: 'unknown' should be text"),
    ],
)
def test_what_is_no_snapshot_is_refused_with_the_place_that_is_wrong(
    text: str, message: str
) -> None:
    with pytest.raises(ReadingError) as caught:
        from_json(text)
    assert str(caught.value).startswith(message)


def test_of_a_node_the_path_is_enough() -> None:
    (_, found) = from_json(device(nodes=[{"path": "/dev/x"}])).devices
    assert found.nodes == (Node(path="/dev/x", subsystem=None, major=0, minor=0, place=""),)


def test_what_a_newer_program_adds_to_the_same_format_is_left_out() -> None:
    assert from_json(device(colour="red")) == SMALL
    assert from_json(edited(colour="red")) == SMALL


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=10,
)


@given(st.data())
def test_any_value_in_any_place_is_read_or_refused(data: st.DataObject) -> None:
    body = json.loads(TEXT)
    here = body
    while True:
        keys = list(here) if isinstance(here, dict) else list(range(len(here)))
        key = data.draw(st.sampled_from(keys))
        if not isinstance(here[key], dict | list) or not here[key] or data.draw(st.booleans()):
            here[key] = data.draw(values)
            break
        here = here[key]
    text = json.dumps(body)
    try:
        found = from_json(text)
    except ReadingError:
        return
    assert found.devices == sort_devices(found.devices)
    assert from_json(to_json(found)) == found
