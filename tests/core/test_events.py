from dataclasses import FrozenInstanceError

import pytest

from liken_events.core.events import DeviceChanged, MountsChanged, Resync, Trigger

STICK = "/devices/pci0000:00/0000:00:14.0/usb1/1-2/1-2:1.0"


@pytest.mark.parametrize(
    ("trigger", "line"),
    [
        (DeviceChanged(path=STICK, action="bind", subsystem="usb"), "bind 1-2:1.0"),
        (DeviceChanged(path="odd", action="add"), "add odd"),
        (MountsChanged(source="mounts"), "mounts changed"),
        (
            Resync(source="uevent", reason="receive buffer overrun"),
            "resync of uevent: receive buffer overrun",
        ),
    ],
)
def test_every_trigger_says_its_cause_in_one_line(trigger: Trigger, line: str) -> None:
    assert trigger.cause == line


def test_equal_triggers_are_one() -> None:
    triggers = {
        DeviceChanged(path=STICK, action="add"),
        DeviceChanged(path=STICK, action="add", subsystem="", synthetic=False),
        DeviceChanged(path=STICK, action="add", synthetic=True),
        MountsChanged(source="mounts"),
        MountsChanged(source="mounts"),
    }
    assert len(triggers) == 3


def test_a_trigger_cannot_be_changed() -> None:
    trigger = MountsChanged(source="mounts")
    with pytest.raises(FrozenInstanceError):
        trigger.source = "other"  # type: ignore[misc]
