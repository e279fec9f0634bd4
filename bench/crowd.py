"""Machines of any size: 20 devices of a desktop, and as many such desktops as it takes.

What an agent costs depends on how many devices a machine has and on what hangs on each: a GPU has
a dozen directories below it, a network function a handful, a hub as many as it has ports. A tree
of a thousand equal devices would measure neither.

This file makes snapshots of such machines. Each block of 20 has a bus of its own and the mix of a
well-filled desk. What its directories are full of besides is added by `simulate.tree`.
"""

from collections.abc import Iterator
from dataclasses import replace

from liken_events.core.model.snapshot import Device, Node, Snapshot
from tests.fakes.devices import (
    XHCI,
    dp_aux,
    drm,
    event,
    hidraw,
    i2c,
    nvme_disk,
    pci,
    root_hub,
    scsi_disk,
    snd,
    tty,
    usb,
)
from tests.fakes.machines import machine

BLOCK = 20
"""Devices of one block."""

STICKS = 4
"""Serial adapters of one block, on ports 1 to 4 of the hub."""


def crowd(devices: int) -> Snapshot:
    """A machine of this many devices; a multiple of `BLOCK` has whole blocks only."""
    blocks = -(-devices // BLOCK)
    found = [device for number in range(blocks) for device in block(number)]
    return machine(found[:devices])


def block(number: int) -> list[Device]:
    """The 20 devices of one block, those of PCI first."""
    return [*_pci_devices(number), *_usb_devices(number)]


def stick(number: int, port: int, *, serial: str = "0001", devnum: int | None = None) -> Device:
    """A serial adapter on one of the hub's ports, 1 to `STICKS`; publishes one device."""
    index = number * STICKS + port - 1
    return _own_controller(
        number,
        usb(
            f"{number + 1}-1.{port}:1.0",
            "10c4:ea60",
            "ff0000",
            "cp210x",
            devnum or 10 + port,
            words=("Silicon Labs", "CP2102 USB to UART Bridge Controller"),
            serial=serial,
            nodes=[tty(f"ttyUSB{index}", index)],
        ),
    )


def disk(number: int) -> Device:
    """A USB stick with one partition that nobody uses, on a port that is empty otherwise;
    publishes one device."""
    return _own_controller(
        number,
        usb(
            f"{number + 1}-5:1.0",
            "0781:5581",
            "080650",
            "usb-storage",
            20,
            words=("SanDisk", "Ultra"),
            serial="4C530001230818109192",
            nodes=scsi_disk("", 1, 0, 1),
        ),
    )


def _pci_devices(number: int) -> Iterator[Device]:
    intel = "Intel Corporation"
    port, card = f"0000:{number:02x}:1c.0", f"card{number}"
    connectors = [f"{card}-DP-1", f"{card}-HDMI-A-1"]
    yield pci(f"0000:{number:02x}:00.0", "8086:1904", "060000", words=(intel, "Host Bridge"))
    yield pci(port, "8086:a110", "060400", "pcieport", words=(intel, "PCI Express Root Port"))
    yield pci(_controller(number), "8086:a12f", "0c0330", "xhci_hcd", words=(intel, "xHCI"))
    yield pci(
        f"{port}/0000:{number + 0x80:02x}:00.0",
        "8086:1912",
        "030000",
        "i915",
        words=(intel, "HD Graphics 530"),
        nodes=[
            drm(card, number),
            drm(f"renderD{128 + number}", 128 + number),
            i2c(number * 3),
            i2c(number * 3 + 1, f"drm/{card}/{connectors[0]}/"),
            i2c(number * 3 + 2, f"drm/{card}/{connectors[1]}/"),
            dp_aux(number, connectors[0]),
        ],
    )
    yield pci(
        f"0000:{number:02x}:1f.3",
        "8086:a170",
        "040300",
        "snd_hda_intel",
        words=(intel, "HD Audio"),
        nodes=[
            snd(number, name, number * 8 + index)
            for index, name in enumerate(
                f"{kind.replace('C0', f'C{number}')}"
                for kind in ("controlC0", "pcmC0D0p", "pcmC0D0c", "pcmC0D3p", "hwC0D0")
            )
        ],
    )
    yield pci(f"0000:{number:02x}:1f.6", "8086:15b8", "020000", "e1000e", words=(intel, "I219-V"))
    yield pci(f"0000:{number:02x}:16.0", "8086:a13a", "078000", words=(intel, "MEI Controller"))
    yield pci(
        f"{port}/0000:{number + 0x80:02x}:00.1",
        "144d:a808",
        "010802",
        "nvme",
        words=("Samsung Electronics Co Ltd", "NVMe SSD Controller SM981"),
        nodes=nvme_disk(number, number * 8, 2),
    )


def _usb_devices(number: int) -> Iterator[Device]:
    bus = number + 1
    yield _own_controller(number, root_hub(bus, 2))
    yield _own_controller(number, usb(f"{bus}-1:1.0", "0bda:5411", "090000", "hub", 2))
    for port in range(1, STICKS + 1):
        yield stick(number, port)
    keyboard, hid = ("Logitech", "USB Keyboard"), f"0003:046D:C31C.{number * 2 + 1:04X}"
    yield _own_controller(
        number,
        usb(f"{bus}-2:1.0", "046d:c31c", "030101", "usbhid", 3, words=keyboard,
            nodes=[hidraw(hid, number * 2), event(f"{hid}/input", number * 2, number * 2)]),
    )  # fmt: skip
    hid = f"0003:046D:C31C.{number * 2 + 2:04X}"
    yield _own_controller(
        number,
        usb(f"{bus}-2:1.1", "046d:c31c", "030000", "usbhid", 3, words=keyboard,
            nodes=[hidraw(hid, number * 2 + 1),
                   event(f"{hid}/input", number * 2 + 1, number * 2 + 1)]),
    )  # fmt: skip
    webcam = ("Logitech", "HD Pro Webcam C920")
    video = [_video(number * 2), _video(number * 2 + 1)]
    media = Node(
        path=f"/dev/media{number}",
        subsystem="media",
        major=237,
        minor=number,
        place=f"media{number}",
    )
    yield _own_controller(
        number,
        usb(
            f"{bus}-3:1.0",
            "046d:082d",
            "0e0100",
            "uvcvideo",
            4,
            words=webcam,
            nodes=[*video, media],
        ),
    )
    yield _own_controller(
        number, usb(f"{bus}-3:1.1", "046d:082d", "0e0200", "uvcvideo", 4, words=webcam)
    )
    for interface in (0, 1):
        yield _own_controller(
            number, usb(f"{bus}-4:1.{interface}", "8087:0a2b", "e00101", "btusb", 5)
        )


def _video(number: int) -> Node:
    name = f"video{number}"
    return Node(
        path=f"/dev/{name}",
        subsystem="video4linux",
        major=81,
        minor=number,
        place=f"video4linux/{name}",
    )


def _controller(number: int) -> str:
    return f"0000:{number:02x}:14.0"


def _own_controller(number: int, device: Device) -> Device:
    """A USB device below its block's controller, and not below the one of all test machines."""
    return replace(device, path=device.path.replace(XHCI, _controller(number)))
