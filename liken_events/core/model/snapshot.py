"""One look at a machine, as a frozen value.

sysfs shows hardware as directories that change while they are read. Every decision of this project
is made on a value instead: what was read of each PCI function and USB interface, of the block
devices, and of the mounts and swap areas.

This file holds the shapes of that value. Text is kept as it was read, only decoded (bytes that are
not UTF-8 became U+FFFD); cleaning it for display is the business of `core.model.names`.

Its JSON form is in `core.model.recording`. Reading a machine into a snapshot is left to
`sources.sysfs`, making a tree of one to `simulate.tree`.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Literal, TypeAlias

Bus: TypeAlias = Literal["pci", "usb"]


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Key:
    """A device's place on its bus: `Key(bus="usb", address="1-2:1.0")`. Names the slot, not the
    unit."""

    bus: Bus
    address: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A device node.

    Attributes:
        path: absolute path, such as `/dev/ttyUSB0`; from `DEVNAME` of the `uevent` file.
        subsystem: base name of the `subsystem` link, such as `tty`; None where the kernel gave no
            link.
        major, minor: device numbers from the `dev` file.
        block: true for a block device, which has the subsystem `block`.
        place: directory below the device's own, such as `ttyUSB0/tty/ttyUSB0`; `""` for the
            device's own.
    """

    path: str
    subsystem: str | None = None
    major: int = 0
    minor: int = 0
    place: str = ""

    @property
    def block(self) -> bool:
        """Block device or character device: the kernel puts all block devices, and no other, in
        one subsystem."""
        return self.subsystem == "block"


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """One PCI function or one USB interface, as sysfs showed it.

    An attribute that the hardware lacks, or that could not be read, is None.

    Attributes:
        key: bus and address.
        path: kernel path (`/devices/…`) of the device's own directory.
        driver: base name of the `driver` link.
        modalias: the device's `modalias` file.
        vendor, product: four hex digits, lower case, without prefix.
        class_code: six hex digits on PCI, two on USB.
        serial: the USB device's serial number string.
        maker, model: words: the USB device's manufacturer and product strings, or the names that
            the pci.ids database has for vendor and device.
        nodes: what the walk of the subtree found, sorted.
        bus_node: the usbfs node of the USB device that the interface belongs to.
        hidden_disks: names of block devices below that have no node of their own (`nvme0c0n1`, one
            path of a multipath NVMe namespace); the machine may stand on the disk that they serve.
    """

    key: Key
    path: str
    driver: str | None = None
    modalias: str | None = None
    vendor: str | None = None
    product: str | None = None
    class_code: str | None = None
    serial: str | None = None
    maker: str | None = None
    model: str | None = None
    nodes: tuple[Node, ...] = ()
    bus_node: Node | None = None
    hidden_disks: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Disk:
    """A block device, for following what lies on what.

    Attributes:
        name: kernel name, such as `sda1` or `dm-0`.
        number: `major:minor`.
        whole: for a partition, the name of its disk; None otherwise.
        slaves: names of the block devices it is made of (device-mapper, md, bcache).
        mapper: the name below `/dev/mapper`, for device-mapper.
        btrfs: the ids of the mounted btrfs filesystems that it is a member of.
    """

    name: str
    number: str
    whole: str | None = None
    slaves: tuple[str, ...] = ()
    mapper: str | None = None
    btrfs: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Use:
    """A mounted filesystem, an active swap area, or a disk that the configuration names.

    Attributes:
        what: where it shows, such as `/home` or `swap`: what `explain` prints.
        fstype: filesystem type, `swap`, or `protected`.
        source: the mount source or swap path as the kernel names it, such as
            `/dev/mapper/vg-root`.
        number: `major:minor` as far as it could be told, or None. Filesystems over several disks
            show a number with major 0, which no disk has.
    """

    what: str
    fstype: str
    source: str
    number: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Storage:
    """What the machine's own filesystems and swap stand on.

    Attributes:
        uses: sorted.
        disks: sorted.
        unknown: why the uses could not be told (an unreadable mount table), or None. Then no block
            device may be offered to anybody: the one that the machine stands on could be among
                them.
    """

    uses: tuple[Use, ...] = ()
    disks: tuple[Disk, ...] = ()
    unknown: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """A machine at one moment. Devices are sorted by bus and address, so equal hardware gives
    equal values."""

    devices: tuple[Device, ...] = ()
    storage: Storage = field(default_factory=Storage)

    def without_serials(self) -> "Snapshot":
        """The same machine with each serial number replaced by `serial-1`, `serial-2`, … in order
        of appearance.

        Equal serial numbers stay equal, because two sticks with one serial number are a case worth
        reporting. Where a serial number of four or more characters stands inside other words it is
        replaced there too.
        """
        known: dict[str, str] = {}
        for device in self.devices:
            if device.serial is not None and device.serial not in known:
                known[device.serial] = f"serial-{len(known) + 1}"
        # One serial number may be the beginning of another.
        longest_first = sorted(known, key=len, reverse=True)

        def scrub(text: str | None) -> str | None:
            for serial in longest_first:
                if text is not None and len(serial) >= 4:
                    text = text.replace(serial, known[serial])
            return text

        return replace(
            self,
            devices=tuple(
                replace(
                    device,
                    serial=None if device.serial is None else known[device.serial],
                    maker=scrub(device.maker),
                    model=scrub(device.model),
                )
                for device in self.devices
            ),
        )


def sort_devices(devices: Iterable[Device]) -> tuple[Device, ...]:
    """Devices in the order of a snapshot: by bus, then address."""
    return tuple(sorted(devices, key=lambda device: device.key))


def sort_nodes(nodes: Iterable[Node]) -> tuple[Node, ...]:
    """Nodes by path; two directories that name one path (it is not seen on real machines) by
    place."""
    return tuple(sorted(nodes, key=lambda node: (node.path, node.place)))


def sort_disks(disks: Iterable[Disk]) -> tuple[Disk, ...]:
    """Disks by name."""
    return tuple(sorted(disks, key=lambda disk: disk.name))


def sort_uses(uses: Iterable[Use]) -> tuple[Use, ...]:
    """Uses by where they show; the same place may be mounted over more than once."""
    return tuple(
        sorted(set(uses), key=lambda use: (use.what, use.source, use.number or "", use.fstype))
    )
