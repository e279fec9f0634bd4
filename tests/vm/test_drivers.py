"""Drivers that leave, return, or come late, while the hardware stays."""

from collections.abc import Iterator

import pytest

from tests.vm.attributes import FTDI, KEYBOARD, pci, usb
from tests.vm.desk import Desk
from tests.vm.hardware import Hardware

NAME, ADDRESS = "usb-1-1-1-0", "1-1:1.0"
MARKER = "usb-1-2-1-0"
HERE = {NAME: usb(ADDRESS, FTDI, serial="Z1")}
DRIVER = "/sys/bus/usb/drivers/ftdi_sio"
SMBUS, SMBUS_ADDRESS = "pci-0000-00-1f-3", "0000:00:1f.3"
BLACKLIST = "/etc/modprobe.d/vm-late.conf"


@pytest.fixture
def no_module(desk: Desk) -> Iterator[None]:
    """The serial adapter's driver is not loaded, and is not loaded by udevd either."""
    desk.control.write(BLACKLIST, "blacklist ftdi_sio\n")
    desk.control.shell("modprobe -r ftdi_sio; udevadm control --reload")
    yield
    desk.control.shell(f"rm {BLACKLIST}; udevadm control --reload; modprobe ftdi_sio")


def test_a_driver_that_is_unbound_and_bound(desk: Desk, hardware: Hardware) -> None:
    hardware.usb_serial("1", "Z1")
    desk.until_offered(NAME)
    nodes = desk.delivered(ADDRESS)
    desk.control.write(f"{DRIVER}/unbind", ADDRESS)
    desk.until_gone(NAME)
    desk.control.write(f"{DRIVER}/bind", ADDRESS)
    desk.until_offered(NAME)
    assert desk.delivered(ADDRESS) == nodes
    assert desk.nodes(NAME) == [nodes, nodes]
    assert desk.states(NAME) == [{}, HERE, {}, HERE]
    assert desk.why(NAME) == ["no-driver: no kernel driver is bound to it"]


def test_a_module_that_is_loaded_late(desk: Desk, hardware: Hardware, no_module: None) -> None:
    hardware.usb_serial("1", "Z1")
    hardware.usb("usb-kbd", "2", serial="M1")  # comes later, so what came before was looked at
    desk.until_offered(MARKER)
    assert NAME not in desk.offered
    desk.control.run("modprobe", "ftdi_sio")
    desk.until_offered(NAME)
    marker = {MARKER: usb("1-2:1.0", KEYBOARD, serial="M1")}
    assert desk.nodes(NAME) == [desk.delivered(ADDRESS)]
    assert desk.states(NAME, MARKER) == [{}, marker, HERE | marker]


def test_a_module_that_gives_nodes_to_a_device_that_had_a_driver_all_along(desk: Desk) -> None:
    assert SMBUS not in desk.offered
    desk.control.run("modprobe", "i2c-dev")
    desk.until_offered(SMBUS)
    nodes = desk.delivered(SMBUS_ADDRESS)
    desk.control.run("modprobe", "-r", "i2c-dev")
    desk.until_gone(SMBUS)
    bus = {
        "driver": "i801_smbus",
        "class": "serial-bus",
        "classCode": "0c0500",
        "subsystem": "i2c-dev",
        "vendor": "8086",
        "product": "2930",
        "name": "8086:2930",
        "modalias": "pci:v00008086d00002930sv00001AF4sd00001100bc0Csc05i00",
    }
    assert desk.nodes(SMBUS) == [nodes] == [["/dev/i2c-0"]]
    assert desk.states(SMBUS) == [{}, {SMBUS: pci(SMBUS_ADDRESS, bus)}, {}]
    assert desk.why(SMBUS) == ["no-nodes: i801_smbus registers no device node"]
