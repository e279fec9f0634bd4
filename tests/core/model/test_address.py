import pytest
from hypothesis import given
from hypothesis import strategies as st

from liken_events.core.model.address import Below, Own, Subject, UsbDevice, subject
from liken_events.core.model.snapshot import Key, Snapshot
from tests.fakes.machines import desktop, homelab, server
from tests.fakes.snapshots import snapshots

ROOT = "/devices/pci0000:00"
PORT = f"{ROOT}/0000:00:14.0/usb1/1-2"
INTERFACE = Key(bus="usb", address="1-2:1.0")
CONTROLLER = Key(bus="pci", address="0000:00:14.0")


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        (f"{PORT}/1-2:1.0", Own(INTERFACE)),
        (f"{PORT}/1-2:1.0/ttyUSB0/tty/ttyUSB0", Below(INTERFACE)),
        (f"{PORT}/1-2:1.0/bluetooth/hci0/hci0:71", Below(INTERFACE)),
        (f"{PORT}/1-2:1.0/ep_81", Below(INTERFACE)),
        (PORT, UsbDevice(PORT)),
        (f"{PORT}/ep_00", None),
        (f"{PORT}/wakeup/wakeup12", None),
        (f"{PORT}/1-2.1/1-2.1.4/1-2.1.4:1.13", Own(Key(bus="usb", address="1-2.1.4:1.13"))),
        (f"{PORT}/1-2.1", UsbDevice(f"{PORT}/1-2.1")),
        (f"{ROOT}/0000:00:14.0/usb1", UsbDevice(f"{ROOT}/0000:00:14.0/usb1")),
        (f"{ROOT}/0000:00:14.0/usb1/1-0:1.0", Own(Key(bus="usb", address="1-0:1.0"))),
        (
            f"{ROOT}/0000:00:14.0/usb1/1-0:1.0/usb1-port1",
            Below(Key(bus="usb", address="1-0:1.0")),
        ),
        (f"{ROOT}/0000:00:14.0", Own(CONTROLLER)),
        (f"{ROOT}/0000:00:14.0/usbmon/usbmon1", Below(CONTROLLER)),
        (
            f"{ROOT}/0000:00:1d.0/0000:41:00.0/nvme/nvme0/nvme0n1",
            Below(Key(bus="pci", address="0000:41:00.0")),
        ),
        (
            f"{ROOT}/0000:00:1d.0/0000:00:1d.0:pcie001",
            Below(Key(bus="pci", address="0000:00:1d.0")),
        ),
        (
            f"{ROOT}/0000:00:0e.0/pci10000:e0/10000:e0:06.0",
            Own(Key(bus="pci", address="10000:e0:06.0")),
        ),
        (
            f"{ROOT}/0000:00:17.0/ata1/host0/target0:0:0/0:0:0:0/block/sda",
            Below(Key(bus="pci", address="0000:00:17.0")),
        ),
        (
            "/devices/platform/soc/fe9c0000.usb/usb3/3-1/3-1:1.0/host0",
            Below(Key(bus="usb", address="3-1:1.0")),
        ),
        (f"{ROOT}/0000:00:14.0/", Below(CONTROLLER)),
        (ROOT, None),
        ("/devices/platform/serial8250/tty/ttyS0", None),
        ("/devices/virtual/block/dm-0", None),
        ("/devices/system/cpu/cpu0", None),
        ("0000:00:14.0", Own(CONTROLLER)),
        ("/", None),
        ("", None),
    ],
)
def test_a_path_belongs_to_the_nearest_device_at_or_above_it(
    path: str, expected: Subject | None
) -> None:
    assert subject(path, {}) == expected


def test_a_device_that_was_read_is_known_whatever_it_is_called() -> None:
    known = {f"{ROOT}/odd": Key(bus="pci", address="odd"), f"{PORT}/odd": INTERFACE}
    assert subject(f"{ROOT}/odd", known) == Own(Key(bus="pci", address="odd"))
    assert subject(f"{ROOT}/odd/child", known) == Below(Key(bus="pci", address="odd"))
    assert subject(f"{PORT}/odd/child", known) == Below(INTERFACE)


def test_names_that_only_resemble_addresses_are_no_devices() -> None:
    for name in ("0000:00:14", "0000:00:14.8", "000:00:14.0", "g000:00:14.0", "0:0:0:0"):
        assert subject(f"{ROOT}/{name}", {}) is None
    for name in ("1-2:1", "1-2:1.0x", "x1-2:1.0", "-2:1.0", "1-:1.0"):
        assert subject(f"{ROOT}/{name}", {}) is None
    for name in ("usb", "usbx", "1-2.", "1-x", "1"):
        assert subject(f"{ROOT}/{name}", {}) is None


def check_paths(machine: Snapshot) -> None:
    """Every path in a machine leads to the device that it lies in."""
    for known in ({}, {device.path: device.key for device in machine.devices}):
        for device in machine.devices:
            assert subject(device.path, known) == Own(device.key)
            for node in device.nodes:
                place = f"{device.path}/{node.place}"
                assert subject(place, known) == Below(device.key)


@pytest.mark.parametrize("machine", [desktop(), server(), homelab()])
def test_every_path_of_a_whole_machine_leads_to_its_device(machine: Snapshot) -> None:
    check_paths(machine)


@given(snapshots())
def test_every_path_of_any_machine_leads_to_its_device(machine: Snapshot) -> None:
    check_paths(machine)


steps = st.sampled_from(["devices", "usb1", "1-2", "1-2:1.0", "0000:00:14.0", "tty", "", "ep_00"])


@given(st.lists(steps | st.text(max_size=5), max_size=6))
def test_any_path_is_accepted_and_what_it_belongs_to_is_in_it(parts: list[str]) -> None:
    path = "/".join(parts)
    match subject(path, {}):
        case Own(key):
            assert path.rpartition("/")[2] == key.address
        case Below(key):
            assert f"/{key.address}/" in f"/{path}"
        case UsbDevice(found):
            assert found == path
        case None:
            pass
