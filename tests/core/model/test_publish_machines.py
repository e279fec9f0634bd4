"""Whole machines: sixteen real ones and those of the other tests, with what they publish."""

import json
from pathlib import Path
from typing import Any

import pytest

from liken_events.core.model.device import Inventory, Reason
from liken_events.core.model.publish import inventory
from liken_events.core.model.recording import from_json, to_json
from liken_events.core.model.snapshot import Snapshot
from tests.fakes.machines import desktop, empty_vm, homelab, server

DATA = Path(__file__).parents[2] / "data" / "machines"
EXPECTED = ".expected.json"
RECORDED = sorted(path.name.removesuffix(EXPECTED) for path in DATA.glob(f"*{EXPECTED}"))


def recorded(name: str) -> Snapshot:
    return from_json((DATA / f"{name}.json").read_text("utf-8"))


def offer(found: Inventory) -> dict[str, Any]:
    return {
        device.name: {
            "nodes": [node.path for node in device.nodes],
            "shareable": device.shareable,
            "attributes": dict(device.attributes),
        }
        for device in found.offered
    }


def check_judgements(machine: Snapshot, found: Inventory) -> None:
    """Each device is either published or withheld, and what is published is offered."""
    assert [item.device for item in found.judgements] == list(machine.devices)
    assert all(bool(item.published) != bool(item.withheld) for item in found.judgements)
    published = [device for item in found.judgements for device in item.published]
    assert sorted(published, key=lambda device: device.name) == list(found.offered)


def test_sixteen_machines_are_recorded_and_each_has_its_expectation() -> None:
    files = {path.name for path in DATA.glob("*.json")}
    assert len(RECORDED) == 16
    assert files == {f"{name}{end}" for name in RECORDED for end in (".json", EXPECTED)}


@pytest.mark.parametrize("name", RECORDED)
def test_a_real_machine_publishes_exactly_what_is_expected(name: str) -> None:
    expected = json.loads((DATA / f"{name}{EXPECTED}").read_text("utf-8"))
    assert offer(inventory(recorded(name))) == expected


@pytest.mark.parametrize("name", RECORDED)
def test_every_device_of_a_real_machine_is_published_or_there_is_a_reason(name: str) -> None:
    machine = recorded(name)
    check_judgements(machine, inventory(machine))


@pytest.mark.parametrize("name", RECORDED)
def test_a_recorded_machine_is_written_as_it_was_read(name: str) -> None:
    assert to_json(recorded(name)) == (DATA / f"{name}.json").read_text("utf-8")


def test_no_recorded_machine_has_a_serial_number_of_its_own() -> None:
    for name in RECORDED:
        for device in recorded(name).devices:
            assert device.serial is None or device.serial.startswith(("SERIAL", "0000:")), name


MADE = {"desktop": desktop(), "server": server(), "homelab": homelab(), "empty_vm": empty_vm()}


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        (
            "desktop",
            {
                "pci-0000-00-02-0": ["dri/renderD128"],
                "pci-0000-00-02-0-display": ["dri/card0"],
                "pci-0000-00-02-0-drm-dp-aux-dev": ["drm_dp_aux0", "drm_dp_aux1"],
                "pci-0000-00-02-0-i2c-dev": ["i2c-0", "i2c-1", "i2c-2", "i2c-3"],
                "pci-0000-00-17-0": ["bsg/0:0:0:0", "sda", "sda1", "sg0"],
                "pci-0000-00-1f-3": [
                    *(f"input/event{number}" for number in (5, 6, 7)),
                    *(f"snd/{name}" for name in ("controlC0", "hwC0D0", "hwC0D2")),
                    *(f"snd/{name}" for name in ("pcmC0D0c", "pcmC0D0p", "pcmC0D3p")),
                ],
                "usb-1-1-1-1-0": ["bus/usb/001/003", "hidraw0", "input/event2"],
                "usb-1-1-1-1-1": ["bus/usb/001/003", "hidraw1", "input/event3"],
                "usb-1-1-2-1-0": ["bus/usb/001/004", "ttyUSB0"],
                "usb-1-14-1-0": ["bus/usb/001/007"],
                "usb-1-14-1-1": ["bus/usb/001/007"],
                "usb-1-3-1-0": ["bus/usb/001/005", "hidraw2", "usb/hiddev0"],
                "usb-1-4-1-0": ["bus/usb/001/006", "input/event8", "media0", "video0", "video1"],
                "usb-1-5-1-0": [
                    "bus/usb/001/008",
                    "snd/controlC1",
                    "snd/pcmC1D0c",
                    "snd/pcmC1D0p",
                ],
                "usb-1-6-1-0": ["bus/usb/001/009", "hidraw3", "input/event12"],
                "usb-1-7-1-0": ["bus/usb/001/010", "usb/lp0"],
                "usb-2-2-1-0": ["bsg/6:0:0:0", "bus/usb/002/002", "sdb", "sdb1", "sg1"],
            },
        ),
        (
            "server",
            {
                "pci-0000-03-00-0": ["dri/renderD128"],
                "pci-0000-03-00-0-display": ["dri/card1"],
                "pci-0000-03-00-0-i2c-dev": ["i2c-0"],
                "pci-0000-23-00-0": ["dri/renderD129"],
                "pci-0000-23-00-0-display": ["dri/card2"],
                "pci-0000-23-00-0-i2c-dev": ["i2c-1"],
                "pci-0000-44-00-0": ["ng3n1", "nvme3", "nvme3n1", "nvme3n1p1", "nvme3n1p2"],
            },
        ),
        (
            "homelab",
            {
                "usb-1-1-1-0": ["bus/usb/001/002", "ttyUSB0"],
                "usb-1-2-1-0": ["bus/usb/001/003", "ttyUSB1"],
                "usb-1-3-1-0": ["bus/usb/001/004", "hidraw0", "usb/hiddev0"],
                "usb-1-4-1-0": ["bus/usb/001/005", "ttyUSB2"],
                "usb-1-4-1-1": ["bus/usb/001/005", "ttyUSB3"],
                "usb-2-2-1-0": ["bsg/1:0:0:0", "bus/usb/002/003", "sdb", "sdb1", "sg1"],
            },
        ),
        ("empty_vm", {}),
    ],
)
def test_what_a_made_up_machine_publishes(name: str, expected: dict[str, list[str]]) -> None:
    found = inventory(MADE[name]).offered
    nodes = {
        device.name: [node.path.removeprefix("/dev/") for node in device.nodes] for device in found
    }
    assert nodes == expected
    shared = {device.name for device in found if device.shareable}
    assert shared == {name for name, paths in expected.items() if "renderD" in paths[0]}


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        (
            "desktop",
            {
                "0000:00:00.0": (Reason.NO_NODES, "skl_uncore"),
                "0000:00:14.0": (Reason.NO_NODES, "xhci_hcd"),
                "0000:00:16.0": (Reason.NO_DRIVER, ""),
                "0000:00:1b.0": (Reason.BUS_STRUCTURE, ""),
                "0000:00:1f.6": (Reason.NO_NODES, "e1000e"),
                "0000:02:00.0": (Reason.IN_USE, "/dev/nvme0n1p1 is mounted on /boot/efi"),
                "1-0:1.0": (Reason.BUS_STRUCTURE, ""),
                "1-1:1.0": (Reason.BUS_STRUCTURE, ""),
                "1-4:1.1": (Reason.NO_NODES, "uvcvideo"),
                "1-5:1.1": (Reason.NO_NODES, "snd-usb-audio"),
                "2-0:1.0": (Reason.BUS_STRUCTURE, ""),
            },
        ),
        (
            "server",
            {
                "0000:00:01.1": (Reason.BUS_STRUCTURE, ""),
                "0000:00:17.0": (
                    Reason.IN_USE,
                    "/dev/sda carries /dev/md0, which is mounted on /",
                ),
                "0000:00:18.0": (
                    Reason.IN_USE,
                    "/dev/sdb carries /dev/md0, which is mounted on /",
                ),
                "0000:00:1f.6": (Reason.NO_NODES, "ixgbe"),
                "0000:01:00.0": (Reason.BUS_STRUCTURE, ""),
                "0000:02:00.0": (Reason.BUS_STRUCTURE, ""),
                "0000:41:00.0": (
                    Reason.IN_USE,
                    "nvme0c0n1 carries /dev/nvme0n1p1, which is mounted on /var",
                ),
                "0000:42:00.0": (Reason.IN_USE, "/dev/nvme1n1p1 is mounted on /srv"),
                "0000:43:00.0": (Reason.IN_USE, "/dev/nvme2n1 is mounted on /srv"),
            },
        ),
        (
            "homelab",
            {
                "0000:00:14.0": (Reason.NO_NODES, "xhci_hcd"),
                "0000:00:1f.6": (Reason.NO_NODES, "r8169"),
                "1-0:1.0": (Reason.BUS_STRUCTURE, ""),
                "2-0:1.0": (Reason.BUS_STRUCTURE, ""),
                "2-1:1.0": (Reason.IN_USE, "/dev/sda1 is mounted on /mnt/my backup"),
            },
        ),
        (
            "empty_vm",
            {
                "0000:00:00.0": (Reason.NO_DRIVER, ""),
                "0000:00:03.0": (Reason.NO_NODES, "virtio-pci"),
                "0000:00:04.0": (Reason.IN_USE, "/dev/vda2 is mounted on /"),
            },
        ),
    ],
)
def test_what_a_made_up_machine_withholds_and_why(
    name: str, expected: dict[str, tuple[Reason, str]]
) -> None:
    found = inventory(MADE[name])
    check_judgements(MADE[name], found)
    withheld = {
        item.device.key.address: item.withheld for item in found.judgements if item.withheld
    }
    assert withheld.keys() == expected.keys()
    for address, (reason, text) in expected.items():
        assert withheld[address].reason == reason
        assert text in withheld[address].detail
        assert withheld[address].detail
