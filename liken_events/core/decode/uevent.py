r"""Uevents: what the kernel or udevd says about one device, as bytes.

The kernel sends `add@/devices/pci0000:00/…`, a NUL, and `KEY=value` texts with a NUL after each.
udevd sends the same properties again after its rules have run, behind a binary header of its own
that begins with `libudev` and a NUL. A containerised machine sends hundreds about network and
overlay devices for each one about hardware.

This file turns such bytes into a trigger, or into None for what cannot matter to PCI and USB
devices or to the disks the machine stands on. Noise is told apart by the first bytes, before
anything is taken to pieces. It accepts any bytes and never raises. Reading the socket is left to
`sources.uevent`, the kernel-side half of the noise filter to `sources.uevent_filter`.
"""

import sys

from liken_events.core.events import DeviceChanged, NodeAdded, Resync, Trigger

ACTIONS = frozenset({"add", "remove", "change", "bind", "unbind", "move", "online", "offline"})
"""`kobject_actions` of the kernel."""

UDEV_PREFIX = b"libudev\0"
UDEV_MAGIC = 0xFEEDCAFE
"""Opens udevd's header, in network byte order, after the prefix (`monitor_netlink_header` of
systemd)."""

UDEV_PROPERTIES = slice(16, 24)
"""Where udevd's header holds the offset and the length of the properties, two 32-bit numbers of
the machine's own byte order."""

DEVICES = b"/devices/"
VIRTUAL = b"/devices/virtual/"
VIRTUAL_DISKS = (
    b"/devices/virtual/block/dm-",
    b"/devices/virtual/block/md",
    b"/devices/virtual/block/bcache",
    b"/devices/virtual/nvme-subsystem/",
)
"""Devices that lie on no bus and still matter: what filesystems stand on is followed through
them."""
SCSI_WITH_DRIVER = frozenset(
    b"scsi:t-0x" + kind for kind in (b"00", b"01", b"04", b"05", b"07", b"0e", b"14")
)
"""`MODALIAS` of the SCSI devices that a driver makes nodes of besides `sg`: disks, tapes, drives.
The number is the peripheral device type; which of them `sd`, `sr` and `st` take is what `modinfo`
says of those."""
MOST_DIGITS = 21
"""A sequence number has 64 bits."""
VIRTUAL_LOOP = b"/devices/virtual/block/loop"
"""No device on a bus has such a node; container hosts make and remove them all the time."""


def decode(data: bytes, *, truncated: bool = False) -> Trigger | None:
    """What one datagram says may be stale.

    Args:
        data: the datagram as it came from the netlink socket.
        truncated: it did not fit the buffer (`MSG_TRUNC`). Its first bytes may still name the
            device; nothing else of it is used.

    Returns:
        None for noise and for nonsense; a Resync for a truncated datagram that does not say what
        happened to which device.
    """
    properties = _udev_properties(data) if data.startswith(UDEV_PREFIX) else data
    action, path = _subject(properties)
    if path is None or not action:
        return Resync(source="uevent", reason="truncated event") if truncated else None
    if not matters(path) or action not in ACTIONS:
        return _program_made(path, properties) if action == "add" else None
    text = path.decode("utf-8", "surrogateescape")
    if truncated or not properties.endswith(b"\0"):
        return DeviceChanged(path=text, action=action)
    synthetic = b"\0SYNTH_UUID=" in properties
    return DeviceChanged(
        path=text,
        action=action,
        subsystem=_text(_value(properties, b"SUBSYSTEM=")),
        synthetic=synthetic,
        node=_node(properties) if action == "add" else "",
        awaits_driver=action == "add" and not synthetic and _has_driver_to_come(properties),
    )


def matters(path: bytes) -> bool:
    """Whether an event about this device path can change what is published."""
    if not path.startswith(DEVICES):
        return False  # modules, drivers, slab caches, filesystems
    return not path.startswith(VIRTUAL) or path.startswith(VIRTUAL_DISKS)


def sequence_number(data: bytes) -> int | None:
    """The number of the event that a datagram tells of; None if it does not say. udevd tells of an
    event with the number that the kernel gave it."""
    properties = _udev_properties(data) if data.startswith(UDEV_PREFIX) else data
    text = _value(properties, b"SEQNUM=") or b""
    return int(text) if len(text) < MOST_DIGITS and text.isdigit() else None


def _has_driver_to_come(properties: bytes) -> bool:
    return _value(properties, b"MODALIAS=") in SCSI_WITH_DRIVER


def _program_made(path: bytes, properties: bytes) -> NodeAdded | None:
    """A virtual device that came with a node, which no bus knows of. Interfaces and queues, the
    bulk of all noise, have none."""
    node = _node(properties) if path.startswith(VIRTUAL) else ""
    if not node or path.startswith(VIRTUAL_LOOP):
        return None
    return NodeAdded(path=path.decode("utf-8", "surrogateescape"), node=node)


def _node(properties: bytes) -> str:
    """Path of the node that an event tells of; the kernel names it below `/dev`, udevd whole."""
    name = _text(_value(properties, b"DEVNAME=")).removeprefix("/dev/")
    return "/dev/" + name if name else ""


def _subject(properties: bytes) -> tuple[str, bytes | None]:
    """Action and device path; `""` and None if the bytes do not name them to the end."""
    head, end, _ = properties.partition(b"\0")
    action, at, path = head.partition(b"@")
    if at and b"=" not in action:
        return action.decode("ascii", "replace"), path if end else None
    return _text(_value(properties, b"ACTION=")), _value(properties, b"DEVPATH=")


def _udev_properties(data: bytes) -> bytes:
    """The properties behind udevd's header; empty if the header is not one."""
    if len(data) < UDEV_PROPERTIES.stop or int.from_bytes(data[8:12], "big") != UDEV_MAGIC:
        return b""
    numbers = data[UDEV_PROPERTIES]
    offset = int.from_bytes(numbers[:4], sys.byteorder)
    length = int.from_bytes(numbers[4:], sys.byteorder)
    return data[offset : offset + length]


def _value(properties: bytes, key: bytes) -> bytes | None:
    """What stands between `key=`, at the start of the properties or after a NUL, and the next
    NUL."""
    if properties.startswith(key):
        start = 0
    else:
        start = properties.find(b"\0" + key) + 1
        if start == 0:
            return None
    value, end, _ = properties[start + len(key) :].partition(b"\0")
    return value if end else None


def _text(raw: bytes | None) -> str:
    return "" if raw is None else raw.decode("utf-8", "replace")
