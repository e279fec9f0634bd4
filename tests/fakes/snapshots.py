"""Any machine: hypothesis strategies for snapshots that a scan of a real machine could have
given."""

from dataclasses import replace

from hypothesis import strategies as st

from liken_events.core.model.delivery import bus_node
from liken_events.core.model.snapshot import (
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
from liken_events.simulate.disks import disks_of
from tests.fakes import devices as shapes

words = st.text(st.characters(codec="utf-8"), min_size=1, max_size=40)
"""Text as a descriptor may hold it, control characters and all."""

names = st.text(st.sampled_from("abcdefghijklmnopqrstuvwxyz0123456789_-"), min_size=1, max_size=12)
hex4 = st.text(st.sampled_from("0123456789abcdef"), min_size=4, max_size=4)
points = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=20).map(
    "/".__add__
)
"""Mount points: any name that a directory can have."""


@st.composite
def nodes(draw: st.DrawFn, number: int) -> list[Node]:
    """The nodes of one device; `number` keeps paths and numbers apart from those of other
    devices."""
    hid, index = f"0003:1234:5678.{number + 1:04X}", number * 4
    plain = Node(
        path=f"/dev/odd/{number}", subsystem=None, major=300, minor=number, place="odd/thing"
    )
    kinds = {
        "tty": [shapes.tty(f"ttyUSB{index}", index), shapes.tty(f"ttyUSB{index + 1}", index + 1)],
        "hid": [
            shapes.hidraw(hid, index),
            shapes.event(f"{hid}/input", index, index),
            shapes.hiddev(index),
        ],
        "gpu": [
            shapes.drm(f"card{index}", index),
            shapes.drm(f"renderD{128 + index}", 128 + index),
            shapes.i2c(index, f"drm/card{index}/card{index}-DP-1/"),
            shapes.dp_aux(index, f"card{index}-DP-1"),
        ],
        "snd": [shapes.snd(number, f"controlC{number}", index)],
        "nvme": shapes.nvme_disk(number, number * 8, draw(st.integers(0, 3))),
        "scsi": shapes.scsi_disk("", number, number % 8, draw(st.integers(0, 3))),
        "odd": [plain],
    }
    wanted = draw(st.sets(st.sampled_from(sorted(kinds)), max_size=2))
    return [node for kind in sorted(wanted) for node in kinds[kind]]


@st.composite
def pci_functions(draw: st.DrawFn, number: int) -> Device:
    slot = f"0000:00:{number:02x}.0"
    below = draw(st.sampled_from(["", f"/0000:{number + 1:02x}:00.0"]))
    return Device(
        key=Key(bus="pci", address=(slot + below).rpartition("/")[2]),
        path=f"{shapes.ROOT}/{slot}{below}",
        driver=draw(st.none() | names),
        modalias=draw(words),
        vendor=draw(st.none() | hex4),
        product=draw(st.none() | hex4),
        class_code=draw(st.none() | st.just("030000")),
        nodes=sort_nodes(draw(nodes(number))),
        hidden_disks=draw(st.sampled_from([(), (f"nvme{number}c0n1",), (f"x{number}", "y")])),
    )


@st.composite
def usb_devices(draw: st.DrawFn, number: int) -> list[Device]:
    """One USB device with its interfaces, which share all that the device tells."""
    hub = draw(st.sampled_from(["", f"1-{number + 1}.2/"]))
    address = f"1-{number + 1}.2.3" if hub else f"1-{number + 1}"
    above = f"{shapes.ROOT}/{shapes.XHCI}/usb1/" + (f"1-{number + 1}/{hub}" if hub else "")
    base = Device(
        key=Key(bus="usb", address=""),
        path="",
        vendor=draw(st.none() | hex4),
        product=draw(st.none() | hex4),
        serial=draw(st.none() | words),
        maker=draw(st.none() | words),
        model=draw(st.none() | words),
        bus_node=draw(st.sampled_from([None, bus_node("1", str(number + 2))])),
    )
    return [
        replace(
            base,
            key=Key(bus="usb", address=f"{address}:1.{interface}"),
            path=f"{above}{address}/{address}:1.{interface}",
            driver=draw(st.none() | names | st.just("btusb")),
            modalias=draw(words | st.just("usb:v10C4pEA60d0100dc00dsc00dp00icFFisc00ip00in00")),
            class_code=draw(st.none() | st.just("ff")),
            nodes=sort_nodes(draw(nodes(100 + number * 4 + interface))),
        )
        for interface in range(draw(st.integers(1, 3)))
    ]


@st.composite
def snapshots(draw: st.DrawFn) -> Snapshot:
    """A whole machine: devices, and filesystems on some of their disks, straight or through
    others."""
    found = [draw(pci_functions(number)) for number in range(draw(st.integers(0, 3)))]
    for number in range(draw(st.integers(0, 3))):
        found += draw(usb_devices(number))
    table = {disk.name: disk for device in found for disk in disks_of(device)}
    plain = sorted(table)
    for number in range(draw(st.integers(0, 2)) if plain else 0):
        slaves = tuple(sorted(draw(st.sets(st.sampled_from(sorted(table)), max_size=2))))
        mapper = draw(st.none() | names)
        name = f"dm-{number}"
        table[name] = Disk(name=name, number=f"253:{number}", slaves=slaves, mapper=mapper)
    for name in draw(st.sets(st.sampled_from(plain))) if plain else ():
        table[name] = replace(table[name], btrfs=("6c0a2b1e",))
    uses = [
        Use(what=draw(points), fstype="ext4", source=f"/dev/{name}", number=table[name].number)
        for name in (draw(st.sets(st.sampled_from(sorted(table)))) if table else ())
    ]
    return Snapshot(
        devices=sort_devices(found),
        storage=Storage(uses=sort_uses(uses), disks=sort_disks(table.values())),
    )
