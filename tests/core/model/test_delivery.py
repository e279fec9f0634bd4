import pytest
from hypothesis import given
from hypothesis import strategies as st

from liken_events.core.model.delivery import FOREIGN, bus_node, node, served_disk, uevent_value
from liken_events.core.model.snapshot import Node

anything = st.text(st.characters(), max_size=12) | st.text(st.sampled_from("0189:=\n-²x"))


@pytest.mark.parametrize(
    ("uevent", "dev", "subsystem", "expected"),
    [
        (
            "MAJOR=188\nMINOR=0\nDEVNAME=ttyUSB0\n",
            "188:0\n",
            "tty",
            Node(path="/dev/ttyUSB0", subsystem="tty", major=188, minor=0, place="x"),
        ),
        (
            "DEVNAME=bus/usb/001/002\n",
            "189:1\n",
            None,
            Node(path="/dev/bus/usb/001/002", subsystem=None, major=189, minor=1, place="x"),
        ),
        (
            "DEVNAME=/dev/sda\n",
            "8:0",
            "block",
            Node(path="/dev/sda", subsystem="block", major=8, minor=0, place="x"),
        ),
        (
            "DEVNAME=a=b\n",
            "10:123456789\n",
            "misc",
            Node(path="/dev/a=b", subsystem="misc", major=10, minor=123456789, place="x"),
        ),
        ("MAJOR=188\nMINOR=0\n", "188:0\n", "tty", None),
        ("DEVNAME=\n", "188:0\n", "tty", None),
        ("XDEVNAME=ttyUSB0\n", "188:0\n", "tty", None),
        ("", "188:0\n", "tty", None),
        ("DEVNAME=ttyUSB0\n", "", "tty", None),
        ("DEVNAME=ttyUSB0\n", "188\n", "tty", None),
        ("DEVNAME=ttyUSB0\n", "188:0:0\n", "tty", None),
        ("DEVNAME=ttyUSB0\n", "188:\n", "tty", None),
        ("DEVNAME=ttyUSB0\n", "188:-1\n", "tty", None),
        ("DEVNAME=ttyUSB0\n", "188:²\n", "tty", None),
        ("DEVNAME=ttyUSB0\n", "188:١\n", "tty", None),
        ("DEVNAME=ttyUSB0\n", "188:1234567890\n", "tty", None),
        ("DEVNAME=ttyUSB0\n", f"188:{'9' * 5000}\n", "tty", None),
    ],
)
def test_a_directory_is_a_node_if_its_files_say_so(
    uevent: str, dev: str, subsystem: str | None, expected: Node | None
) -> None:
    assert node(uevent=uevent, dev=dev, subsystem=subsystem, place="x") == expected


@pytest.mark.parametrize(
    ("busnum", "devnum", "path", "minor"),
    [
        ("1", "1", "/dev/bus/usb/001/001", 0),
        ("1\n", "7\n", "/dev/bus/usb/001/007", 6),
        ("1", "9", "/dev/bus/usb/001/009", 8),
        ("2", "1", "/dev/bus/usb/002/001", 128),
        ("12", "127", "/dev/bus/usb/012/127", 1534),
    ],
)
def test_the_node_of_a_usb_device_follows_from_its_numbers(
    busnum: str, devnum: str, path: str, minor: int
) -> None:
    expected = Node(path=path, subsystem="usb", major=189, minor=minor)
    assert bus_node(busnum, devnum) == expected


@pytest.mark.parametrize(
    ("busnum", "devnum"),
    [(None, "1"), ("1", None), ("", "1"), ("1", "x"), ("-1", "1"), ("1", "²"), ("1", "1" * 5000)],
)
def test_a_usb_device_without_numbers_has_no_node(busnum: str | None, devnum: str | None) -> None:
    assert bus_node(busnum, devnum) is None


@pytest.mark.parametrize(
    ("key", "value"),
    [("DEVNAME", "ttyUSB0"), ("EMPTY", ""), ("TWICE", "1"), ("ABSENT", None), ("NAME", None)],
)
def test_one_value_is_found_among_the_lines(key: str, value: str | None) -> None:
    lines = "EMPTY=\nDEVNAME=ttyUSB0\nTWICE=1\nTWICE=2\nno value\n"
    assert uevent_value(lines, key) == value


@pytest.mark.parametrize(
    ("hidden", "disk"),
    [
        ("nvme0c0n1", "nvme0n1"),
        ("nvme12c3n45", "nvme12n45"),
        ("nvme0n1", None),
        ("sda", None),
        ("nvme0c0n1p1", None),
        ("xnvme0c0n1", None),
    ],
)
def test_a_path_of_a_multipath_disk_names_the_disk_that_it_serves(
    hidden: str, disk: str | None
) -> None:
    assert served_disk(hidden) == disk


def test_what_hangs_on_a_device_is_a_device_of_its_own() -> None:
    assert {"pci", "usb", "bluetooth"} == FOREIGN


@given(anything, anything)
def test_any_text_is_accepted_for_a_node(first: str, second: str) -> None:
    for uevent in (first, f"DEVNAME={first}"):
        found = node(uevent=uevent, dev=second, subsystem=None, place="")
        assert found is None or found.path.startswith("/dev/")
    number = bus_node(first, second)
    assert number is None or number.path.startswith("/dev/bus/usb/")
    served_disk(first)
