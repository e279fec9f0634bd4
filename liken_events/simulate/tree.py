"""A machine made of files: sysfs, procfs and an empty `/dev` in a directory, and changes as the
kernel makes them.

On a real machine a plugged stick is a dozen directories, twice as many links and a burst of
uevents, in an order of the kernel's. This file does the same to a tree: it is built from a
snapshot, each change brings the files to the new state, and returns the uevents that the kernel
would send for it.

Two things hold at any time: a scan of the tree gives `snapshot` again, and the uevents of a change
name every device that it touched. The files are complete before the uevents are returned, as
nobody can look faster than the kernel.

What the directories of devices hold is said in `simulate.hardware`, the other files in
`simulate.disks`, `simulate.proc` and `simulate.pci_ids`. Sending the uevents is left to
`simulate.uevents`.
"""

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Self

from liken_events.core.model.snapshot import (
    Device,
    Key,
    Node,
    Snapshot,
    Storage,
    Use,
    sort_devices,
    sort_disks,
    sort_nodes,
    sort_uses,
)
from liken_events.core.model.storage import PROTECTED, SWAP
from liken_events.simulate import clutter
from liken_events.simulate.directories import Directories
from liken_events.simulate.disks import Disks
from liken_events.simulate.hardware import (
    children,
    hubs_above,
    own,
    usb_device,
    usb_device_path,
)
from liken_events.simulate.kobjects import (
    Kobject,
    arrival,
    binding,
    departure,
    in_order,
    is_below,
    is_within,
)
from liken_events.simulate.pci_ids import PciIds
from liken_events.simulate.proc import Tables, shown
from liken_events.simulate.uevents import Uevent
from liken_events.simulate.usb_numbers import UsbNumbers, bus_of, renumbered


class MachineTree:
    """A machine in a directory. All methods block, for some milliseconds at most.

    Args:
        root: the directory; it is made if it is not there.
        clutter: whether the tree is as full of other files as a real one.

    Attributes:
        root, sys, dev, proc: absolute paths of the tree and of what stands for `/sys`, `/dev` and
        `/proc`.
        pci_ids: path of a PCI database that has the words of this machine's PCI functions.

    Raises:
        FileExistsError: the directory holds a tree already.
    """

    def __init__(self, root: str, *, clutter: bool = True) -> None:
        self.root = os.path.realpath(root)
        self.sys = f"{self.root}/sys"
        self.dev = f"{self.root}/dev"
        self.proc = f"{self.root}/proc"
        self.pci_ids = f"{self.root}/pci.ids"
        self._clutter = clutter
        self._devices: dict[Key, Device] = {}
        self._uses: list[Use] = []
        self._unknown: str | None = None
        self._directories = Directories(self.sys, clutter=clutter)
        self._disks = Disks(self._directories)
        os.mkdir(self.dev)
        self._tables = Tables(self.proc, clutter=clutter)
        self._names = PciIds(self.pci_ids)
        self._numbers = UsbNumbers()

    @classmethod
    def build(cls, snapshot: Snapshot, root: str, *, clutter: bool = True) -> Self:
        """A tree of a recorded machine.

        What no tree shows is left out, and is not in its `snapshot` either: disks that only a
        configuration protects, and numbers of swap areas and of filesystems over several disks,
        which are known from `/dev` alone. If its uses are unknown, there is no mount table.
        """
        tree = cls(root, clutter=clutter)
        tree.plug(*snapshot.devices)
        tree._disks.add(snapshot.storage.disks)
        tree._unknown = snapshot.storage.unknown
        if tree._unknown is None:
            tree._show_uses(use for use in snapshot.storage.uses if use.fstype != PROTECTED)
        else:
            tree._tables.hide()
        return tree

    @property
    def snapshot(self) -> Snapshot:
        """What a scan of the tree finds now."""
        return Snapshot(
            devices=sort_devices(self._devices.values()),
            storage=Storage(
                uses=sort_uses(self._uses),
                disks=sort_disks(self._disks.values()),
                unknown=self._unknown,
            ),
        )

    def plug(self, *devices: Device) -> list[Uevent]:
        """Adds devices that are not there: PCI functions, and USB devices with all their
        interfaces.

        The order for USB is that of a device whose modules have to be loaded first: it is bound
        before its interfaces are, and before they have nodes.

        Raises:
            ValueError: one of them, or another interface of the same USB device, is there already.
        """
        present = {_top(device) for device in self._devices.values()}
        families: dict[str, list[Device]] = {}
        for device in devices:
            if _top(device) in present:
                raise ValueError(f"{device.key.address} is plugged in already")
            families.setdefault(_top(device), []).append(device)
        self._names.learn(devices)
        self._numbers.learn(devices)
        said: list[Uevent] = []
        for top in sorted(families, key=lambda path: path.split("/")):
            family = sort_devices(families[top])
            said += (
                self._plug_usb(family) if family[0].key.bus == "usb" else self._plug_pci(*family)
            )
        return said

    def unplug(self, what: Key | str) -> list[Uevent]:
        """Removes a PCI function or a whole USB device, with all that hangs on it.

        Args:
            what: a PCI function or USB interface, or the address of a USB device such as `1-2`.

        Raises:
            LookupError: it is not there.
        """
        top = self._find(what)
        gone = self._directories.drop(top)
        self._disks.forget(gone)
        self._devices = {
            key: device for key, device in self._devices.items() if not is_within(device.path, top)
        }
        return departure(gone)

    def renumber(
        self,
        address: str,
        devnum: int,
        nodes: Mapping[Key, Sequence[Node]] | None = None,
    ) -> list[Uevent]:
        """A USB device leaves and comes back with another number, as after a reset or on a loose
        plug.

        Args:
            address: of the USB device, such as `1-2`. What hangs on it leaves and comes back too.
            devnum: its new number on the bus, 1 to 127.
            nodes: the nodes that its interfaces have then, where they are others than before.

        Raises:
            LookupError: there is no such USB device.
        """
        top = self._find(address)
        family = [device for device in self._devices.values() if is_below(device.path, top)]
        returning = []
        for device in family:
            changed = sort_nodes((nodes or {}).get(device.key, device.nodes))
            node = renumbered(device.bus_node, devnum) if _top(device) == top else device.bus_node
            returning.append(replace(device, bus_node=node, nodes=changed))
        return self.unplug(address) + self.plug(*returning)

    def next_number(self, address: str) -> int:
        """The number that the kernel would give next on the bus of this USB address."""
        return self._numbers.give(bus_of(address), self._devices.values())

    def unbind(self, key: Key) -> list[Uevent]:
        """The driver leaves a device, and takes its nodes with it.

        Raises:
            LookupError: there is no such device.
            ValueError: it has no driver, or other devices hang on it.
        """
        device = self._device(key)
        if device.driver is None:
            raise ValueError(f"{key.address} has no driver")
        if any(is_below(other.path, device.path) for other in self._devices.values()):
            raise ValueError(f"other devices hang on {key.address}")
        said = self._exchange(device, replace(device, driver=None, nodes=(), hidden_disks=()))
        return [*said, own(device).uevent("unbind")]

    def bind(self, key: Key, driver: str, nodes: Iterable[Node] = ()) -> list[Uevent]:
        """A driver takes a device that has none, and registers nodes for it.

        Raises:
            LookupError: there is no such device.
            ValueError: it has a driver.
        """
        device = self._device(key)
        if device.driver is not None:
            raise ValueError(f"{key.address} has the driver {device.driver}")
        bound = replace(device, driver=driver, nodes=sort_nodes(nodes))
        return self._exchange(device, bound) + binding(own(bound))

    def add_nodes(self, key: Key, nodes: Iterable[Node]) -> list[Uevent]:
        """A driver registers more nodes. Raises LookupError: there is no such device."""
        device = self._device(key)
        more = replace(device, nodes=sort_nodes({*device.nodes, *nodes}))
        return self._exchange(device, more)

    def remove_nodes(self, key: Key, nodes: Iterable[Node]) -> list[Uevent]:
        """A driver takes nodes back. Raises LookupError: there is no such device."""
        device = self._device(key)
        fewer = replace(device, nodes=sort_nodes({*device.nodes} - {*nodes}))
        return self._exchange(device, fewer)

    def mount(self, use: Use) -> list[Uevent]:
        """Adds a line to the mount table, or to the list of swap areas for the type `swap`.

        The kernel sends no uevent, so there are none in the answer.
        """
        self._show_uses([*self._uses, use])
        return []

    def unmount(self, what: str) -> list[Uevent]:
        """Takes out what was mounted last at a place; for swap, the source is the place.

        The kernel sends no uevent, so there are none in the answer.

        Raises:
            LookupError: nothing is mounted there.
        """
        for index in reversed(range(len(self._uses))):
            use = self._uses[index]
            if what == (use.source if use.fstype == SWAP else use.what):
                self._show_uses(self._uses[:index] + self._uses[index + 1 :])
                return []
        raise LookupError(f"nothing is mounted on {what}")

    def _plug_pci(self, device: Device) -> list[Uevent]:
        return arrival(self._put_device(device))

    def _plug_usb(self, family: Sequence[Device]) -> list[Uevent]:
        top = usb_device(family)
        for hub in hubs_above(top.path):
            if hub.path not in self._directories:
                self._directories.put(hub)
        self._directories.put(top)
        interfaces = [self._put_device(device) for device in family]
        said = [top.uevent("add"), top.uevent("change")]
        said += [item.uevent("add") for item, *_ in interfaces]
        said += binding(top)
        for item, *below in interfaces:
            said += arrival(below) + binding(item)
        return said

    def _show_uses(self, uses: Iterable[Use]) -> None:
        self._uses = [shown(use) for use in uses]
        self._unknown = None
        self._tables.write(self._uses)

    def _put_device(self, device: Device) -> list[Kobject]:
        """Makes the directories of one device; its own object first in the answer, then those
        below."""
        objects = [own(device), *self._children(device)]
        for item in objects:
            self._directories.put(item)
        self._disks.learn(device)
        self._devices[device.key] = device
        return objects

    def _exchange(self, old: Device, new: Device) -> list[Uevent]:
        """Gives a device other nodes or another driver; returns what is said of what is below
        it."""
        before, after = self._children(old), self._children(new)
        gone = [item for item in before if item not in after]
        for item in gone:
            self._directories.drop(item.path)
        self._disks.forget(gone)
        self._put_device(new)
        return departure(gone) + arrival(item for item in after if item not in before)

    def _children(self, device: Device) -> list[Kobject]:
        foreign = clutter.below(device) if self._clutter else ()
        return in_order([*children(device), *foreign])

    def _device(self, key: Key) -> Device:
        try:
            return self._devices[key]
        except KeyError:
            raise LookupError(f"there is no {key.bus} device {key.address}") from None

    def _find(self, what: Key | str) -> str:
        """Kernel path of a PCI function or of a whole USB device."""
        if isinstance(what, Key):
            return _top(self._device(what))
        for device in self._devices.values():
            if device.key.bus == "usb" and _top(device).endswith(f"/{what}"):
                return _top(device)
        raise LookupError(f"there is no USB device {what}")


def _top(device: Device) -> str:
    """Kernel path of what is plugged and unplugged: a PCI function, or the USB device of an
    interface."""
    return device.path if device.key.bus == "pci" else usb_device_path(device)
