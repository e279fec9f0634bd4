"""How the actions of a soak are carried out.

No action waits for what it leads to. So one may come too early or too late for another: a driver
is bound to what was just pulled out, a disk is mounted that has no node yet. The kernel refuses
that, and the soak goes on; how often is counted.

What is done in which order is for `plan`.
"""

import errno
import os
import subprocess
import time
from collections import Counter
from dataclasses import dataclass

import yaml

from tests.fakes.claims import claim_body
from tests.vm.claims import FOLDER
from tests.vm.control import GuestFailed
from tests.vm.desk import Desk
from tests.vm.gadgets import CONFIGFS, HID, Gadget, Gadgets
from tests.vm.hardware import DISK_BYTES, Hardware
from tests.vm.machine import Machine, search_path
from tests.vm.soak.plan import DEVICES, Action
from tests.vm.soak.programs import NODE, Programs

MOUNT = "/run/soak-disk"

TOO_EARLY = {errno.ENODEV, errno.ENOENT, errno.EBUSY, errno.EINVAL}
"""What the kernel says to one who binds, unbinds or plugs what is not there, or is so already."""

PORTS = {
    "serial": ("1-1", "usb-serial", "ftdi_sio"),
    "other serial": ("1-2", "usb-serial", "ftdi_sio"),
    "keyboard": ("1-3", "usb-kbd", "usbhid"),
    "disk": ("2-4", "usb-storage", "usb-storage"),
    "audio": ("1-5", "usb-audio", "snd-usb-audio"),
}
"""Devices of QEMU's: address, QEMU's name, and the driver."""

GADGETS = {
    "modem": (0, Gadget(functions={"acm.a": {}}, words={"serialnumber": "M"}), "cdc_acm"),
    "keys": (1, Gadget(functions={"hid.b": HID}, words={"serialnumber": "K"}), "usbhid"),
}
"""Devices of the guest's own: port of `dummy_hcd`, what they are, and the driver."""


@dataclass(slots=True, kw_only=True)
class Claimed:
    """A claim that was made: of what, and where its file is."""

    device: str
    path: str


class Hands:
    """Does what a plan says.

    Args:
        machine: the guest.
        programs: what runs in it.
        directory: where the disk is.

    Attributes:
        addresses: the address of each device's interface, such as `1-1:1.0`.
        claims: the claims that are there, by uid.
        done: how often each kind of action was carried out.
        refused: how often the kernel refused one.
    """

    def __init__(self, machine: Machine, programs: Programs, directory: str) -> None:
        self._control = machine.control
        self._programs = programs
        self._hardware = Hardware(machine, directory)
        self._gadgets = Gadgets(Desk(machine, programs.agent))
        self._made: dict[str, str] = {}
        self._ids: dict[str, str] = {}
        self._disk = _formatted(machine, directory)
        self._lines = {name: self._hardware.line() for name in ("serial", "other serial")}
        self._files = 0
        self.addresses = {name: f"{port}:1.0" for name, (port, *_) in PORTS.items()}
        for name, (number, *_) in GADGETS.items():
            self.addresses[name] = f"{self._gadgets.address(number)}:1.0"
        assert self.addresses.keys() == set(DEVICES)
        self.claims: dict[str, Claimed] = {}
        self.done: Counter[str] = Counter()
        self.refused: Counter[str] = Counter()
        self._control.run("mkdir", "-p", FOLDER, MOUNT)

    def published_name(self, device: str) -> str:
        """What the agent calls a device."""
        return "usb-" + self.addresses[device].replace(":", "-").replace(".", "-")

    def do(self, action: Action) -> None:
        """Carries an action out, and waits for nothing."""
        self.done[action.kind] += 1
        try:
            self._do(action)
        except GuestFailed:
            if self._control.ended or action.kind not in {"mount", "unmount"}:
                raise
            self.refused[action.kind] += 1  # the disk has no node yet, or nothing is mounted
        except OSError as error:
            if error.errno not in TOO_EARLY:
                raise
            self.refused[action.kind] += 1

    def _do(self, action: Action) -> None:
        device, programs = action.device, self._programs
        match action.kind:
            case "plug":
                self._plug(device)
            case "pull":
                self._pull(device)
            case "replug":
                self._pull(device)
                time.sleep(action.amount)  # how long it is away is the case
                self._plug(device)
            case "unbind" | "bind":
                driver = (PORTS.get(device) or GADGETS[device])[2]
                place = f"/sys/bus/usb/drivers/{driver}/{action.kind}"
                self._control.write(place, self.addresses[device])
            case "mount":
                # Read-only, without its journal: it is pulled out while it is mounted.
                self._control.shell(
                    f"cd -P /sys/bus/usb/devices/{self.addresses['disk']}; "
                    f"node=/dev/$(basename $(find . -name 'sd?')); "
                    f"mount -t ext4 -o ro,noload $node {MOUNT}"
                )
            case "unmount":
                self._control.run("umount", MOUNT)
            case "claim":
                self._claim(action.uid, self.published_name(device))
            case "release":
                self._control.run("rm", self.claims.pop(action.uid).path)
            case "flood":
                programs.flood(int(action.amount))
            case "clock":
                self._control.shell(f"date -s @$(($(date +%s) + {action.amount:.0f}))")
            case "node away":
                self._control.run("rm", NODE)
            case "node back":
                self._control.run("mknod", NODE, "c", "1", "3")
            case "kubelet restart" | "kubelet wipe":
                programs.restart_kubelet(wipe=action.kind == "kubelet wipe")
            case "kubelet kill":
                programs.kill_kubelet()
            case "agent kill":
                programs.kill_agent()
                programs.start_agent()

    def _plug(self, device: str) -> None:
        if device in GADGETS:
            number, gadget, _ = GADGETS[device]
            if device not in self._made:
                self._gadgets.plug(number, gadget)
                found = self._control.shell(
                    f"grep -l dummy_udc.{number} {CONFIGFS}/usb_gadget/*/UDC"
                )
                self._made[device] = found.strip()
            else:
                self._control.write(self._made[device], f"dummy_udc.{number}\n")
            return
        address, driver, _ = PORTS[device]
        properties: dict[str, object] = {}
        if device in self._lines:
            properties = {"chardev": self._lines[device], "always-plugged": True}
        elif device == "disk":
            properties = {"drive": self._disk}
        elif device == "audio":
            properties = {"audiodev": "silence"}
        if driver != "usb-audio":
            properties["serial"] = device.upper()
        port = address.partition("-")[2]
        self._ids[device] = self._hardware.usb(driver, port, **properties)

    def _pull(self, device: str) -> None:
        if device in GADGETS:
            self._control.write(self._made[device], "\n")
        else:
            self._hardware.pull(self._ids.pop(device))

    def _claim(self, uid: str, name: str) -> None:
        self._files += 1
        path = f"{FOLDER}/c{self._files}.yaml"
        body = claim_body(name, name=f"c{self._files}", uid=uid)
        self._control.write(f"{path}.draft", yaml.safe_dump(body))
        self._control.run("mv", f"{path}.draft", path)
        self.claims[uid] = Claimed(device=name, path=path)


def _formatted(machine: Machine, directory: str) -> str:
    """A disk with a file system, which QEMU knows by the name that is returned."""
    path = os.path.join(directory, "formatted")
    with open(path, "wb") as file:
        file.truncate(DISK_BYTES)
    make = ["mkfs.ext4", "-q", "-F", path]
    subprocess.run(make, check=True, env={**os.environ, "PATH": search_path()})
    disk = {"driver": "raw", "node-name": "formatted"}
    machine.qmp.do("blockdev-add", **disk, file={"driver": "file", "filename": path})
    return "formatted"
