"""Devices of QEMU's that a test plugs in and pulls out.

The guest has a USB controller with eight ports for each speed, and PCI Express slots into which
functions are plugged while it runs. A USB device that is slower than 5 Gbit/s on port 3 is `1-3`
in the guest, a faster one `2-3`.

Devices that the guest makes itself are in `gadgets`.
"""

import contextlib
import itertools
import os
import socket
from typing import Any

from tests.vm.machine import Machine
from tests.vm.qmp import Refused

PCI_SLOTS = 4

AT_BOOT = (
    *("-device", "qemu-xhci,id=xhci,p2=8,p3=8,addr=0x10"),
    *("-device", "virtio-vga,id=vga,addr=0x11"),
    *("-audiodev", "none,id=silence"),
    *("-device", "intel-hda,id=hda,addr=0x16", "-device", "hda-duplex,bus=hda.0,audiodev=silence"),
    *(
        argument
        for slot in range(PCI_SLOTS)
        for argument in (
            "-device",
            f"pcie-root-port,id=slot{slot},chassis={slot + 1},addr={0x12 + slot:#x}",
        )
    ),
)
"""What the guest has from its start: a USB controller, a GPU, a sound card, and empty slots."""

GPU = "0000:00:11.0"
SOUND = "0000:00:16.0"

DISK_BYTES = 64 << 20


class Hardware:
    """The devices that were plugged in, so that they can all be pulled out.

    Args:
        machine: the guest.
        directory: where disks are.
    """

    _numbers = itertools.count(1)  # names stay taken in QEMU when a test is over

    def __init__(self, machine: Machine, directory: str) -> None:
        self._machine = machine
        self._directory = directory
        self._plugged: dict[str, bool] = {}

    def usb(self, driver: str, port: str, **properties: Any) -> str:
        """Plugs a USB device into a port, or into a hub's (`3.2`); returns its id."""
        return self._add(driver, bus="xhci.0", port=port, **properties)

    def usb_serial(self, port: str, serial: str, line: str | None = None) -> str:
        """Plugs in a serial adapter on a line, or one that is connected to nothing."""
        # QEMU attaches the adapter only while somebody is at the other end, unless it is told.
        properties = {"chardev": line or self.line(), "serial": serial, "always-plugged": True}
        return self.usb("usb-serial", port, **properties)

    def usb_disk(self, port: str, serial: str) -> str:
        """Plugs in a disk of 64 MB."""
        return self.usb("usb-storage", port, drive=self.disk(), serial=serial)

    def pci(self, driver: str, slot: int, **properties: Any) -> str:
        """Plugs a PCI function into a slot; returns its id."""
        return self._add(driver, bus=f"slot{slot}", is_pci=True, **properties)

    def line(self) -> str:
        """A serial line that no device has yet, and nobody at its other end; returns its name."""
        name = self._name("line")
        self._machine.qmp.do("chardev-add", id=name, backend={"type": "null", "data": {}})
        return name

    def connected_line(self) -> tuple[str, socket.socket]:
        """A serial line that no device has yet; returns its name, and its other end."""
        name = self._name("line")
        path = os.path.join(self._directory, name)
        address = {"type": "unix", "data": {"path": path}}
        data = {"addr": address, "server": True, "wait": False}
        self._machine.qmp.do("chardev-add", id=name, backend={"type": "socket", "data": data})
        end = socket.socket(socket.AF_UNIX)
        end.connect(path)
        return name, end

    def disk(self) -> str:
        """An empty disk of 64 MB that no device has yet; returns its name."""
        name = self._name("disk")
        path = os.path.join(self._directory, name)
        with open(path, "wb") as file:
            file.truncate(DISK_BYTES)
        self._machine.qmp.do(
            "blockdev-add",
            **{"driver": "raw", "node-name": name, "file": {"driver": "file", "filename": path}},
        )
        return name

    def pull(self, device: str) -> None:
        """Pulls a device out, and waits until QEMU has let go of it."""
        self._plugged.pop(device)
        self._machine.qmp.do("device_del", id=device)
        self._machine.qmp.wait_deleted(device)

    def pull_all(self) -> None:
        """Pulls out all that is left, what hangs on a hub first."""
        for device in reversed(list(self._plugged)):
            with contextlib.suppress(Refused):  # what hung on a hub went with it
                self.pull(device)

    def _add(self, driver: str, *, is_pci: bool = False, **properties: Any) -> str:
        name = self._name(driver)
        self._machine.qmp.do("device_add", driver=driver, id=name, **properties)
        self._plugged[name] = is_pci
        return name

    def _name(self, kind: str) -> str:
        return f"{kind}-{next(self._numbers)}"
