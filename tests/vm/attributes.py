"""What is published of QEMU's devices, except where they are and what their serial number is."""

from typing import Any

FTDI = {
    "driver": "ftdi_sio",
    "class": "vendor-specific",
    "classCode": "ff",
    "subsystem": "tty",
    "vendor": "0403",
    "product": "6001",
    "name": "QEMU QEMU USB SERIAL",
    "modalias": "usb:v0403p6001d0400dc00dsc00dp00icFFiscFFipFFin00",
}

KEYBOARD = {
    "driver": "usbhid",
    "class": "hid",
    "classCode": "03",
    "vendor": "0627",
    "product": "0001",
    "name": "QEMU QEMU USB Keyboard",
    "modalias": "usb:v0627p0001d0000dc00dsc00dp00ic03isc01ip01in00",
}

TABLET = KEYBOARD | {
    "name": "QEMU QEMU USB Tablet",
    "modalias": "usb:v0627p0001d0000dc00dsc00dp00ic03isc00ip00in00",
}

DISK = {
    "driver": "usb-storage",
    "class": "mass-storage",
    "classCode": "08",
    "vendor": "46f4",
    "product": "0001",
    "name": "QEMU QEMU USB HARDDRIVE",
    "modalias": "usb:v46F4p0001d0000dc00dsc00dp00ic08isc06ip50in00",
}

NVME = {
    "driver": "nvme",
    "class": "storage",
    "classCode": "010802",
    "vendor": "1b36",
    "product": "0010",
    "name": "1b36:0010",
    "modalias": "pci:v00001B36d00000010sv00001AF4sd00001100bc01sc08i02",
}

PCI_SERIAL = {
    "driver": "serial",
    "class": "communication",
    "classCode": "070002",
    "subsystem": "tty",
    "vendor": "1b36",
    "product": "0002",
    "name": "1b36:0002",
    "modalias": "pci:v00001B36d00000002sv00001AF4sd00001100bc07sc00i02",
}


def usb(address: str, *parts: dict[str, Any], **more: Any) -> dict[str, Any]:
    """The attributes of a USB interface."""
    found: dict[str, Any] = {"bus": "usb", "address": address}
    for part in (*parts, more):
        found |= part
    return found


def pci(address: str, *parts: dict[str, Any]) -> dict[str, Any]:
    """The attributes of a PCI function."""
    return usb(address, *parts) | {"bus": "pci"}
