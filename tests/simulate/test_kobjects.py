"""Kernel objects: what their `uevent` file says, and in which order the kernel speaks of them."""

from liken_events.simulate.kobjects import (
    Kobject,
    arrival,
    binding,
    departure,
    in_order,
    is_below,
    is_within,
)
from liken_events.simulate.uevents import Uevent

TOP = Kobject(path="/devices/a", subsystem="usb", driver="cp210x", devtype="usb_interface")
PORT = Kobject(path="/devices/a/p", subsystem="usb-serial", driver="cp210x")
TTY = Kobject(path="/devices/a/p/tty/t0", subsystem="tty", number="188:0", devname="ttyUSB0")
SECOND = Kobject(path="/devices/a/q", subsystem="input")


def short(uevents: list[Uevent]) -> list[str]:
    return [f"{uevent.action} {uevent.devpath.rpartition('/')[2]}" for uevent in uevents]


def test_a_uevent_file_has_the_lines_of_the_kernel_in_its_order() -> None:
    assert TTY.lines() == (("MAJOR", "188"), ("MINOR", "0"), ("DEVNAME", "ttyUSB0"))
    assert TOP.lines() == (("DEVTYPE", "usb_interface"), ("DRIVER", "cp210x"))


def test_a_uevent_begins_with_the_subsystem() -> None:
    assert TTY.uevent("add") == Uevent(
        action="add",
        devpath=TTY.path,
        properties=(
            ("SUBSYSTEM", "tty"),
            ("MAJOR", "188"),
            ("MINOR", "0"),
            ("DEVNAME", "ttyUSB0"),
        ),
    )


def test_a_driver_is_named_only_while_it_is_there() -> None:
    named = {
        action: "DRIVER" in dict(TOP.uevent(action).properties)
        for action in ("add", "bind", "unbind", "remove")
    }

    assert named == {"add": False, "bind": True, "unbind": False, "remove": False}


def test_what_is_below_comes_between_an_add_and_its_bind() -> None:
    assert short(arrival([SECOND, TTY, TOP, PORT])) == [
        "add a",
        "add p",
        "add t0",
        "bind p",
        "add q",
        "bind a",
    ]


def test_what_is_below_goes_before_its_unbind_and_remove() -> None:
    assert short(departure([SECOND, TTY, TOP, PORT])) == [
        "remove t0",
        "unbind p",
        "remove p",
        "remove q",
        "unbind a",
        "remove a",
    ]


def test_an_object_without_a_driver_is_never_bound() -> None:
    assert binding(SECOND) == []
    assert short(binding(TOP)) == ["bind a"]


def test_families_stay_together_in_order() -> None:
    names = ["/d/1-1", "/d/1-1.2", "/d/1-1/x", "/d/1-1.2/x"]
    objects = [Kobject(path=path) for path in sorted(names)]

    assert [item.path for item in in_order(objects)] == [
        "/d/1-1",
        "/d/1-1/x",
        "/d/1-1.2",
        "/d/1-1.2/x",
    ]


def test_a_name_that_begins_alike_is_not_below() -> None:
    assert is_below("/d/1-1/x", "/d/1-1")
    assert not is_below("/d/1-1.2", "/d/1-1")
    assert not is_below("/d/1-1", "/d/1-1")
    assert is_within("/d/1-1", "/d/1-1")


def test_buses_and_classes_have_their_places() -> None:
    assert (TOP.home, TTY.home) == ("/bus/usb", "/class/tty")
    assert Kobject(path="/devices/x").home is None
