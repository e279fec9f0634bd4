from collections.abc import Collection

import pytest

from liken_events.core.model.host_devices import (
    COUNT,
    KVM,
    HostDevice,
    Presence,
    Unit,
    find_unit,
    matches,
    matching,
    unit_ids,
    units,
)

NET = HostDevice(resource="ate.dev/net", paths=("/dev/net/tun", "/dev/vhost-net"), count=3)
EVENTS = HostDevice(resource="ate.dev/input", paths=("/dev/input/event*",))
MIXED = HostDevice(resource="a.b/mixed", paths=("/dev/a/x[0-9]", "/dev/b/x?", "/dev/one"))


def healthy(
    device: HostDevice, present: Collection[str], known: Collection[str] = ()
) -> dict[str, bool]:
    return {unit.id: unit.is_healthy for unit in units(device, present, known)}


def test_the_units_of_kvm_are_counted_from_0() -> None:
    names = unit_ids(KVM)
    assert (names[0], names[-1], len(set(names))) == ("kvm-0", "kvm-4095", COUNT)
    assert [unit.id for unit in units(KVM, {"/dev/kvm"})] == list(names)


@pytest.mark.parametrize("present", [set(), {"/dev/net/tun"}, {"/dev/vhost-net"}])
def test_a_unit_of_several_nodes_is_all_of_them(present: set[str]) -> None:
    assert healthy(NET, present) == {"tun-0": False, "tun-1": False, "tun-2": False}
    assert healthy(NET, {*NET.paths, "/dev/kvm"}) == {"tun-0": True, "tun-1": True, "tun-2": True}
    assert find_unit(NET, "tun-2", NET.paths) == Unit(id="tun-2", paths=NET.paths)
    gone = find_unit(NET, "tun-2", present)
    assert gone is not None
    assert not gone.is_healthy


@pytest.mark.parametrize(
    "name",
    [
        "",
        "kvm",
        "kvm-",
        "kvm--1",
        "kvm-+1",
        "kvm-01",
        "kvm-00",
        "kvm-1 ",
        " kvm-1",
        "kvm-1\n",
        "kvm-٣",
        "kvm-²",
        "kvm-1_0",
        "kvm-0x1",
        "kvm-1.0",
        "kvm-4096",
        "kvm-99999",
        "kvm-" + "9" * 5000,
        "KVM-1",
        "tun-1",
        "-1",
        "1",
        "/dev/kvm",
        "kvm-\udcff",
    ],
)
def test_there_is_no_unit_of_another_name(name: str) -> None:
    assert find_unit(KVM, name, {"/dev/kvm"}) is None
    assert find_unit(EVENTS, name, {"/dev/input/event0"}) is None


def test_each_match_of_a_pattern_is_one_unit() -> None:
    present = ["/dev/input/event10", "/dev/input/event2", "/dev/input/mouse0", "/dev/event3"]
    assert units(EVENTS, present) == (
        Unit(id="input:event10", paths=("/dev/input/event10",)),
        Unit(id="input:event2", paths=("/dev/input/event2",)),
    )
    assert find_unit(EVENTS, "input:event2", present) == units(EVENTS, present)[1]
    assert units(EVENTS, ()) == ()


def test_what_a_pattern_found_once_stays_in_the_list() -> None:
    """The kubelet takes a unit that is missing for a healthy one."""
    first, second = "/dev/input/event0", "/dev/input/event1"
    assert healthy(EVENTS, {second}, {first, second}) == {
        "input:event0": False,
        "input:event1": True,
    }
    assert healthy(EVENTS, (), {first}) == {"input:event0": False}
    assert find_unit(EVENTS, "input:event0", {second}, {first}) == Unit(
        id="input:event0", paths=(first,), is_healthy=False
    )
    assert find_unit(EVENTS, "input:event0", {second}) is None


def test_equal_names_in_different_directories_are_different_units() -> None:
    found = units(MIXED, ["/dev/a/x1", "/dev/b/x1", "/dev/one", "/dev/a/x10", "/dev/c/x1"])
    assert [(unit.id, *unit.paths) for unit in found] == [
        ("a:x1", "/dev/a/x1"),
        ("b:x1", "/dev/b/x1"),
        ("one", "/dev/one"),
    ]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("/dev/a/b", "/dev/a:b"),
        ("/dev/a+b", "/dev/a,b"),
        ("/dev/ü", "/dev/ö"),
        ("/dev/" + "a" * 70, "/dev/" + "a" * 71),
        ("/dev/a\udcff", "/dev/a\udcfe"),
    ],
)
def test_nodes_with_odd_names_have_ids_that_no_other_node_changes(one: str, other: str) -> None:
    device = HostDevice(resource="a.b/c", paths=("/dev/*", "/dev/a/*"))
    (first,), (second,) = units(device, {one}), units(device, {other})
    assert first.id
    assert first.id != second.id
    assert len(first.id) <= 63
    assert set(units(device, {one, other})) == {first, second}


@pytest.mark.parametrize(
    ("path", "pattern", "is_meant"),
    [
        ("/dev/ttyUSB0", "/dev/ttyUSB*", True),
        ("/dev/ttyusb0", "/dev/ttyUSB*", False),
        ("/dev/a/ttyUSB0", "/dev/ttyUSB*", False),
        ("/dev/ttyUSB0/a", "/dev/ttyUSB*", False),
        ("/dev/ttyUSB10", "/dev/ttyUSB?", False),
        ("/dev/ttyUSB7", "/dev/ttyUSB[0-6]", False),
        ("/dev/kvm", "/dev/kvm", True),
        ("/dev/kvm2", "/dev/kvm", False),
        ("/dev/a/kvm", "/dev/b/kvm", False),
    ],
)
def test_a_pattern_means_names_in_one_directory(path: str, pattern: str, is_meant: bool) -> None:
    assert matches(path, pattern) == is_meant
    assert matching(HostDevice(resource="a.b/c", paths=(pattern,)), [path]) == (
        (path,) if is_meant else ()
    )


def test_something_is_offered_once_it_was_there() -> None:
    assert not Presence().is_offered
    assert Presence(known=frozenset({"/dev/kvm"})).is_offered
