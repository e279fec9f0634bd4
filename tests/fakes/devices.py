"""Devices for made-up machines, in a line each: the paths and modaliases follow from addresses and
ids.

Numbers of nodes are those that the kernel assigns: fixed majors
(`Documentation/admin-guide/devices.txt`) where a subsystem has one, and for the others a dynamic
one that no other subsystem of these machines uses.
"""

from collections.abc import Iterable

from liken_events.core.model.delivery import bus_node
from liken_events.core.model.snapshot import Device, Key, Node, sort_nodes

ROOT = "/devices/pci0000:00"
XHCI = "0000:00:14.0"
"""Where the USB controller of these machines sits."""


def pci(
    chain: str,
    ids: str,
    class_code: str,
    driver: str | None = None,
    *,
    board: str = "1043:8694",
    words: tuple[str | None, str | None] = (None, None),
    nodes: Iterable[Node] = (),
    hidden_disks: Iterable[str] = (),
) -> Device:
    """A PCI function.

    Args:
        chain: its address, behind those of the bridges above it: `0000:00:1b.0/0000:02:00.0`.
        ids: `vendor:product`; `board` has those of the subsystem.
    """
    vendor, product = ids.split(":")
    board_vendor, board_product = board.upper().split(":")
    base, sub, interface = class_code[:2], class_code[2:4], class_code[4:]
    return Device(
        key=Key(bus="pci", address=chain.rpartition("/")[2]),
        path=f"{ROOT}/{chain}",
        driver=driver,
        modalias=f"pci:v0000{vendor.upper()}d0000{product.upper()}sv0000{board_vendor}sd0000{board_product}"
        f"bc{base.upper()}sc{sub.upper()}i{interface.upper()}",
        vendor=vendor,
        product=product,
        class_code=class_code,
        maker=words[0],
        model=words[1],
        nodes=sort_nodes(nodes),
        hidden_disks=tuple(sorted(hidden_disks)),
    )


def usb(
    address: str,
    ids: str,
    interface_class: str,
    driver: str | None,
    devnum: int,
    *,
    version: str = "0100",
    device_class: str = "000000",
    words: tuple[str | None, str | None] = (None, None),
    serial: str | None = None,
    nodes: Iterable[Node] = (),
) -> Device:
    """A USB interface.

    Args:
        address: such as `1-1.2:1.0`; the hubs above it follow from it.
        ids: `vendor:product`.
        interface_class, device_class: class, subclass and protocol, two hex digits each.
        devnum: number of the USB device on its bus.
        version: of the device, four hex digits.
    """
    device, _, interface = address.partition(":")
    bus, _, ports = device.partition("-")
    chain = ports.split(".") if ports != "0" else []
    hubs = [f"{bus}-{'.'.join(chain[:depth])}" for depth in range(1, len(chain) + 1)]
    vendor, product = ids.split(":")
    kind, own = device_class.upper(), interface_class.upper()
    return Device(
        key=Key(bus="usb", address=address),
        path="/".join([ROOT, XHCI, f"usb{bus}", *hubs, address]),
        driver=driver,
        modalias=f"usb:v{vendor.upper()}p{product.upper()}d{version}"
        f"dc{kind[:2]}dsc{kind[2:4]}dp{kind[4:]}ic{own[:2]}isc{own[2:4]}ip{own[4:]}"
        f"in{int(interface.partition('.')[2]):02X}",
        vendor=vendor,
        product=product,
        class_code=interface_class[:2],
        serial=serial,
        maker=words[0],
        model=words[1],
        nodes=sort_nodes(nodes),
        bus_node=bus_node(bus, str(devnum)),
    )


def root_hub(bus: int, speed: int) -> Device:
    """The interface of a bus's own hub; `speed` is the USB version, 2 or 3."""
    return usb(
        f"{bus}-0:1.0",
        f"1d6b:{speed:04x}",
        "090000",
        "hub",
        1,
        version="0608",
        device_class="090001" if speed == 2 else "090003",
        words=("Linux 6.8.0-45-generic xhci-hcd", "xHCI Host Controller"),
        serial=XHCI,
    )


def tty(name: str, minor: int) -> Node:
    """A port of a USB serial adapter."""
    return Node(
        path=f"/dev/{name}", subsystem="tty", major=188, minor=minor, place=f"{name}/tty/{name}"
    )


def hidraw(hid: str, number: int) -> Node:
    """The raw node of a HID device, which is named such as `0003:051D:0002.0001`."""
    name = f"hidraw{number}"
    return Node(
        path=f"/dev/{name}",
        subsystem="hidraw",
        major=243,
        minor=number,
        place=f"{hid}/hidraw/{name}",
    )


def event(above: str, device: int, number: int) -> Node:
    """An input node `eventN` of `inputM`, which lies in `above`."""
    return Node(
        path=f"/dev/input/event{number}",
        subsystem="input",
        major=13,
        minor=64 + number,
        place=f"{above}/input{device}/event{number}",
    )


def hiddev(number: int) -> Node:
    """The hiddev node of a HID device."""
    return Node(
        path=f"/dev/usb/hiddev{number}",
        subsystem="usbmisc",
        major=180,
        minor=number,
        place=f"usbmisc/hiddev{number}",
    )


def drm(name: str, minor: int) -> Node:
    """A card or render node of a GPU."""
    return Node(
        path=f"/dev/dri/{name}", subsystem="drm", major=226, minor=minor, place=f"drm/{name}"
    )


def i2c(number: int, above: str = "") -> Node:
    """An i2c bus of a GPU, directly below it or below one of its connectors."""
    return Node(
        path=f"/dev/i2c-{number}",
        subsystem="i2c-dev",
        major=89,
        minor=number,
        place=f"{above}i2c-{number}/i2c-dev/i2c-{number}",
    )


def dp_aux(number: int, connector: str) -> Node:
    """The DisplayPort AUX channel of a connector, such as `card0-DP-1`."""
    return Node(
        path=f"/dev/drm_dp_aux{number}",
        subsystem="drm_dp_aux_dev",
        major=240,
        minor=number,
        place=f"drm/{connector.partition('-')[0]}/{connector}/drm_dp_aux{number}",
    )


def snd(card: int, name: str, minor: int) -> Node:
    """A node of a sound card."""
    return Node(
        path=f"/dev/snd/{name}",
        subsystem="sound",
        major=116,
        minor=minor,
        place=f"sound/card{card}/{name}",
    )


def scsi_disk(above: str, host: int, index: int, partitions: int) -> list[Node]:
    """A disk behind the SCSI layer, as the only one of its host: `sda` is index 0."""
    name = f"sd{'abcdefgh'[index]}"
    place = f"{above}host{host}/target{host}:0:0/{host}:0:0:0"
    generic = [
        Node(
            path=f"/dev/bsg/{host}:0:0:0",
            subsystem="bsg",
            major=252,
            minor=index,
            place=f"{place}/bsg/{host}:0:0:0",
        ),
        Node(
            path=f"/dev/sg{index}",
            subsystem="scsi_generic",
            major=21,
            minor=index,
            place=f"{place}/scsi_generic/sg{index}",
        ),
    ]
    return generic + _disk(name, f"{place}/block/{name}", 8, index * 16, partitions, name)


def nvme_disk(
    number: int, first_minor: int, partitions: int, *, multipath: bool = False
) -> list[Node]:
    """An NVMe controller with one namespace. With multipath, the disk itself is elsewhere."""
    controller = [
        Node(
            path=f"/dev/nvme{number}",
            subsystem="nvme",
            major=239,
            minor=number,
            place=f"nvme/nvme{number}",
        ),
        Node(
            path=f"/dev/ng{number}n1",
            subsystem="nvme-generic",
            major=238,
            minor=number,
            place=f"nvme/nvme{number}/ng{number}n1",
        ),
    ]
    if multipath:
        return controller[:1]
    name = f"nvme{number}n1"
    place = f"nvme/nvme{number}/{name}"
    return controller + _disk(name, place, 259, first_minor, partitions, f"{name}p")


def virtio_disk(number: int, name: str, partitions: int) -> list[Node]:
    """A virtio disk; its device has the given number on the virtio bus."""
    return _disk(name, f"virtio{number}/block/{name}", 254, 0, partitions, name)


def _disk(name: str, place: str, major: int, minor: int, partitions: int, stem: str) -> list[Node]:
    whole = Node(path=f"/dev/{name}", subsystem="block", major=major, minor=minor, place=place)
    return [whole] + [
        Node(
            path=f"/dev/{stem}{number}",
            subsystem="block",
            major=major,
            minor=minor + number,
            place=f"{place}/{stem}{number}",
        )
        for number in range(1, partitions + 1)
    ]
