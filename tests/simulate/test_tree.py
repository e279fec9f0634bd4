"""The simulated machine: a scan of it finds what it was made of, and its uevents tell what became
of it.

The single files that make it up are tested beside this one; sending the uevents, in
`test_uevents.py`.
"""

import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from liken_events.core.model.snapshot import Disk, Key, Node, Snapshot, Storage, Use
from liken_events.core.model.storage import PROTECTED
from liken_events.simulate.recordings import desk
from liken_events.simulate.script import generic_script
from liken_events.simulate.tree import MachineTree
from liken_events.simulate.uevents import Uevent
from liken_events.sources.sysfs import Roots, Scanner
from tests.fakes import machines
from tests.fakes.agents import Build
from tests.fakes.devices import event, pci, scsi_disk, tty, usb
from tests.fakes.snapshots import snapshots

MACHINES = (machines.desktop, machines.server, machines.homelab, machines.empty_vm)
STICK = Key(bus="usb", address="1-1.2:1.0")


def scan(tree: MachineTree) -> Snapshot:
    """What the agent's own scan finds."""
    roots = Roots(sys=tree.sys, dev=tree.dev, proc=tree.proc, pci_ids=tree.pci_ids)
    return Scanner(roots).scan()


@contextmanager
def built(snapshot: Snapshot, *, clutter: bool = False) -> Iterator[MachineTree]:
    """A tree for a test that makes many."""
    with tempfile.TemporaryDirectory() as root:
        yield MachineTree.build(snapshot, f"{root}/machine", clutter=clutter)


def objects(tree: MachineTree) -> set[str]:
    """Kernel paths of all directories that stand for an object with uevents of its own."""
    return {
        directory.removeprefix(tree.sys)
        for directory, _, files in os.walk(f"{tree.sys}/devices")
        if "uevent" in files and not os.path.basename(directory).startswith("ep_")
    }


def entries(tree: MachineTree) -> set[str]:
    """All files and links below `/sys`, without the directories, which the kernel may leave
    empty."""
    found = set()
    for directory, names, files in os.walk(tree.sys):
        links = [name for name in names if os.path.islink(f"{directory}/{name}")]
        found |= {f"{directory}/{name}" for name in (*links, *files)}
    return found


def said(uevents: list[Uevent], *actions: str) -> list[str]:
    """The kernel paths that uevents with one of these actions name."""
    return [uevent.devpath for uevent in uevents if uevent.action in actions]


def short(uevents: list[Uevent]) -> list[str]:
    return [f"{uevent.action} {uevent.devpath.rpartition('/')[2]}" for uevent in uevents]


@pytest.mark.parametrize("clutter", [True, False])
@pytest.mark.parametrize("machine", MACHINES)
def test_a_scan_finds_the_machine_that_the_tree_was_made_of(
    machine: Callable[[], Snapshot], clutter: bool, build: Build
) -> None:
    tree = build(machine(), clutter=clutter)

    assert scan(tree) == machine()
    assert tree.snapshot == machine()


@settings(max_examples=30, deadline=None)
@given(snapshots(), st.booleans())
def test_a_scan_finds_any_machine(snapshot: Snapshot, clutter: bool) -> None:
    with built(snapshot, clutter=clutter) as tree:
        assert scan(tree) == snapshot


@pytest.mark.parametrize("machine", MACHINES)
def test_after_every_change_a_scan_finds_what_the_tree_says_it_is(
    machine: Callable[[], Snapshot], build: Build
) -> None:
    tree = build(machine())

    for step in generic_script(machine()):
        step.change(tree)
        assert scan(tree) == tree.snapshot, step.title


@settings(max_examples=10, deadline=None)
@given(snapshots(), st.data())
def test_uevents_name_every_object_that_came_or_went(
    snapshot: Snapshot, data: st.DataObject
) -> None:
    with built(snapshot, clutter=True) as tree:
        for step in generic_script(snapshot)[: data.draw(st.integers(0, 6))]:
            before = objects(tree)
            uevents = step.change(tree)
            after = objects(tree)

            stayed = {path for path in said(uevents, "add") if path in before}
            assert set(said(uevents, "add")) - stayed == after - before
            assert set(said(uevents, "remove")) - stayed == before - after
            assert scan(tree) == tree.snapshot


@pytest.mark.parametrize("machine", MACHINES)
def test_what_is_plugged_in_and_pulled_out_leaves_no_file_and_no_link(
    machine: Callable[[], Snapshot], build: Build
) -> None:
    tree = build(machine())
    guest = usb("1-9:1.0", "0781:5581", "080650", "usb-storage", 30, nodes=scsi_disk("", 9, 7, 2))
    disk = pci("0000:7f:00.0", "144d:a808", "010802", "nvme", hidden_disks=["nvme9c9n1"])
    before = entries(tree)

    tree.plug(guest, disk)
    during = entries(tree)
    tree.unplug("1-9")
    tree.unplug(disk.key)

    # The root hub that the guest hangs on was not recorded on each machine; it stays.
    left = {path for path in entries(tree) - before if "usb1" not in path}
    assert before < during
    assert not before - entries(tree)
    assert left <= {f"{tree.sys}/dev/char/189:0"}


def test_no_link_of_a_changed_tree_leads_nowhere(build: Build) -> None:
    tree = build(machines.homelab())

    for step in generic_script(machines.homelab()):
        step.change(tree)

    links = [path for path in entries(tree) if os.path.islink(path)]
    assert [path for path in links if not os.path.exists(path)] == []


def test_a_stick_arrives_in_the_order_of_the_kernel(tmp_path: Path) -> None:
    tree = MachineTree(str(tmp_path / "machine"))

    uevents = tree.plug(next(device for device in desk().devices if device.key == STICK))

    assert short(uevents) == [
        "add 1-1.2",
        "change 1-1.2",
        "add 1-1.2:1.0",
        "bind 1-1.2",
        "add ttyUSB0",
        "add ttyUSB0",
        "bind ttyUSB0",
        "bind 1-1.2:1.0",
    ]


def test_a_stick_leaves_in_the_order_of_the_kernel(build: Build) -> None:
    tree = build(desk())

    uevents = tree.unplug("1-1.2")

    assert short(uevents) == [
        "remove ttyUSB0",
        "unbind ttyUSB0",
        "remove ttyUSB0",
        "unbind 1-1.2:1.0",
        "remove 1-1.2:1.0",
        "unbind 1-1.2",
        "remove 1-1.2",
    ]


def test_a_pci_function_is_bound_when_its_nodes_are_there(build: Build) -> None:
    tree = build(desk())
    sound = next(device for device in desk().devices if device.driver == "snd_hda_intel")

    gone = tree.unplug(sound.key)
    found = tree.plug(sound)

    assert short(gone)[-2:] == ["unbind 0000:00:1f.3", "remove 0000:00:1f.3"]
    assert (short(found)[0], short(found)[-1]) == ("add 0000:00:1f.3", "bind 0000:00:1f.3")
    assert scan(tree) == desk()


def test_interfaces_of_one_device_leave_together_and_share_its_node(build: Build) -> None:
    tree = build(machines.homelab())

    tree.renumber("1-4", 9)

    nodes = [device.bus_node for device in scan(tree).devices if device.driver == "ftdi_sio"]
    assert [node and (node.path, node.minor) for node in nodes] == [
        ("/dev/bus/usb/001/009", 8)
    ] * 2
    tree.unplug("1-4")
    assert not [device for device in scan(tree).devices if device.driver == "ftdi_sio"]


def test_a_device_may_come_back_with_other_nodes(build: Build) -> None:
    tree = build(desk())

    uevents = tree.renumber("1-1.2", 11, {STICK: [tty("ttyUSB1", 1)]})

    found = next(device for device in scan(tree).devices if device.key == STICK)
    assert [node.path for node in found.nodes] == ["/dev/ttyUSB1"]
    assert short(uevents).count("remove ttyUSB0") == short(uevents).count("add ttyUSB1") == 2


def test_a_hub_takes_with_it_and_brings_back_what_hangs_on_it(build: Build) -> None:
    tree = build(desk())

    tree.renumber("1-1", 20)
    numbers = {d.key.address: d.bus_node for d in scan(tree).devices if d.key.bus == "usb"}
    hub, stick = numbers["1-1:1.0"], numbers["1-1.2:1.0"]
    assert hub is not None
    assert stick is not None
    assert (hub.path, stick.path) == ("/dev/bus/usb/001/020", "/dev/bus/usb/001/004")

    tree.unplug("1-1")
    left = {device.key.address for device in scan(tree).devices if device.key.bus == "usb"}
    assert left == {*numbers} - {"1-1:1.0", "1-1.1:1.0", "1-1.1:1.1", "1-1.2:1.0"}


def test_a_controller_takes_its_whole_bus_with_it(build: Build) -> None:
    tree = build(desk())

    uevents = tree.unplug(Key(bus="pci", address="0000:00:14.0"))

    assert not [device for device in scan(tree).devices if device.key.bus == "usb"]
    assert [disk.name for disk in scan(tree).storage.disks if disk.name.startswith("sdb")] == []
    assert short(uevents)[-1] == "remove 0000:00:14.0"


def test_a_driver_that_leaves_takes_its_nodes_and_brings_them_back(build: Build) -> None:
    tree = build(desk())
    stick = next(device for device in desk().devices if device.key == STICK)

    gone = tree.unbind(STICK)
    found = next(device for device in scan(tree).devices if device.key == STICK)
    assert (found.driver, found.nodes, found.bus_node) == (None, (), stick.bus_node)
    assert short(gone)[-1] == "unbind 1-1.2:1.0"

    back = tree.bind(STICK, "cp210x", stick.nodes)
    assert scan(tree) == desk()
    assert dict(back[-1].properties)["DRIVER"] == "cp210x"


def test_nodes_come_and_go_one_by_one(build: Build) -> None:
    tree = build(desk())
    more = event("input", 30, 20)

    added = tree.add_nodes(STICK, [more])
    assert short(added) == ["add input30", "add event20"]
    assert more in next(d for d in scan(tree).devices if d.key == STICK).nodes

    removed = tree.remove_nodes(STICK, [more])
    assert short(removed) == ["remove event20", "remove input30"]
    assert scan(tree) == desk()


def test_a_device_whose_own_directory_is_a_node_is_found_as_one(build: Build) -> None:
    itself = Node(path="/dev/odd", subsystem="usb", major=77, minor=1)
    device = usb("1-1:1.0", "1234:5678", "ff0000", "odd", 2, nodes=[itself])

    tree = build(Snapshot(devices=(device,)))

    assert scan(tree).devices == (device,)


def test_a_mount_is_seen_and_announced_by_no_uevent(build: Build) -> None:
    tree = build(machines.homelab())
    more = Use(what="/mnt/two words\\and#more", fstype="ext4", source="/dev/sdb1", number="8:17")

    assert tree.mount(more) == []
    assert more in scan(tree).storage.uses
    assert tree.unmount(more.what) == []
    assert scan(tree) == machines.homelab()


def test_a_swap_area_comes_and_goes(build: Build) -> None:
    tree = build(machines.homelab())
    swap = Use(what="swap", fstype="swap", source="/dev/sdb1")

    tree.mount(swap)
    assert swap in scan(tree).storage.uses
    tree.unmount("/dev/sdb1")
    assert scan(tree) == machines.homelab()


def test_the_last_of_two_mounts_on_one_place_goes_first(build: Build) -> None:
    tree = build(machines.homelab())
    over = Use(what="/mnt/my backup", fstype="vfat", source="/dev/sdb1", number="8:17")

    tree.mount(over)
    tree.unmount(over.what)

    assert scan(tree) == machines.homelab()


def test_unknown_uses_are_unknown_to_a_scan_until_something_is_mounted(build: Build) -> None:
    hidden = replace(machines.homelab().storage, uses=(), unknown="a reason")
    tree = build(replace(machines.homelab(), storage=hidden))

    assert scan(tree).storage.unknown is not None
    tree.mount(Use(what="/", fstype="ext4", source="/dev/sda1", number="8:1"))
    assert scan(tree) == tree.snapshot
    assert scan(tree).storage.unknown is None


def test_what_no_tree_can_show_is_not_claimed_to_be_there(build: Build) -> None:
    uses = (
        Use(what="/pool", fstype="btrfs", source="/dev/sda", number="0:44"),
        Use(what="/dev/sda", fstype=PROTECTED, source="/dev/sda"),
        Use(what="swap", fstype="swap", source="/dev/sda", number="8:0"),
    )
    storage = Storage(uses=uses, disks=(Disk(name="sda", number="8:0"),))

    tree = build(Snapshot(storage=storage))

    assert scan(tree) == tree.snapshot
    assert [(use.what, use.number) for use in tree.snapshot.storage.uses] == [
        ("/pool", None),
        ("swap", None),
    ]


def test_a_pulled_disk_leaves_what_was_made_of_it(build: Build) -> None:
    tree = build(machines.server())

    tree.unplug(Key(bus="pci", address="0000:00:18.0"))

    disks = {disk.name: disk for disk in scan(tree).storage.disks}
    assert "sdb" not in disks
    assert disks["dm-0"].slaves == ("sdb2",)
    assert scan(tree) == tree.snapshot


def test_what_is_there_already_cannot_be_plugged_in(build: Build) -> None:
    tree = build(machines.homelab())
    port = next(device for device in machines.homelab().devices if device.driver == "ftdi_sio")
    another = replace(port, key=Key(bus="usb", address="1-4:1.2"), path=f"{port.path[:-1]}2")

    for device in (port, another):
        with pytest.raises(ValueError, match="plugged in already"):
            tree.plug(device)
    assert scan(tree) == machines.homelab()


def test_what_is_not_there_cannot_change(build: Build) -> None:
    tree = build(machines.homelab())
    nowhere = Key(bus="usb", address="9-9:1.0")

    for change in (tree.unplug, tree.unbind):
        with pytest.raises(LookupError, match="9-9"):
            change(nowhere)
    with pytest.raises(LookupError, match="9-9"):
        tree.renumber("9-9", 3)
    with pytest.raises(LookupError, match="nothing is mounted on /nowhere"):
        tree.unmount("/nowhere")


def test_drivers_change_only_from_one_to_none_and_back(build: Build) -> None:
    tree = build(desk())

    with pytest.raises(ValueError, match="has the driver cp210x"):
        tree.bind(STICK, "option")
    with pytest.raises(ValueError, match="other devices hang on"):
        tree.unbind(Key(bus="pci", address="0000:00:14.0"))
    tree.unbind(STICK)
    with pytest.raises(ValueError, match="has no driver"):
        tree.unbind(STICK)


def test_a_directory_that_holds_a_tree_is_not_built_over(tmp_path: Path) -> None:
    MachineTree.build(machines.empty_vm(), str(tmp_path / "machine"))

    with pytest.raises(FileExistsError):
        MachineTree.build(machines.empty_vm(), str(tmp_path / "machine"))
