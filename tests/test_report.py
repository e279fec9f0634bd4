from dataclasses import replace

from structlog.typing import EventDict

from liken_events.core.model.device import Cause, Inventory
from liken_events.core.model.publish import Policy, inventory
from liken_events.core.model.snapshot import Device, Use
from liken_events.report import Change, changes, log_change
from tests.fakes.devices import drm, pci, scsi_disk, tty, usb
from tests.fakes.machines import machine

STICK = usb("1-1:1.0", "10c4:ea60", "ff0000", "cp210x", 2, serial="Z1", nodes=[tty("ttyUSB0", 0)])
GPU = pci("0000:00:02.0", "8086:3e92", "030000", "i915",
          nodes=[drm("card0", 0), drm("renderD128", 128)])  # fmt: skip
DISK = usb("2-1:1.0", "1058:25a2", "080650", "usb-storage", 2, nodes=scsi_disk("", 0, 0, 1))


def of(*devices: Device) -> Inventory:
    return inventory(machine(devices))


def told(before: Inventory, after: Inventory, now: float = 0.0) -> list[Change]:
    return list(changes(before.offered, after, now))


def test_nothing_is_told_of_what_stayed() -> None:
    assert told(of(STICK, GPU), of(STICK, GPU)) == []


def test_changes_come_by_kind_and_then_by_name() -> None:
    moved = replace(STICK, nodes=(tty("ttyUSB3", 3),))
    found = told(of(STICK, DISK), of(moved, GPU))
    assert [(change.kind, change.device.name) for change in found] == [
        ("added", "pci-0000-00-02-0"),
        ("added", "pci-0000-00-02-0-display"),
        ("changed", "usb-1-1-1-0"),
        ("removed", "usb-2-1-1-0"),
    ]


def test_a_change_names_what_differs() -> None:
    moved = replace(STICK, nodes=(tty("ttyUSB3", 3),), serial=None, driver="other")
    (change,) = told(of(STICK), of(moved))
    assert change.details == ("nodes", "driver", "serial")
    assert change.nodes == ["/dev/bus/usb/001/002", "/dev/ttyUSB3"]


def test_a_device_that_may_be_shared_now_is_a_change_that_says_so() -> None:
    render = replace(GPU, nodes=(drm("renderD128", 128),))
    mixed = replace(GPU, nodes=(drm("renderD128", 128), tty("ttyX0", 9)))
    (change,) = told(of(render), of(mixed))
    assert change.details[0] == "shareable"


def test_a_removal_says_why() -> None:
    in_use = inventory(
        machine([DISK], [Use(what="/mnt", fstype="ext4", source="/dev/sda1", number="8:1")])
    )
    ignored = inventory(machine([DISK]), Policy(ignore=("usb-2-1-1-0",)))
    card_only = of(replace(GPU, nodes=(drm("card0", 0),)))
    assert told(of(DISK), of())[0].details == ("gone",)
    assert told(of(DISK), in_use)[0].details == ("in-use: /dev/sda1 is mounted on /mnt",)
    assert told(of(DISK), ignored)[0].details[0].startswith("ignored: ")
    assert told(of(GPU), card_only)[-1].details == ("no longer a part of it",)


def test_a_change_carries_what_the_kernel_said_and_how_long_ago() -> None:
    causes = {STICK.key: Cause(text="bind 1-1:1.0", at=10.25)}
    (change,) = told(of(), replace(of(STICK), causes=causes), now=10.5)
    assert change.to_json() == {
        "change": "added",
        "device": "usb-1-1-1-0",
        "nodes": ["/dev/bus/usb/001/002", "/dev/ttyUSB0"],
        "details": [],
        "cause": "bind 1-1:1.0",
        "milliseconds": 250.0,
    }


def test_the_first_look_has_no_cause() -> None:
    (change,) = told(of(), of(STICK))
    assert (change.cause, change.seconds) == ("", None)
    assert change.to_json()["milliseconds"] is None


def test_a_change_is_one_log_line(logs: list[EventDict]) -> None:
    causes = {DISK.key: Cause(text="remove 2-1", at=1.0)}
    for change in told(of(DISK), replace(of(STICK), causes=causes), now=1.002):
        log_change(change)
    assert logs == [
        {
            "event": "device.added",
            "log_level": "info",
            "device": "usb-1-1-1-0",
            "nodes": ["/dev/bus/usb/001/002", "/dev/ttyUSB0"],
            "cause": "",
        },
        {
            "event": "device.removed",
            "log_level": "info",
            "device": "usb-2-1-1-0",
            "nodes": [node.path for node in of(DISK).offered[0].nodes],
            "cause": "remove 2-1",
            "details": ["gone"],
            "milliseconds": 2.0,
        },
    ]
