"""Directories of objects: every place in which the kernel shows one comes and goes with it."""

import os
from dataclasses import replace
from pathlib import Path

import pytest

from liken_events.simulate.directories import Directories, OutOfTree
from liken_events.simulate.kobjects import Kobject

TOP = Kobject(
    path="/devices/pci0/1-1:1.0",
    subsystem="usb",
    driver="cp210x",
    devtype="usb_interface",
    attributes=(("modalias", "usb:x"),),
)
TTY = Kobject(
    path="/devices/pci0/1-1:1.0/tty/ttyACM0",
    subsystem="tty",
    number="166:0",
    devname="ttyACM0",
)
DISK = Kobject(
    path="/devices/pci0/block/sda",
    subsystem="block",
    devtype="disk",
    number="8:0",
    devname="sda",
)


@pytest.fixture
def sys(tmp_path: Path) -> Path:
    return tmp_path / "sys"


@pytest.fixture
def directories(sys: Path) -> Directories:
    return Directories(str(sys), clutter=False)


def leads_to(link: Path) -> str:
    return os.path.realpath(link)


def test_an_object_shows_in_all_its_places(directories: Directories, sys: Path) -> None:
    for item in (TOP, TTY, DISK):
        directories.put(item)

    assert leads_to(sys / "bus/usb/devices/1-1:1.0") == f"{sys}{TOP.path}"
    assert leads_to(sys / "bus/usb/drivers/cp210x/1-1:1.0") == f"{sys}{TOP.path}"
    assert leads_to(sys / "class/tty/ttyACM0") == f"{sys}{TTY.path}"
    assert leads_to(sys / "dev/char/166:0") == f"{sys}{TTY.path}"
    assert leads_to(sys / "dev/block/8:0") == f"{sys}{DISK.path}"
    assert leads_to(sys / "block/sda") == f"{sys}{DISK.path}"
    top = Path(f"{sys}{TOP.path}")
    assert os.readlink(top / "driver").endswith("/bus/usb/drivers/cp210x")
    assert os.readlink(top / "subsystem").endswith("/bus/usb")
    assert (top / "modalias").read_text() == "usb:x\n"
    assert Path(f"{sys}{TTY.path}/dev").read_text() == "166:0\n"
    assert Path(f"{sys}{TTY.path}/uevent").read_text() == "MAJOR=166\nMINOR=0\nDEVNAME=ttyACM0\n"


def test_an_object_that_is_dropped_takes_all_below_it_along(
    directories: Directories, sys: Path
) -> None:
    for item in (TOP, TTY, DISK):
        directories.put(item)

    gone = directories.drop(TOP.path)

    assert gone == [TOP, TTY]
    assert TOP.path not in directories
    for place in (
        "bus/usb/devices/1-1:1.0",
        "bus/usb/drivers/cp210x/1-1:1.0",
        "class/tty/ttyACM0",
    ):
        assert not os.path.lexists(sys / place)
    assert not os.path.lexists(sys / "dev/char/166:0")
    assert not os.path.lexists(f"{sys}{TOP.path}")
    assert DISK.path in directories


def test_a_class_directory_goes_with_its_last_object(directories: Directories, sys: Path) -> None:
    directories.put(TOP)
    directories.put(TTY)

    directories.drop(TTY.path)

    assert not os.path.lexists(f"{sys}{TOP.path}/tty")
    assert os.path.isdir(f"{sys}{TOP.path}")


def test_dropping_what_is_not_there_changes_nothing(directories: Directories) -> None:
    directories.put(DISK)

    assert directories.drop("/devices/nothing") == []
    assert DISK.path in directories


def test_an_object_is_brought_up_to_date(directories: Directories, sys: Path) -> None:
    directories.put(TOP)

    directories.put(replace(TOP, driver=None, attributes=()))

    assert not os.path.lexists(f"{sys}{TOP.path}/driver")
    assert not os.path.lexists(sys / "bus/usb/drivers/cp210x/1-1:1.0")
    assert not os.path.lexists(f"{sys}{TOP.path}/modalias")
    assert Path(f"{sys}{TOP.path}/uevent").read_text() == "DEVTYPE=usb_interface\n"
    assert leads_to(sys / "bus/usb/devices/1-1:1.0") == f"{sys}{TOP.path}"


def test_a_hidden_disk_is_listed_without_a_number(directories: Directories, sys: Path) -> None:
    directories.put(replace(DISK, number=None, devname=None))

    assert os.path.exists(sys / "class/block/sda")
    assert not os.path.exists(f"{sys}{DISK.path}/dev")


def test_an_empty_machine_has_its_buses(directories: Directories, sys: Path) -> None:
    assert os.listdir(sys / "bus/pci/devices") == os.listdir(sys / "bus/usb/devices") == []
    assert os.listdir(sys / "class/block") == []
    assert os.access(sys / "bus/usb/drivers_probe", os.W_OK)


def test_links_are_relative_so_that_a_tree_can_be_moved(
    directories: Directories, sys: Path
) -> None:
    directories.put(TOP)
    moved = sys.with_name("moved")

    os.rename(sys, moved)

    assert leads_to(moved / "bus/usb/devices/1-1:1.0") == f"{moved}{TOP.path}"


def test_clutter_makes_directories_fuller_and_nothing_else(tmp_path: Path) -> None:
    plain, full = (
        Directories(f"{tmp_path}/{name}", clutter=name == "full") for name in ("plain", "full")
    )
    for directories in (plain, full):
        directories.put(TOP)
        directories.put(TTY)

    found = [set(os.listdir(f"{tmp_path}/{name}{TOP.path}")) for name in ("plain", "full")]

    assert found[0] < found[1]
    assert {"power", "ep_81"} <= found[1] - found[0]
    assert leads_to(Path(f"{tmp_path}/full{TTY.path}/device")) == f"{tmp_path}/full{TOP.path}"


@pytest.mark.parametrize(
    "item",
    [
        replace(TOP, path="/devices/../../outside"),
        replace(TOP, path="/devices/./pci0"),
        replace(TOP, path="/devices//pci0"),
        replace(TOP, path="/devices/pci0/"),
        replace(TOP, path="/devices/pci0/.."),
        replace(TOP, path="/devices"),
        replace(TOP, path="devices/pci0"),
        replace(TOP, path="/outside"),
        replace(TOP, path="/bus/usb/devices"),
        replace(TOP, path="/devices/pci\0"),
        replace(TOP, path="/devices/\ud800"),
        replace(TOP, path=""),
        replace(TOP, driver="../../../../../outside"),
        replace(TOP, driver="/outside"),
        replace(TOP, driver=".."),
        replace(TOP, driver="\0"),
        replace(TTY, subsystem="../../outside"),
        replace(TTY, subsystem="tty\0"),
        replace(TTY, number="../../../outside"),
    ],
    ids=repr,
)
def test_an_object_whose_place_is_elsewhere_is_refused(
    directories: Directories, tmp_path: Path, item: Kobject
) -> None:
    before = set(os.listdir(tmp_path))
    with pytest.raises(OutOfTree, match=r"is no (place in sysfs|kernel path of a device)"):
        directories.put(item)
    assert set(os.listdir(tmp_path)) == before == {"sys"}
    assert directories.drop(item.path) == []


@pytest.mark.parametrize("target", ["/devices/../../outside", "/devices/\0", "outside", "/\ud800"])
def test_a_link_to_elsewhere_is_refused(directories: Directories, sys: Path, target: str) -> None:
    with pytest.raises(OutOfTree):
        directories.link("/devices/slaves/sda", target)
    assert not os.path.lexists(sys / "devices/slaves")


def test_nothing_is_made_removed_or_linked_through_a_link(
    directories: Directories, sys: Path
) -> None:
    """A relative link that is made behind another one leads elsewhere than its text says."""
    directories.put(TOP)
    behind = f"{TOP.path}/subsystem/a/b"
    with pytest.raises(OutOfTree):
        directories.put(replace(TTY, path=behind))
    with pytest.raises(OutOfTree):
        directories.write(f"{behind}/name", "text")
    with pytest.raises(OutOfTree):
        directories.link(behind, TOP.path)
    with pytest.raises(OutOfTree):
        directories.unlink(f"{TOP.path}/subsystem/devices")
    assert sorted(os.listdir(sys / "bus/usb")) == ["devices", "drivers", "drivers_probe"]
