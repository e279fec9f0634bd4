"""The scan: one look at the PCI and USB devices of a machine, through sysfs.

`/sys/bus/<bus>/devices` lists each device as a link to its directory. Attributes are small files;
a driver's nodes are directories with a `dev` file anywhere below. All of it races with unplugging:
any read may find the file gone (ENOENT), the device dying (ENODEV, EIO) or an attribute that has
nothing to say (EINVAL). Such a read is an absent attribute and never an error.

This file reads devices. One that was there at the start of a look and gone, or under another
driver or number, at its end is read again, and so is one of which something could not be read that
must be there: half of two states is no state. What the walk enters and what a directory stands for
is said in `core.model.delivery`; mounts and block devices are read in `sources.storage`.
"""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from liken_events.core.model.delivery import FOREIGN, bus_node, node
from liken_events.core.model.snapshot import (
    Bus,
    Device,
    Key,
    Node,
    Snapshot,
    Storage,
    sort_devices,
    sort_nodes,
)
from liken_events.sources import ScanFailed
from liken_events.sources.attributes import Files
from liken_events.sources.pci_names import PciNames
from liken_events.sources.storage import StorageReader

BUSES: tuple[Bus, ...] = ("pci", "usb")

LOOKS = 3
"""How often a device is read that changes while it is read. Each of its changes is announced by an
event anyway."""

ATTRIBUTE_GROUP = "power"
"""A directory that every device has and that is no device: power management attributes. Half of
all directories."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Roots:
    """Where the machine is, so that a made-up tree works like a real one.

    Attributes:
        sys, dev, proc: absolute paths of what is `/sys`, `/dev` and `/proc` on the machine that is
            looked at.
        pci_ids: path of a pci.ids database; None looks in the usual places.
        protect: paths of block devices that belong to the machine, mounted or not.
    """

    sys: str = "/sys"
    dev: str = "/dev"
    proc: str = "/proc"
    pci_ids: str | None = None
    protect: tuple[str, ...] = ()


class Scanner:
    """Reads one machine. Methods block; they are called in a worker thread."""

    def __init__(self, roots: Roots, files: Files | None = None) -> None:
        self._sys = os.path.realpath(roots.sys)
        self._files = files or Files()
        self._names = PciNames(roots.pci_ids)
        self._storage = StorageReader(
            sys=self._sys,
            dev=roots.dev,
            proc=roots.proc,
            protect=roots.protect,
            files=self._files,
        )

    def scan(self) -> Snapshot:
        """The whole machine.

        Raises:
            ScanFailed: a bus is there and cannot be listed, or the machine has run out of
                something.
        """
        found = (self.device(key) for key in self.slots())
        devices = sort_devices(device for device in found if device is not None)
        return Snapshot(devices=devices, storage=self._storage.read(anew=True))

    def storage(self) -> Storage:
        """Mounts, swap areas and block devices."""
        return self._storage.read()

    def uses_changed(self, storage: Storage) -> bool:
        """Whether mounts or swap areas on block devices differ from those of `storage`: the cheap
        half of a look."""
        return self._storage.uses() != (storage.uses, storage.unknown)

    def present(self, key: Key) -> bool:
        """Whether the bus lists the device. The kernel unlists a device before it says that it is
        removed."""
        return os.path.lexists(self._entry(key))

    def device(self, key: Key) -> Device | None:
        """One device; None if it is gone, or is no candidate because it has no modalias.

        Raises:
            ScanFailed: the machine has run out of something; nothing is known about the device.
        """
        device: Device | None = None
        try:
            for _ in range(LOOKS):
                before = self._identity(key)
                if before is None:
                    return None
                device, whole = self._read(key, before)
                if whole and self._identity(key) == before:
                    return device
        except OSError as error:
            raise ScanFailed(f"cannot read {key.bus} {key.address}: {error}") from error
        return device

    def slots(self) -> Iterator[Key]:
        """The slots that the buses list, in the order of a snapshot. Raises ScanFailed."""
        for bus in BUSES:
            try:
                names = self._files.names(f"{self._sys}/bus/{bus}/devices")
            except OSError as error:
                raise ScanFailed(f"cannot list {bus} devices: {error}") from error
            for name in names:
                yield Key(bus=bus, address=name)

    def _entry(self, key: Key) -> str:
        return f"{self._sys}/bus/{key.bus}/devices/{key.address}"

    def _identity(self, key: Key) -> "_Identity | None":
        path = self._files.target(self._entry(key))
        if path is None:
            return None
        number = self._attribute(f"{path}/..", "devnum") if key.bus == "usb" else None
        return _Identity(path, self._files.link(f"{path}/driver"), number)

    def _read(self, key: Key, identity: "_Identity") -> tuple[Device | None, bool]:
        """The device, and whether all could be read that must be there."""
        path = identity.path
        modalias = self._attribute(path, "modalias")
        if modalias is None:
            # All PCI functions and USB interfaces have one, and USB devices never.
            return None, ":" not in key.address
        nodes, hidden, whole = self._walk(path)
        kernel_path = path.removeprefix(self._sys)
        if key.bus == "pci":
            vendor, product = self._hex(path, "vendor"), self._hex(path, "device")
            maker, model = self._names.look_up(vendor or "", product or "")
            function = Device(
                key=key,
                path=kernel_path,
                driver=identity.driver,
                modalias=modalias,
                vendor=vendor,
                product=product,
                class_code=self._hex(path, "class"),
                maker=maker,
                model=model,
                nodes=nodes,
                hidden_disks=hidden,
            )
            return function, whole
        parent = os.path.dirname(path)
        number = bus_node(self._attribute(parent, "busnum"), identity.devnum)
        interface = Device(
            key=key,
            path=kernel_path,
            driver=identity.driver,
            modalias=modalias,
            vendor=self._hex(parent, "idVendor"),
            product=self._hex(parent, "idProduct"),
            class_code=self._hex(path, "bInterfaceClass"),
            serial=self._attribute(parent, "serial"),
            maker=self._attribute(parent, "manufacturer"),
            model=self._attribute(parent, "product"),
            nodes=nodes,
            bus_node=number if ":" in key.address else None,
            hidden_disks=hidden,
        )
        return interface, whole and number is not None

    def _walk(self, top: str) -> tuple[tuple[Node, ...], tuple[str, ...], bool]:
        """The nodes of a device's subtree, the names of block devices without a node, and whether
        all that was listed could be read."""
        nodes: list[Node] = []
        hidden: list[str] = []
        whole = True
        waiting = [""]
        while waiting:
            place = waiting.pop()
            path = f"{top}/{place}" if place else top
            entries = self._files.entries(path)
            if entries is None:
                whole = False
                continue
            names = {entry.name for entry in entries}
            subsystem = self._files.link(f"{path}/subsystem") if "subsystem" in names else None
            whole &= subsystem is not None or "subsystem" not in names
            if place and subsystem in FOREIGN:
                continue
            if "dev" in names and "uevent" in names:
                uevent, dev = self._files.text(f"{path}/uevent"), self._files.text(f"{path}/dev")
                whole &= uevent is not None and dev is not None
                found = node(uevent=uevent or "", dev=dev or "", subsystem=subsystem, place=place)
                if found is not None:
                    nodes.append(found)
            elif subsystem == "block":
                hidden.append(os.path.basename(path))
            waiting += [
                f"{place}/{entry.name}" if place else entry.name
                for entry in entries
                if entry.name != ATTRIBUTE_GROUP and entry.is_dir(follow_symlinks=False)
            ]
        return sort_nodes(nodes), tuple(sorted(hidden)), whole

    def _attribute(self, path: str, name: str) -> str | None:
        """An attribute without its newline; None if it is absent or empty."""
        text = self._files.text(f"{path}/{name}")
        return None if text is None else text.removesuffix("\n") or None

    def _hex(self, path: str, name: str) -> str | None:
        """A number as the kernel writes it, in lower case and without `0x`."""
        text = self._attribute(path, name)
        return None if text is None else text.strip().lower().removeprefix("0x") or None


class _Identity(NamedTuple):
    """What must not change during a look: the directory, the driver, the number on the USB bus."""

    path: str
    driver: str | None
    devnum: str | None
