"""What real sysfs directories are full of, and what a walk through them has to pass by.

Beside the few files that say what a device is, the kernel keeps dozens: `power/` in every
directory, one directory for each USB endpoint (with a `uevent` file, but no subsystem and no
node), a `device` link from a node's directory back up to its parent, a nested `bluetooth` tree
whose nodes belong to somebody else, and binary files.

This file names such files and links for one object, so that a simulated tree is no tidier than a
real one. None of them changes what a scan finds.

What the objects themselves are is in `simulate.kobjects`; writing is left to
`simulate.directories`.
"""

from collections.abc import Iterable, Mapping

from liken_events.core.model.snapshot import Device
from liken_events.simulate.kobjects import BLOCK, Kobject

_POWER = {
    "power/async": "enabled",
    "power/control": "auto",
    "power/runtime_status": "active",
}

_ENDPOINT = {
    "bEndpointAddress": "81",
    "bInterval": "10",
    "bLength": "07",
    "bmAttributes": "03",
    "direction": "in",
    "interval": "16ms",
    "type": "Interrupt",
    "uevent": "DEVTYPE=usb_endpoint",
    "wMaxPacketSize": "0040",
}

_USB_DEVICE = {
    "authorized": "1",
    "bConfigurationValue": "1",
    "bDeviceClass": "00",
    "bMaxPacketSize0": "64",
    "bNumConfigurations": "1",
    "bmAttributes": "80",
    "configuration": "",
    "descriptors": "\x12\x01\x00\x02\x00\x00\x00\x40",
    "maxchild": "0",
    "removable": "removable",
    "speed": "480",
    "urbnum": "42",
    "version": " 2.00",
}

_USB_INTERFACE = {
    "authorized": "1",
    "bAlternateSetting": " 0",
    "bInterfaceNumber": "00",
    "bNumEndpoints": "01",
    "supports_autosuspend": "1",
}

_PCI = {
    "ari_enabled": "0",
    "broken_parity_status": "0",
    "config": "\udc86\udc80\x00\x00\x06\x04",  # bytes that are no UTF-8
    "enable": "1",
    "irq": "16",
    "link/l1_aspm": "1",
    "local_cpulist": "0-7",
    "msi_irqs/124": "msi",
    "numa_node": "-1",
    "resource": "0x00000000de000000 0x00000000deffffff 0x0000000000140204",
    "revision": "0x07",
    "subsystem_device": "0x8694",
    "subsystem_vendor": "0x1043",
}

_DISK = {
    "alignment_offset": "0",
    "capability": "0",
    "discard_alignment": "0",
    "hidden": "0",
    "inflight": "       0        0",
    "queue/rotational": "0",
    "queue/scheduler": "[none] mq-deadline",
    "removable": "0",
    "ro": "0",
}

_GAMEPAD = "0005:054C:09CC.0100"
_GAMEPAD_NODES = (
    (f"{_GAMEPAD}/input/input900/event900", "input", "13:1200", "input/event900"),
    (f"{_GAMEPAD}/hidraw/hidraw900", "hidraw", "243:900", "hidraw900"),
)
"""Nodes of a gamepad on a Bluetooth radio: below the radio's directory, and not the radio's. The
numbers are beyond those that a machine gives to its own."""


def files(item: Kobject) -> Mapping[str, str]:
    """Further files of an object's directory, name (with subdirectories) to text without the final
    newline."""
    return {**_POWER, **_kind_files(item)}


def links(item: Kobject) -> Mapping[str, str]:
    """Further links of an object's directory, name to kernel path."""
    if item.on_bus or item.subsystem is None or item.devtype == "partition":
        return {}
    above = item.path.rpartition("/")[0]
    # A class keeps its objects in a plain directory of its own name below their parent.
    parent = above.rpartition("/")[0] if above.endswith(f"/{item.subsystem}") else above
    return {"device": parent} if parent.count("/") > 2 else {}


def below(device: Device) -> Iterable[Kobject]:
    """Objects below a device that are not the device's: a Bluetooth radio's adapter, and a gamepad
    connected to it."""
    if device.driver != "btusb" or not device.path.endswith(".0"):
        return ()
    radio = f"{device.path}/bluetooth/hci0"
    peer = f"{radio}/hci0:70"
    return (
        Kobject(path=radio, subsystem="bluetooth", devtype="host"),
        Kobject(path=peer, subsystem="bluetooth", devtype="link"),
        Kobject(path=f"{peer}/{_GAMEPAD}", subsystem="hid", driver="playstation"),
        *(
            Kobject(path=f"{peer}/{place}", subsystem=kind, number=number, devname=devname)
            for place, kind, number, devname in _GAMEPAD_NODES
        ),
    )


def _kind_files(item: Kobject) -> Mapping[str, str]:
    if item.subsystem == "pci":
        return _PCI
    if item.devtype == "usb_device":
        return {**_USB_DEVICE, **_endpoint("ep_00")}
    if item.devtype == "usb_interface":
        return {**_USB_INTERFACE, **_endpoint("ep_81"), **_endpoint("ep_02")}
    if item.subsystem == BLOCK and item.devtype == "disk":
        return _DISK
    return {}


def _endpoint(name: str) -> Mapping[str, str]:
    return {f"{name}/{file}": text for file, text in {**_ENDPOINT, **_POWER}.items()}
