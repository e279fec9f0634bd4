"""USB devices with more than one interface, or with words that nobody should write."""

import pytest

from tests.vm.attributes import usb
from tests.vm.desk import Desk, kinds
from tests.vm.gadgets import HID, Gadget, Gadgets

MODEM = {"driver": "cdc_acm", "class": "communications", "classCode": "02", "subsystem": "tty"}
KEYS = {"driver": "usbhid", "class": "hid", "classCode": "03"}


def test_two_driven_interfaces_are_two_devices_with_one_usbfs_node(
    desk: Desk, gadgets: Gadgets
) -> None:
    words = {"serialnumber": "C1", "manufacturer": "Acme", "product": "Two in one"}
    gadget = Gadget(functions={"acm.a": {}, "hid.b": HID}, words=words)
    address = gadgets.plug(0, gadget)
    slot = f"usb-{address}"
    modem, keys = f"{slot}-1-0", f"{slot}-1-2"
    desk.until_offered(modem, keys)
    nodes = [desk.delivered(f"{address}:1.0"), desk.delivered(f"{address}:1.2")]
    gadgets.pull(0)
    desk.until_gone(modem, keys)
    device = {"vendor": "1209", "product": "0001", "serial": "C1", "name": "Acme Two in one"}
    alias = f"usb:v1209p0001d{bcd(desk)}dc00dsc00dp00ic"
    expected = {
        modem: usb(f"{address}:1.0", MODEM, device, modalias=f"{alias}02isc02ip01in00"),
        keys: usb(f"{address}:1.2", KEYS, device, modalias=f"{alias}03isc01ip01in02"),
    }
    assert [desk.nodes(modem), desk.nodes(keys)] == [[nodes[0]], [nodes[1]]]
    assert kinds(nodes[0]) == ["/dev/bus/usb/#/#", "/dev/ttyACM#"]
    assert kinds(nodes[1]) == ["/dev/bus/usb/#/#", "/dev/hidraw#", "/dev/input/event#"]
    assert nodes[0][0] == nodes[1][0]
    states = desk.states(f"{slot}-")
    assert states[0] == states[-1] == {}
    assert expected in states
    for state in states:  # the second interface's driver may be loaded later than the first's
        assert state.items() <= expected.items()


def bcd(desk: Desk) -> str:
    """The kernel's version as its gadgets tell it: `0601`."""
    major, minor = desk.control.run("uname", "-r").split(".")[:2]
    return f"{int(major):02}{int(minor):02}"


@pytest.mark.parametrize(
    ("serial", "published"),
    [
        ("Zoë-漢字", "Zoë-漢字"),
        ("S" * 100, "S" * 64),
        ("é" * 40, "é" * 32),
        ("a\x01b\x1b[31mc", "a\ufffdb\ufffd[31mc"),
        ("left\u202eright", "left\ufffdright"),
        ("  padded  ", "padded"),
    ],
    ids=["letters", "long", "long letters", "control", "reordering", "blanks"],
)
def test_an_odd_serial_number_is_published_clean(
    desk: Desk, gadgets: Gadgets, serial: str, published: str
) -> None:
    words = {"serialnumber": serial, "manufacturer": serial, "product": "x"}
    address = gadgets.plug(1, Gadget(functions={"acm.a": {}}, words=words))
    name = f"usb-{address}-1-0"
    desk.until_offered(name)
    gadgets.pull(1)
    desk.until_gone(name)
    before, here, after = desk.states(f"usb-{address}-")
    assert before == after == {}
    assert here[name]["serial"] == published
    assert len(here[name]["name"].encode()) <= 64
    assert desk.log_above_info() == []
