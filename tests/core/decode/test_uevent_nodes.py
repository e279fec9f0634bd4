"""Device nodes that come with an event: their paths may be those of a device that is away."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from liken_events.core.decode.uevent import ACTIONS, decode
from liken_events.core.events import DeviceChanged, NodeAdded, Resync
from tests.core.decode.test_uevent import STICK, kernel, udev

PORT = f"{STICK}/ttyUSB0/tty/ttyUSB0"
VIRTUAL = "/devices/virtual/"


def both(action: str, path: str, *texts: str, name: str) -> list[bytes]:
    """One event as the kernel and as udevd tells of it: udevd writes the node's whole path."""
    return [
        kernel(f"{action}@{path}", *texts, f"DEVNAME={name}"),
        udev(f"ACTION={action}", f"DEVPATH={path}", *texts, f"DEVNAME=/dev/{name}"),
    ]


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("misc/uinput", "uinput"),
        ("misc/uhid", "uhid"),
        ("input/input20/event12", "input/event12"),
        ("video4linux/video0", "video0"),
        ("misc/uhid/0003:1234:5678.0002/hidraw/hidraw1", "hidraw1"),
        ("tty/ttyUSB0", "ttyUSB0"),
        ("block/zram0", "zram0"),
        ("block/nbd0", "nbd0"),
        ("vduse/x", "vduse/x"),
    ],
)
def test_a_device_of_a_program_is_known_by_its_node(path: str, name: str) -> None:
    for message in both("add", VIRTUAL + path, "MAJOR=13", "SUBSYSTEM=x", name=name):
        found = decode(message)
        assert found == NodeAdded(path=VIRTUAL + path, node=f"/dev/{name}")
        assert found.cause == f"add /dev/{name}"


@pytest.mark.parametrize(
    "path",
    [
        "net/veth1234",
        "net/veth1234/queues/rx-0",
        "bdi/0:52",
        "workqueue/scsi_tmf_0",
        "input/input20",
        "misc/uhid/0003:1234:5678.0002",
    ],
)
def test_what_comes_without_a_node_is_noise(path: str) -> None:
    assert decode(kernel(f"add@{VIRTUAL}{path}", "SUBSYSTEM=x")) is None
    assert decode(udev("ACTION=add", f"DEVPATH={VIRTUAL}{path}")) is None
    assert decode(kernel(f"add@{VIRTUAL}{path}", "DEVNAME=")) is None
    assert decode(kernel(f"add@{VIRTUAL}{path}", "XDEVNAME=ttyUSB0", "DEVNAME")) is None


@pytest.mark.parametrize("path", ["block/loop3", "block/loop0/loop0p1"])
def test_a_loop_device_is_noise_though_it_has_a_node(path: str) -> None:
    name = path.rpartition("/")[2]
    assert [decode(message) for message in both("add", VIRTUAL + path, name=name)] == [None] * 2


@pytest.mark.parametrize("action", sorted(ACTIONS - {"add"}))
def test_of_a_device_of_a_program_nothing_but_its_coming_counts(action: str) -> None:
    for message in both(action, f"{VIRTUAL}misc/uinput", name="uinput"):
        assert decode(message) is None


@pytest.mark.parametrize(
    "path", ["/module/x", "/bus/usb/drivers/x", "/class/tty/ttyUSB0", "x", ""]
)
def test_what_is_no_device_has_no_node(path: str) -> None:
    for message in both("add", path, name="ttyUSB0"):
        assert decode(message) is None


@pytest.mark.parametrize(
    "path", [PORT, "/devices/virtual/block/dm-0", "/devices/platform/serial8250/tty/ttyS0"]
)
def test_a_device_that_matters_is_told_with_its_node_when_it_comes(path: str) -> None:
    for action in sorted(ACTIONS):
        expected = DeviceChanged(
            path=path, action=action, subsystem="tty", node="/dev/x/y" if action == "add" else ""
        )
        for message in both(action, path, "SUBSYSTEM=tty", name="x/y"):
            assert decode(message) == expected


def test_a_device_without_a_node_has_none() -> None:
    expected = DeviceChanged(path=STICK, action="add", subsystem="usb")
    assert decode(kernel(f"add@{STICK}", "SUBSYSTEM=usb")) == expected
    for nothing in ("DEVNAME=", "DEVNAME=/dev/"):
        assert decode(kernel(f"add@{STICK}", "SUBSYSTEM=usb", nothing)) == expected


def test_an_event_that_somebody_asked_for_tells_of_the_node_too() -> None:
    (message, _) = both("add", PORT, "SYNTH_UUID=0", name="ttyUSB0")
    expected = DeviceChanged(path=PORT, action="add", synthetic=True, node="/dev/ttyUSB0")
    assert decode(message) == expected


def test_a_name_that_is_not_utf_8_is_read_as_sysfs_is() -> None:
    message = kernel(f"add@{VIRTUAL}misc/\udce1", "DEVNAME=vduse/\udce1")
    expected = NodeAdded(path=f"{VIRTUAL}misc/\udce1", node="/dev/vduse/\N{REPLACEMENT CHARACTER}")
    assert decode(message) == expected


def test_half_a_name_is_none() -> None:
    """A path that was cut would be another one."""
    whole = kernel(f"add@{VIRTUAL}tty/ttyUSB10", "DEVNAME=ttyUSB10")
    end = whole.index(b"DEVNAME=ttyUSB10\0") + len("DEVNAME=ttyUSB10\0")
    expected = NodeAdded(path=f"{VIRTUAL}tty/ttyUSB10", node="/dev/ttyUSB10")
    for length in range(len(whole)):
        for truncated in (False, True):
            found = decode(whole[:length], truncated=truncated)
            if length >= end:
                assert found == expected
            else:
                assert found is None or (truncated and isinstance(found, Resync))
    (told, _) = both("add", PORT, name="ttyUSB10")
    for length in range(len(told)):
        found = decode(told[:length])
        assert found is None or found in [
            DeviceChanged(path=PORT, action="add", node=node) for node in ("", "/dev/ttyUSB10")
        ]


texts = st.text(st.characters(exclude_characters="\0", codec="utf-8"), max_size=10)
words = texts.filter(lambda text: text and not text.startswith("/dev/"))


@given(st.sampled_from([PORT, f"{VIRTUAL}misc/x", f"{VIRTUAL}block/dm-7"]), words, texts)
def test_the_node_is_found_wherever_it_stands(path: str, name: str, other: str) -> None:
    for texts_before, texts_after in (([f"A={other}"], []), ([], [f"A={other}", "B=DEVNAME=z"])):
        for message in (
            kernel(f"add@{path}", *texts_before, f"DEVNAME={name}", *texts_after),
            udev("ACTION=add", *texts_before, f"DEVNAME=/dev/{name}", f"DEVPATH={path}",
                 *texts_after),
        ):  # fmt: skip
            found = decode(message)
            assert isinstance(found, DeviceChanged | NodeAdded)
            assert (found.path, found.node) == (path, f"/dev/{name}")


@given(st.sampled_from(both("add", f"{VIRTUAL}misc/x", name="ttyUSB0")), st.data())
def test_a_damaged_event_is_accepted(message: bytes, data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(message)))
    end = data.draw(st.integers(start, len(message)))
    damaged = message[:start] + data.draw(st.binary(max_size=12)) + message[end:]
    found = decode(damaged, truncated=data.draw(st.booleans()))
    match found:
        case NodeAdded():
            assert found.path.startswith(VIRTUAL)
            assert found.node.startswith("/dev/")
            assert len(found.node) > len("/dev/")
        case DeviceChanged():
            assert found.action in ACTIONS
        case _:
            assert found is None or isinstance(found, Resync)
