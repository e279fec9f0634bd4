"""Any hardware at all: hypothesis strategies for values that no real machine needs to have given.

`tests.fakes.snapshots` makes machines that a tree of files can show. Here every text may be
anything, numbers and names collide, and what lies on what goes in circles.
"""

from hypothesis import strategies as st

from liken_events.core.model.snapshot import (
    Bus,
    Device,
    Disk,
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

ODD = (
    "", "None", "\0" * 16, "Webcam\0", "  \t", "x" * 64, "x" * 67, "A" * 200, "é" * 40, "\x1b[31m",
    "a\r\nb", "\u200f\u202e", "\udcae", "BCM2045\ufffd", "a: b, 'c'", "*", "../..", "a!b/c",
)  # fmt: skip
"""Text that was some program's undoing."""

letters = st.characters(exclude_categories=["Cs"], include_characters="\udce9\udcae")
"""Surrogates stand for bytes that are no UTF-8, so they are of the lower half only."""

texts = st.sampled_from(ODD) | st.text(letters, max_size=8)
"""Anything at all: control characters, too long, empty."""

NAMES = ("sda", "sda1", "sdb", "sdb1", "nvme0n1", "nvme0n1p1", "dm-0", "dm-1", "md0", "cciss!c0d0")
"""Block devices that nodes, disks and uses of these machines share."""

SUBSYSTEMS = (
    None, "drm", "graphics", "i2c-dev", "drm_dp_aux_dev", "sound", "input", "tty", "block",
)  # fmt: skip

PATHS = (
    "/dev/dri/card0", "/dev/dri/renderD128", "/dev/dri/renderD129", "/dev/fb0", "/dev/i2c-0",
    "/dev/drm_dp_aux0", "/dev/snd/controlC0", "/dev/input/event0", "/dev/ttyUSB0",
    *(f"/dev/{name.replace('!', '/')}" for name in NAMES),
)  # fmt: skip

NODES = [
    *(
        Node(path=path, subsystem=subsystem, major=number, minor=number, place=f"place{number}")
        for path in PATHS
        for number, subsystem in enumerate((*SUBSYSTEMS, "s" * 65, "\x1b"))
    ),
    *(Node(path=f"/dev/{odd}", subsystem="misc", place=odd) for odd in ODD),
]
BUS_NODES = [
    None,
    *(
        Node(path=f"/dev/bus/usb/001/00{number}", subsystem="usb", major=189, minor=number - 1)
        for number in (2, 3)
    ),
]

buses: st.SearchStrategy[Bus] = st.sampled_from(["pci", "usb"])
names = st.sampled_from(NAMES)
nodes = st.sampled_from(NODES) | st.sampled_from([node for node in NODES if node.block])
"""One node of any kind, and often one of a disk."""

addresses = (
    st.sampled_from(["0000:00:02.0", "0000:00:02-0", "1-2:1.0", "1-2-1.0", "1-2:1.1", "A", "a"])
    | texts
)
"""Some of them give the same name."""

drivers = st.sampled_from([None, "btusb", "hub", "usb", "pcieport", "cp210x", "amdgpu"]) | texts


@st.composite
def devices(draw: st.DrawFn, *, found: st.SearchStrategy[Node] = nodes) -> Device:
    """One device; `found` are the nodes that it may have."""
    key = Key(bus=draw(buses), address=draw(addresses))
    return Device(
        key=key,
        path=f"/devices/{key.bus}/{key.address}",
        driver=draw(drivers),
        modalias=draw(st.none() | texts),
        vendor=draw(st.none() | texts),
        product=draw(st.none() | texts),
        class_code=draw(st.sampled_from([None, "030000", "0e"]) | texts),
        serial=draw(st.none() | texts),
        maker=draw(st.none() | texts),
        model=draw(st.none() | texts),
        nodes=sort_nodes(draw(st.lists(found, max_size=4, unique_by=lambda node: node.path))),
        bus_node=draw(st.sampled_from(BUS_NODES)),
        hidden_disks=draw(st.sampled_from([(), (), (), ("nvme0c0n1",), ("sdb",)])),
    )


disks = st.builds(
    Disk,
    name=names,
    number=st.sampled_from(["8:0", "8:1", "8:16", "253:0", "259:0"]) | texts,
    whole=st.none() | names,
    slaves=st.lists(names, max_size=3, unique=True).map(lambda found: tuple(sorted(found))),
    mapper=st.sampled_from([None, None, "vault"]) | texts,
    btrfs=st.sampled_from([(), (), ("7f9a",), ("7f9a", "6c0a")]),
)

uses = st.builds(
    Use,
    what=st.sampled_from(["/", "/home"]) | texts,
    fstype=st.sampled_from(["ext4", "btrfs", "swap", "bcachefs", "protected", "zfs"]) | texts,
    source=names.map(lambda name: f"/dev/{name}") | st.just("/dev/mapper/vault") | texts,
    number=st.sampled_from([None, "0:23", "8:0", "8:1", "253:0"]) | texts.filter(bool),
)

storages = st.builds(
    Storage,
    uses=st.lists(uses, max_size=3).map(sort_uses),
    disks=st.lists(
        disks,
        max_size=6,
        unique_by=(
            lambda disk: disk.name,
            lambda disk: disk.number,
            lambda disk: disk.mapper or disk.name,
        ),
    ).map(sort_disks),
    unknown=st.sampled_from([None, None, None, "\x1bunreadable"]),
)
"""What filesystems stand on, in any order and in circles."""


@st.composite
def machines(draw: st.DrawFn, *, most: int = 4) -> Snapshot:
    """A machine of such devices, each with a key of its own."""
    found = draw(st.lists(devices(), max_size=most, unique_by=lambda device: device.key))
    return Snapshot(devices=sort_devices(found), storage=draw(storages))
