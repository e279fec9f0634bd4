"""The recorded desk: complete, believable, and read like any other recording."""

from collections.abc import Callable
from pathlib import Path

import pytest

from liken_events.core.model.publish import BUS_STRUCTURE, inventory
from liken_events.core.model.recording import to_json
from liken_events.core.model.snapshot import Snapshot
from liken_events.simulate import recordings
from liken_events.simulate.recordings import desk
from tests.fakes import machines

MACHINES = (desk, machines.desktop, machines.server, machines.homelab, machines.empty_vm)


def test_the_desk_offers_what_people_give_to_workloads() -> None:
    names = [device.name for device in inventory(desk()).offered]

    assert names == [
        "pci-0000-00-02-0",
        "pci-0000-00-02-0-display",
        "pci-0000-00-02-0-drm-dp-aux-dev",
        "pci-0000-00-02-0-i2c-dev",
        "pci-0000-00-17-0",
        "pci-0000-00-1f-3",
        "usb-1-1-1-1-0",
        "usb-1-1-1-1-1",
        "usb-1-1-2-1-0",
        "usb-1-14-1-0",
        "usb-1-14-1-1",
        "usb-1-3-1-0",
        "usb-1-4-1-0",
        "usb-2-2-1-0",
    ]


def test_the_desk_holds_back_hardware_for_every_ordinary_reason() -> None:
    withheld = [item.withheld for item in inventory(desk()).judgements]

    reasons = {item.reason.value for item in withheld if item is not None}

    assert reasons == {"no-driver", "bus-structure", "no-nodes", "in-use"}


def test_the_desk_is_written_as_the_program_writes_recordings() -> None:
    path = Path(recordings.__file__).with_name("desk.json")

    assert path.read_text("utf-8") == to_json(desk())


@pytest.mark.parametrize("machine", MACHINES)
def test_modaliases_fit_an_attribute_and_agree_with_ids_and_class(
    machine: Callable[[], Snapshot],
) -> None:
    for device in machine().devices:
        modalias = device.modalias or ""
        vendor, product = (device.vendor or "").upper(), (device.product or "").upper()
        code = (device.class_code or "").upper()

        assert len(modalias.encode()) <= 64
        if device.key.bus == "pci":
            assert modalias.startswith(f"pci:v0000{vendor}d0000{product}sv")
            assert modalias.endswith(f"bc{code[:2]}sc{code[2:4]}i{code[4:]}")
        else:
            assert modalias.startswith(f"usb:v{vendor}p{product}d")
            assert f"ic{code}isc" in modalias


@pytest.mark.parametrize("machine", MACHINES)
def test_no_two_nodes_have_one_number_or_one_path(machine: Callable[[], Snapshot]) -> None:
    nodes = [node for device in machine().devices for node in device.nodes]

    assert len({(node.block, node.major, node.minor) for node in nodes}) == len(nodes)
    assert len({node.path for node in nodes}) == len(nodes)


@pytest.mark.parametrize("machine", MACHINES)
def test_interfaces_of_one_usb_device_tell_the_same_of_it(machine: Callable[[], Snapshot]) -> None:
    seen: dict[str, object] = {}
    for device in machine().devices:
        if device.key.bus == "usb":
            top = device.path.rpartition("/")[0]
            told = (device.vendor, device.product, device.serial, device.model, device.bus_node)
            assert seen.setdefault(top, told) == told


@pytest.mark.parametrize("machine", MACHINES)
def test_every_block_device_of_a_device_is_known_as_a_disk(
    machine: Callable[[], Snapshot],
) -> None:
    snapshot = machine()
    numbers = {disk.number for disk in snapshot.storage.disks}

    nodes = [node for device in snapshot.devices for node in device.nodes if node.block]

    assert {f"{node.major}:{node.minor}" for node in nodes} <= numbers


def test_the_test_machines_are_what_they_stand_for() -> None:
    offers = {machine.__name__: len(inventory(machine()).offered) for machine in MACHINES}
    twins = [device.serial for device in machines.homelab().devices if device.driver == "cp210x"]
    shared = [
        device.bus_node for device in machines.homelab().devices if device.driver == "ftdi_sio"
    ]

    assert offers == {"desk": 14, "desktop": 17, "server": 7, "homelab": 6, "empty_vm": 0}
    assert twins == ["0001", "0001"]
    assert len(shared) == 2
    assert shared[0] == shared[1]
    assert any(device.driver in BUS_STRUCTURE for device in machines.server().devices)
