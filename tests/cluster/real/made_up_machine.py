"""The made-up desk as the hardware of a node: files, device nodes and uevents.

Its sysfs and procfs are files. Its device nodes are real ones in the node's own `/dev`, made and
removed with each change before its uevents are sent, as the kernel does. What is read in pods has
numbers of devices that every kernel has (`Documentation/admin-guide/devices.txt`).
"""

import os
import stat
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace

from liken_events.core.model.delivery import bus_node
from liken_events.core.model.device import Inventory
from liken_events.core.model.publish import inventory
from liken_events.core.model.snapshot import Device, Node, Snapshot
from liken_events.simulate.recordings import desk
from liken_events.simulate.tree import MachineTree
from liken_events.simulate.uevents import Feed, Uevent
from tests.fakes.devices import tty, usb

ZERO, FULL, URANDOM = (1, 5), (1, 7), (1, 9)
"""Any number of bytes can be read from each."""

KVM = (10, 232)

SERIAL = "0001A2B3"
"""Of the stick that is the document's one physical unit."""


def numbered(node: Node, number: tuple[int, int]) -> Node:
    """A node with the number of another device."""
    return replace(node, major=number[0], minor=number[1])


STICK = usb(
    *("1-9:1.0", "10c4:ea60", "ff0000", "cp210x", 12),
    serial=SERIAL,
    nodes=[numbered(tty("ttyUSB9", 9), ZERO)],
)
STICK_NAME = "usb-1-9-1-0"
STICK_NODES = {"/dev/bus/usb/001/012": (189, 11), "/dev/ttyUSB9": ZERO}

STICK_CLASS = "zigbee-stick"
"""The document's class that the stick alone is of."""

RENUMBERED = replace(
    STICK,
    bus_node=bus_node("1", "40"),
    nodes=tuple(numbered(node, URANDOM) for node in STICK.nodes),
)
RENUMBERED_NODES = {"/dev/bus/usb/001/040": (189, 39), "/dev/ttyUSB9": URANDOM}
"""The stick after a replug: the same path, other numbers."""

MOVED = replace(STICK, bus_node=bus_node("1", "41"), nodes=(numbered(tty("ttyUSB5", 5), URANDOM),))
MOVED_NODES = {"/dev/bus/usb/001/041": (189, 40), "/dev/ttyUSB5": URANDOM}
"""The stick after a replug that gave it another path, too."""

ADAPTER_ADDRESS = "1-1.2:1.0"
ADAPTER_NAME = "usb-1-1-2-1-0"
ADAPTER_NODES = {"/dev/bus/usb/001/004": (189, 3), "/dev/ttyUSB0": FULL}
"""The desk's own serial adapter."""


def machine() -> Snapshot:
    """The desk, with one more stick."""
    devices = [
        replace(device, nodes=tuple(numbered(node, FULL) for node in device.nodes))
        if device.key.address == ADAPTER_ADDRESS
        else device
        for device in desk().devices
    ]
    return replace(desk(), devices=(*devices, STICK))


class MadeUpMachine:
    """The machine.

    Args:
        root: directory for its files, which is made.
        dev: the node's `/dev`, as it shows here.
        feed: takes the uevents.

    Attributes:
        tree: its files.
    """

    def __init__(self, root: str, dev: str, feed: Feed) -> None:
        self.tree = MachineTree.build(machine(), root)
        self._dev = dev
        self._feed = feed
        self._made: dict[str, Node] = {}
        self._show_nodes()
        self._show_kvm()

    @property
    def inventory(self) -> Inventory:
        """What is published of it."""
        return inventory(self.tree.snapshot)

    def change(self, how: Callable[[MachineTree], list[Uevent]]) -> None:
        """Has something happen to it."""
        uevents = how(self.tree)
        self._show_nodes()
        self._feed.send(uevents)

    def unplug(self) -> None:
        """Pulls the stick out."""
        self.change(lambda tree: tree.unplug("1-9"))

    def plug(self, stick: Device = STICK) -> None:
        """Plugs the stick in."""
        self.change(lambda tree: tree.plug(stick))

    def restore(self) -> None:
        """Brings the stick back as it was, if it is away or another."""
        there = [each for each in self.tree.snapshot.devices if each.key == STICK.key]
        if there != [STICK]:
            if there:
                self.unplug()
            self.plug()

    def _show_nodes(self) -> None:
        """Makes and removes device nodes. Of disks there are none: a number of a block device
        could be that of a disk of the machine that runs the test."""
        nodes = [node for device in self.inventory.offered for node in device.nodes]
        wanted = {node.path: node for node in nodes if not node.block}
        for path in [path for path, node in self._made.items() if wanted.get(path) != node]:
            os.unlink(self._inside(path))
            del self._made[path]
        for path in wanted.keys() - self._made.keys():
            os.makedirs(os.path.dirname(self._inside(path)), exist_ok=True)
            self._make(path, (wanted[path].major, wanted[path].minor))
            self._made[path] = wanted[path]

    def _show_kvm(self) -> None:
        if not os.path.exists(self._inside("/dev/kvm")):
            self._make("/dev/kvm", KVM)

    def _make(self, path: str, number: tuple[int, int]) -> None:
        with suppress(FileNotFoundError):
            os.unlink(self._inside(path))  # of the machine that runs the test; it stays there
        os.mknod(self._inside(path), stat.S_IFCHR | 0o660, os.makedev(*number))

    def _inside(self, path: str) -> str:
        return self._dev + path.removeprefix("/dev")
