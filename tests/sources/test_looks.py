import errno
import os
import threading
import time
from collections.abc import Iterator
from dataclasses import replace

import pytest

from liken_events.core.model.device import Reason
from liken_events.core.model.publish import Policy, inventory
from liken_events.core.model.snapshot import Key, Node
from liken_events.simulate.tree import MachineTree
from liken_events.sources import looks as module
from liken_events.sources.attributes import Files
from liken_events.sources.looks import Looks
from tests.fakes.agents import Build
from tests.fakes.devices import drm, pci
from tests.fakes.faults import CountingFiles, no_descriptors
from tests.fakes.keeping import OTHER, STICK, STICK_NAME, roots
from tests.fakes.machines import desktop, homelab, machine, server

GPU = pci(
    "0000:00:02.0", "8086:3e92", "030000", "i915", nodes=[drm("card0", 0), drm("renderD128", 128)]
)
NODE = STICK.nodes[0]


@pytest.fixture
def tree(build: Build) -> MachineTree:
    return build(machine([*homelab().devices, STICK, GPU], homelab().storage.uses))


def looks(tree: MachineTree, files: Files | None = None, **more: object) -> Looks:
    return Looks(roots(tree), Policy(), files)


@pytest.mark.parametrize("made", [desktop, homelab, server])
def test_a_look_judges_as_the_inventory_does(build: Build, made: object) -> None:
    assert callable(made)
    tree = build(made())
    found = looks(tree)
    whole = inventory(tree.snapshot)
    for judgement in whole.judgements:
        assert found.at(judgement.device.key) == judgement
    for device in whole.offered:
        assert found.named(device.name) == whole.judgement(device.key)


def test_a_look_sees_what_is_there_now(tree: MachineTree) -> None:
    found = looks(tree)
    before = found.at(STICK.key)
    assert before is not None
    assert before.device == STICK
    tree.renumber("1-9", 30)
    after = found.at(STICK.key)
    assert after is not None
    assert after.device.bus_node != STICK.bus_node
    tree.unplug("1-9")
    assert found.at(STICK.key) is None
    assert found.named(STICK_NAME) is None


def test_a_part_is_found_by_its_own_name(tree: MachineTree) -> None:
    found = looks(tree).named("pci-0000-00-02-0-display")
    assert found is not None
    assert found.device.key == GPU.key


def test_what_is_withheld_is_found_with_the_reason(tree: MachineTree) -> None:
    tree.unbind(STICK.key)
    found = looks(tree).named(STICK_NAME)
    assert found is not None
    assert found.withheld is not None
    assert found.withheld.reason is Reason.NO_DRIVER


def test_disks_are_judged_by_the_mounts_of_this_moment(tree: MachineTree) -> None:
    found = looks(tree)
    free = found.named("usb-2-2-1-0")
    assert free is not None
    assert free.published
    use = replace(tree.snapshot.storage.uses[0], what="/new", source="/dev/sdb1", number="8:17")
    tree.mount(use)
    taken = found.named("usb-2-2-1-0")
    assert taken is not None
    assert not taken.published


def test_an_address_gives_the_published_names(tree: MachineTree) -> None:
    found = looks(tree)
    assert found.addressed("1-9:1.0") == (STICK_NAME,)
    assert found.addressed("0000:00:02.0") == ("pci-0000-00-02-0", "pci-0000-00-02-0-display")
    assert found.addressed("9-9:1.0") == ()


def test_of_two_slots_with_one_name_the_first_that_publishes_it_has_it(build: Build) -> None:
    one = pci("0000:00:05.0", "8086:3e92", "030000", "i915", nodes=[drm("renderD129", 129)])
    two = pci("0000:00:05:0", "8086:3e92", "030000", "i915", nodes=[drm("renderD130", 130)])
    tree = build(machine([one, two]))
    name = "pci-0000-00-05-0"
    owner = inventory(tree.snapshot).by_name()[name].key
    found = looks(tree).named(name)
    assert found is not None
    assert found.device.key == owner
    tree.unbind(owner)
    found = looks(tree).named(name)
    assert found is not None
    assert found.device.key != owner


def test_a_machine_that_cannot_be_read_is_an_error_and_nothing_else(tree: MachineTree) -> None:
    found = looks(tree)
    with no_descriptors():
        for look in (
            lambda: found.at(STICK.key),
            lambda: found.named(STICK_NAME),
            lambda: found.addressed("1-9:1.0"),
        ):
            with pytest.raises(OSError, match="Too many open files"):
                look()


def test_a_bus_that_cannot_be_listed_is_no_empty_one(tree: MachineTree) -> None:
    files = CountingFiles()
    files.at, files.error = 1, OSError(errno.EIO, os.strerror(errno.EIO))
    with pytest.raises(OSError, match="cannot list"):
        looks(tree, files).named(STICK_NAME)


class HangingFiles(Files):
    """Reading the serial number of the stick hangs until it is let go; or reading of anything."""

    def __init__(self) -> None:
        self.free = threading.Event()
        self.reads = 0
        self.end = "/1-9/serial"

    def text(self, path: str) -> str | None:
        if path.endswith(self.end):
            self.reads += 1
            assert self.free.wait(30)
        return super().text(path)


@pytest.fixture
def hanging() -> Iterator[HangingFiles]:
    files = HangingFiles()
    yield files
    files.free.set()


def test_a_device_that_hangs_is_given_up_and_not_asked_again_until_it_answered(
    tree: MachineTree, hanging: HangingFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "LOOK_SECONDS", 0.05)
    found = looks(tree, hanging)
    for _ in range(3):
        with pytest.raises(TimeoutError, match=r"usb 1-9:1\.0 hangs while it is read"):
            found.at(STICK.key)
    assert hanging.reads == 1
    assert found.at(GPU.key) is not None
    hanging.free.set()
    monkeypatch.setattr(module, "LOOK_SECONDS", 10.0)
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        try:
            seen = found.at(STICK.key)
            break
        except TimeoutError:
            continue  # the look that hung is just ending
    assert seen is not None
    assert seen.device == STICK


def test_while_one_device_hangs_another_one_that_does_is_given_up_soon(
    tree: MachineTree, hanging: HangingFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "LOOK_SECONDS", 0.05)
    found = looks(tree, hanging)
    with pytest.raises(TimeoutError):
        found.at(STICK.key)
    monkeypatch.setattr(module, "LOOK_SECONDS", 3600.0)
    hanging.end = ""
    with pytest.raises(TimeoutError, match=r"0000:00:02\.0 hangs while it is read"):
        found.at(GPU.key)


def test_a_path_that_nothing_has_has_no_owner(tree: MachineTree) -> None:
    assert looks(tree).owner(NODE) is None


def test_a_device_that_was_announced_with_a_path_has_it_while_it_says_so(
    tree: MachineTree,
) -> None:
    found = looks(tree)
    place = f"{STICK.path}/{NODE.place}"
    assert found.owner(NODE, place) == "ttyUSB9"
    assert found.owner(replace(NODE, path="/dev/ttyUSB3"), place) is None
    assert found.owner(NODE, "/devices/virtual/none") is None
    tree.unplug("1-9")
    assert found.owner(NODE, place) is None


def test_the_device_of_a_node_in_a_subdirectory_has_it(tree: MachineTree) -> None:
    assert STICK.bus_node is not None
    path = STICK.path.rpartition("/")[0]
    assert looks(tree).owner(STICK.bus_node, path) == "1-9"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root makes device nodes")
@pytest.mark.parametrize(
    ("kind", "number", "owner"),
    [
        (0o020660, (188, 9), "ttyUSB9"),
        (0o060660, (8, 16), "sdb"),
        (0o020660, (8, 16), None),  # a character device of that number is nobody's
        (0o020660, (188, 200), None),  # the kernel knows no such number
        (0o010660, (0, 0), None),  # a pipe
    ],
)
def test_a_node_under_the_dev_root_is_whose_its_number_is(
    tree: MachineTree, kind: int, number: tuple[int, int], owner: str | None
) -> None:
    os.mknod(f"{tree.dev}/ttyUSB1", kind, os.makedev(*number))
    node = Node(path="/dev/ttyUSB1", subsystem="tty", major=188, minor=1)
    assert looks(tree).owner(node) == owner


def test_a_link_under_the_dev_root_is_nobodys(tree: MachineTree) -> None:
    os.symlink("/dev/null", f"{tree.dev}/ttyUSB1")
    assert looks(tree).owner(Node(path="/dev/ttyUSB1")) is None


def test_looks_from_several_threads_do_not_disturb_each_other(tree: MachineTree) -> None:
    found = looks(tree)
    tree.plug(OTHER)
    wanted = {
        key: found.at(key) for key in (STICK.key, OTHER.key, Key(bus="usb", address="2-2:1.0"))
    }
    wrong: list[Key] = []

    def check(key: Key) -> None:
        wrong.extend(key for _ in range(20) if found.at(key) != wanted[key])

    threads = [threading.Thread(target=check, args=(key,)) for key in wanted]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
