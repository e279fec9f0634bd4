"""Recorded devices as the kernel's objects: which directories each has, with what in them.

A snapshot holds only what decides about publishing. The levels between a device and its nodes
(`hid`, `input`, `scsi`) are known from the places of the nodes, what a USB device tells of itself
from its interfaces, numbers of version and class from the modalias.

This file turns devices into objects. It touches no file. What else real directories are full of is
in `simulate.clutter`, what lies on which block device in `simulate.disks`.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace

from liken_events.core.model.delivery import bus_node
from liken_events.core.model.snapshot import Device, Disk, Node
from liken_events.simulate.kobjects import BLOCK, Kobject, in_order

_LEVELS = (
    (re.compile(r"[0-9A-F]{4}:[0-9A-F]{4}:[0-9A-F]{4}\.[0-9A-F]{4}"), "hid", None, "hid-generic"),
    (re.compile(r"input\d+"), "input", None, None),
    (re.compile(r"ttyUSB\d+"), "usb-serial", None, None),
    (re.compile(r"host\d+"), "scsi", "scsi_host", None),
    (re.compile(r"target\d+:\d+:\d+"), "scsi", "scsi_target", None),
    (re.compile(r"\d+:\d+:\d+:\d+"), "scsi", "scsi_device", "sd"),
    (re.compile(r"i2c-\d+"), "i2c", None, None),
    (re.compile(r"virtio\d+"), "virtio", None, None),
    (re.compile(r"nvme\d+"), "nvme", None, None),
    (re.compile(r"card\d+"), "sound", None, None),
    (re.compile(r"card\d+-.+"), "drm", "drm_connector", None),
)
"""Levels between a device and its nodes that are objects themselves: name, subsystem, DEVTYPE,
driver. Every other level (`tty`, `block`, `sound`) is a plain directory that sorts the objects of
one class."""

_MODALIAS = re.compile(
    "usb:v(?P<v>_{4})p(?P<p>_{4})d(?P<d>_{4})dc(?P<dc>__)dsc(?P<dsc>__)dp(?P<dp>__)"
    "ic(?P<ic>__)isc(?P<isc>__)ip(?P<ip>__).*".replace("_", "[0-9A-F]")
)
"""A USB interface's modalias: ids, version, class triples of the device and of the interface."""

_USB_NAME = re.compile(r"usb\d+|\d+-\d+(\.\d+)*")
"""Directory name of a USB device: a root hub, or bus and ports (`1-1.2`)."""

_MULTIPATH = re.compile(r"nvme\d+c(?P<controller>\d+)n\d+")


def own(device: Device) -> Kobject:
    """The object of a PCI function or USB interface itself."""
    made = _pci_function(device) if device.key.bus == "pci" else _usb_interface(device)
    for node in device.nodes:
        if not node.place:
            made = replace(made, number=_number(node), devname=_devname(node))
    return made


def children(device: Device) -> list[Kobject]:
    """What the driver of a device registered below it, in order."""
    found: dict[str, Kobject] = {}
    for node in device.nodes:
        if node.place:
            path = f"{device.path}/{node.place}"
            found[path] = _node(node, path, partition=is_partition(node, device.nodes))
    for name in device.hidden_disks:
        match = _MULTIPATH.fullmatch(name)
        place = f"nvme/nvme{match['controller']}" if match else BLOCK
        path = f"{device.path}/{place}/{name}"
        found[path] = Kobject(
            path=path, subsystem=BLOCK, devtype="disk", attributes=(("hidden", "1"),)
        )
    for path in list(found):
        for level in _levels(device, path):
            found.setdefault(level.path, level)
    return in_order(found.values())


def usb_device(interfaces: Sequence[Device]) -> Kobject:
    """The USB device that interfaces belong to. What one of them could not read, another may
    know."""
    path = usb_device_path(interfaces[0])
    shared: dict[str, str] = {}
    for item in interfaces:
        texts = {
            "idVendor": item.vendor,
            "idProduct": item.product,
            "manufacturer": item.maker,
            "product": item.model,
            "serial": item.serial,
        }
        for name, text in texts.items():
            if text is not None:
                shared.setdefault(name, text)
    node = next((item.bus_node for item in interfaces if item.bus_node is not None), None)
    made = _usb_device(path, node)
    return replace(
        made,
        variables=_usb_variables(interfaces[0]) + made.variables,
        attributes=tuple(shared.items()) + made.attributes,
    )


def usb_device_path(interface: Device) -> str:
    """Kernel path of the USB device that an interface belongs to."""
    return interface.path.rpartition("/")[0]


def hubs_above(path: str) -> list[Kobject]:
    """The hubs that a USB device hangs on, as far as its path tells; a root hub's number is always
    1."""
    found = []
    parts = path.split("/")
    for depth in range(2, len(parts)):
        name = parts[depth - 1]
        if _USB_NAME.fullmatch(name):
            node = bus_node(name[3:], "1") if name.startswith("usb") else None
            found.append(_usb_device("/".join(parts[:depth]), node))
    return found


def virtual_disk(disk: Disk, path: str) -> Kobject:
    """A block device that belongs to no PCI or USB device (device-mapper, md), or a partition of
    one."""
    partition = disk.whole is not None
    return Kobject(
        path=path,
        subsystem=BLOCK,
        number=disk.number,
        devname=disk.name.replace("!", "/"),
        devtype="partition" if partition else "disk",
        attributes=_block_attributes(disk.name, partition=partition),
    )


def is_partition(node: Node, others: Iterable[Node]) -> bool:
    """Whether a block device is a partition of another one.

    It lies in the other's directory and is named for it, with a number, behind a `p` if the disk's
    own name ends in a digit. (`mmcblk0boot0` lies in `mmcblk0`, and is a disk.)
    """
    above, _, name = node.place.rpartition("/")
    disk = above.rpartition("/")[2]
    stem = f"{disk}p" if disk[-1:].isdigit() else disk
    return (
        node.block
        and name.startswith(stem)
        and name.removeprefix(stem).isdecimal()
        and any(other.block and other.place == above for other in others)
    )


def _pci_function(device: Device) -> Kobject:
    attributes = {
        "vendor": device.vendor and f"0x{device.vendor}",
        "device": device.product and f"0x{device.product}",
        "class": device.class_code and f"0x{device.class_code}",
        "modalias": device.modalias,
    }
    variables = {
        "PCI_CLASS": device.class_code and device.class_code.lstrip("0").upper(),
        "PCI_ID": device.vendor and device.product and f"{device.vendor}:{device.product}".upper(),
        "PCI_SLOT_NAME": device.key.address,
        "MODALIAS": device.modalias,
    }
    return Kobject(
        path=device.path,
        subsystem="pci",
        driver=device.driver,
        variables=_present(variables),
        attributes=_present(attributes),
    )


def _usb_interface(device: Device) -> Kobject:
    match = _MODALIAS.fullmatch(device.modalias or "")
    numbers = match and "/".join(str(int(match[part], 16)) for part in ("ic", "isc", "ip"))
    variables = {"INTERFACE": numbers or None, "MODALIAS": device.modalias}
    attributes = {"bInterfaceClass": device.class_code, "modalias": device.modalias}
    return Kobject(
        path=device.path,
        subsystem="usb",
        driver=device.driver,
        devtype="usb_interface",
        variables=_usb_variables(device) + _present(variables),
        attributes=_present(attributes),
    )


def _usb_device(path: str, node: Node | None) -> Kobject:
    made = Kobject(path=path, subsystem="usb", driver="usb", devtype="usb_device")
    if node is None:
        return made
    bus, number = node.path.split("/")[-2:]
    return replace(
        made,
        number=_number(node),
        devname=_devname(node),
        variables=(("BUSNUM", bus), ("DEVNUM", number)),
        attributes=(("busnum", str(int(bus))), ("devnum", str(int(number)))),
    )


def _usb_variables(device: Device) -> tuple[tuple[str, str], ...]:
    """`PRODUCT` and `TYPE`: ids and version in hex, class triple in decimal, all without leading
    zeros."""
    match = _MODALIAS.fullmatch(device.modalias or "")
    if match is None:
        return ()
    product = "/".join(f"{int(match[part], 16):x}" for part in ("v", "p", "d"))
    kind = "/".join(str(int(match[part], 16)) for part in ("dc", "dsc", "dp"))
    return (("PRODUCT", product), ("TYPE", kind))


def _node(node: Node, path: str, *, partition: bool) -> Kobject:
    name = path.rpartition("/")[2]
    return Kobject(
        path=path,
        subsystem=node.subsystem,
        number=_number(node),
        devname=_devname(node),
        devtype=("partition" if partition else "disk") if node.block else None,
        attributes=_block_attributes(name, partition=partition) if node.block else (),
    )


def _block_attributes(name: str, *, partition: bool) -> tuple[tuple[str, str], ...]:
    size = ("size", "1000215216")
    number = name[len(name.rstrip("0123456789")) :]
    return (("partition", number), size) if partition else (size,)


def _levels(device: Device, path: str) -> Iterable[Kobject]:
    """The objects between a device and one of its nodes."""
    parts = path.split("/")
    for depth in range(device.path.count("/") + 2, len(parts)):
        name = parts[depth - 1]
        for pattern, subsystem, devtype, driver in _LEVELS:
            if pattern.fullmatch(name):
                yield Kobject(
                    path="/".join(parts[:depth]),
                    subsystem=subsystem,
                    devtype=devtype,
                    driver=device.driver if subsystem == "usb-serial" else driver,
                )
                break


def _number(node: Node) -> str:
    return f"{node.major}:{node.minor}"


def _devname(node: Node) -> str:
    return node.path.removeprefix("/dev/")


def _present(texts: dict[str, str | None]) -> tuple[tuple[str, str], ...]:
    return tuple((name, text) for name, text in texts.items() if text is not None)
