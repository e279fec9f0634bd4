"""USB devices that the guest makes for itself, with any words and any interfaces.

`dummy_hcd` is a USB controller of which each port leads to a gadget port of the same machine.
A gadget is a directory of configfs; writing the port's name to its `UDC` plugs it in, writing an
empty line pulls it out.

Devices that QEMU emulates are in `hardware`.
"""

import itertools
import signal
from collections.abc import Mapping
from dataclasses import dataclass, field

from tests.vm.desk import Desk

CONFIGFS = "/sys/kernel/config"
PORTS = 4

KEYBOARD_REPORT = bytes.fromhex(
    "05010906a101050719e029e71500250175019508810295017508810395057501"
    "050819012905910295017503910395067508150025650507190029658100c0"
)
"""What a keyboard says that it sends: eight modifiers, one reserved byte, six keys, five LEDs."""

HID: Mapping[str, str | bytes] = {
    "protocol": "1",
    "subclass": "1",
    "report_length": "8",
    "report_desc": KEYBOARD_REPORT,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Gadget:
    """A device to be plugged in.

    Attributes:
        functions: what it does, such as `{"acm.a": {}}`: a function's name, and its files.
        vendor, product: four hex digits.
        words: `serialnumber`, `manufacturer` and `product`, whatever is in them.
    """

    functions: Mapping[str, Mapping[str, str | bytes]]
    vendor: str = "1209"
    product: str = "0001"
    words: Mapping[str, str] = field(default_factory=dict)


class Gadgets:
    """The gadgets that were made.

    Args:
        desk: the guest.
    """

    _numbers = itertools.count()

    def __init__(self, desk: Desk) -> None:
        self._control = desk.control
        self._desk = desk
        self._plugged: dict[int, str] = {}
        self._programs: list[int] = []
        ready = f"test -d {CONFIGFS}/usb_gadget || mount -t configfs none {CONFIGFS}"
        self._control.shell(f"modprobe dummy_hcd num={PORTS}; modprobe libcomposite; {ready}")

    def plug(self, port: int, gadget: Gadget) -> str:
        """Makes a gadget and plugs it in; returns its address, such as `3-1`."""
        self._plug_in(port, self._make(gadget))
        return self.address(port)

    def plug_radio(self, port: int, words: Mapping[str, str]) -> str:
        """The same with a Bluetooth radio, which is a program in the guest."""
        function = f"radio{next(self._numbers)}"
        name = self._make(Gadget(functions={f"ffs.{function}": {}}, words=words))
        folder = f"/run/{function}"
        self._control.shell(f"mkdir {folder}; mount -t functionfs {function} {folder}")
        argv = [self._desk.machine.python, "-m", "tests.vm.inside.radio", folder]
        pid: int = self._control.do("start", argv=argv)["pid"]
        self._programs.append(pid)
        self._desk.until(
            lambda: any(line["pid"] == pid for line in self._desk.records("line")),
            "the radio to be ready",
        )
        self._plug_in(port, name)
        return self.address(port)

    def pull(self, port: int) -> None:
        """Pulls out what is in a port."""
        self._control.write(f"{CONFIGFS}/usb_gadget/{self._plugged.pop(port)}/UDC", "\n")

    def pull_all(self) -> None:
        """Pulls everything out."""
        for port in list(self._plugged):
            self.pull(port)
        for pid in self._programs:
            self._control.do("stop", pid=pid, by=signal.SIGTERM)

    def address(self, port: int) -> str:
        """The address that a device in this port has, such as `3-1`."""
        bus = self._control.shell(f"cat /sys/devices/platform/dummy_hcd.{port}/usb*/busnum")
        return f"{bus.strip()}-1"

    def _make(self, gadget: Gadget) -> str:
        """Makes a gadget and returns its name."""
        name = f"gadget{next(self._numbers)}"
        folder = f"{CONFIGFS}/usb_gadget/{name}"
        functions = [f"{folder}/functions/{function}" for function in gadget.functions]
        made = [f"{folder}/strings/0x409", *functions, f"{folder}/configs/c.1"]
        self._control.run("mkdir", "-p", *made)
        self._write(folder, {"idVendor": f"0x{gadget.vendor}", "idProduct": f"0x{gadget.product}"})
        self._write(f"{folder}/strings/0x409", gadget.words)
        for function, files in zip(functions, gadget.functions.values(), strict=True):
            self._write(function, files)
        self._control.run("ln", "-s", *functions, f"{folder}/configs/c.1/")
        return name

    def _plug_in(self, port: int, name: str) -> None:
        self._control.write(f"{CONFIGFS}/usb_gadget/{name}/UDC", f"dummy_udc.{port}\n")
        self._plugged[port] = name

    def _write(self, folder: str, files: Mapping[str, str | bytes]) -> None:
        for name, data in files.items():
            self._control.write(f"{folder}/{name}", data)
