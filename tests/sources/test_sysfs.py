import errno
import os
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings

from liken_events.core.model.recording import from_json
from liken_events.core.model.shapes import shapes
from liken_events.core.model.snapshot import Device, Key, Snapshot
from liken_events.simulate.tree import MachineTree
from liken_events.sources import ScanFailed
from liken_events.sources.attributes import Files
from liken_events.sources.sysfs import Roots, Scanner
from tests.fakes import machines
from tests.fakes.agents import Build
from tests.fakes.devices import dp_aux, drm, event, hidraw, i2c, pci, tty, usb
from tests.fakes.faults import CountingFiles, no_descriptors
from tests.fakes.machines import homelab, machine
from tests.fakes.snapshots import snapshots

RECORDED = sorted(
    path
    for path in (Path(__file__).parent.parent / "data" / "machines").glob("*.json")
    if not path.name.endswith(".expected.json")
)
MADE = [machines.desktop, machines.server, machines.homelab, machines.empty_vm]

GPU = pci(
    "0000:00:02.0",
    "8086:3e92",
    "030000",
    "i915",
    nodes=[drm("card0", 0), drm("renderD128", 128), i2c(4), dp_aux(0, "card0-DP-1")],
)
HID = "0003:051D:0002.0001"
PAD = usb(
    "1-2:1.0",
    "054c:09cc",
    "030000",
    "usbhid",
    5,
    words=("Sony", "Pad"),
    serial="S1",
    nodes=[hidraw(HID, 0), event(f"{HID}/input", 3, 3)],
)
STICK = usb("1-1:1.0", "10c4:ea60", "ff0000", "cp210x", 2, nodes=[tty("ttyUSB0", 0)])


def scanner(tree: MachineTree, files: Files | None = None) -> Scanner:
    roots = Roots(sys=tree.sys, dev=tree.dev, proc=tree.proc, pci_ids=tree.pci_ids)
    return Scanner(roots, files)


@pytest.mark.parametrize("made", MADE, ids=lambda made: made.__name__)
def test_a_scan_finds_the_machine_as_it_is(build: Build, made: Callable[[], Snapshot]) -> None:
    snapshot = made()
    assert scanner(build(snapshot, clutter=True)).scan() == snapshot


@pytest.mark.parametrize("path", RECORDED, ids=lambda path: path.stem)
def test_a_scan_finds_a_recorded_machine_as_it_was(build: Build, path: Path) -> None:
    tree = build(from_json(path.read_text()))
    assert scanner(tree).scan() == tree.snapshot


@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(snapshots())
def test_a_scan_finds_any_machine_as_it_is(snapshot: Snapshot) -> None:
    with tempfile.TemporaryDirectory() as root:
        tree = MachineTree.build(snapshot, f"{root}/machine", clutter=False)
        found = scanner(tree).scan()
        assert found == tree.snapshot
        for device in found.devices:
            assert scanner(tree).device(device.key) == device


def test_the_machine_that_the_tests_run_on_can_be_scanned() -> None:
    found = Scanner(Roots()).scan()
    assert found == Scanner(Roots()).scan()
    for device in found.devices:
        assert os.path.isdir("/sys" + device.path)


def test_a_kernel_without_a_bus_has_no_devices_on_it(build: Build) -> None:
    tree = build(homelab())
    shutil.rmtree(f"{tree.sys}/bus/pci")
    assert {device.key.bus for device in scanner(tree).scan().devices} == {"usb"}


def test_a_bus_that_cannot_be_listed_is_no_empty_bus(build: Build) -> None:
    tree = build(homelab())
    shutil.rmtree(f"{tree.sys}/bus/usb/devices")
    Path(f"{tree.sys}/bus/usb/devices").write_text("")
    with pytest.raises(ScanFailed, match="cannot list usb devices"):
        scanner(tree).scan()


def test_only_what_the_bus_lists_is_present(build: Build) -> None:
    tree = build(homelab())
    look = scanner(tree)
    assert look.present(Key(bus="usb", address="1-1:1.0"))
    tree.unplug("1-1")
    assert not look.present(Key(bus="usb", address="1-1:1.0"))
    assert look.device(Key(bus="usb", address="1-1:1.0")) is None


def test_a_walk_does_not_follow_links_out_of_the_device(build: Build) -> None:
    tree = build(machine([GPU, STICK]))
    os.symlink(f"{tree.sys}{STICK.path}", f"{tree.sys}{GPU.path}/elsewhere")
    os.symlink(f"{tree.sys}{GPU.path}", f"{tree.sys}{GPU.path}/drm/loop")
    assert scanner(tree).device(GPU.key) == GPU


def everything(tree: MachineTree, key: Key) -> Device | None:
    return scanner(tree).device(key)


@pytest.mark.parametrize("device", [GPU, PAD, STICK], ids=["gpu", "pad", "stick"])
def test_a_device_that_goes_at_any_moment_of_a_look_is_whole_or_gone(
    build: Build, device: Device
) -> None:
    tree = build(machine([GPU, PAD, STICK]))
    files = CountingFiles()
    look = scanner(tree, files)
    assert look.device(device.key) == device
    for step in range(1, files.steps + 1):
        files.steps, files.at = 0, step
        files.happens = lambda: tree.unplug(device.key)
        assert look.device(device.key) in (device, None), f"at step {step}"
        tree.plug(device)


@pytest.mark.parametrize("device", [GPU, PAD], ids=["gpu", "pad"])
def test_a_directory_that_goes_before_its_link_makes_no_half_of_a_device(
    build: Build, device: Device
) -> None:
    tree = build(machine([GPU, PAD, STICK]))
    directory = tree.sys + device.path
    files = CountingFiles()
    look = scanner(tree, files)
    assert look.device(device.key) == device
    for step in range(1, files.steps + 1):
        files.steps, files.at = 0, step
        files.happens = lambda: os.rename(directory, directory + ".gone")
        assert look.device(device.key) in (device, None), f"at step {step}"
        os.rename(directory + ".gone", directory)


@pytest.mark.parametrize("device", [GPU, PAD, STICK], ids=["gpu", "pad", "stick"])
def test_a_driver_that_leaves_at_any_moment_of_a_look_leaves_all_or_nothing(
    build: Build, device: Device
) -> None:
    tree = build(machine([GPU, PAD, STICK]))
    unbound = replace(device, driver=None, nodes=())
    files = CountingFiles()
    look = scanner(tree, files)
    assert look.device(device.key) == device
    for step in range(1, files.steps + 1):
        files.steps, files.at = 0, step
        files.happens = lambda: tree.unbind(device.key)
        assert look.device(device.key) in (device, unbound), f"at step {step}"
        assert device.driver is not None
        tree.bind(device.key, device.driver, device.nodes)


def test_a_device_that_returns_under_another_number_is_seen_as_one_or_the_other(
    build: Build,
) -> None:
    tree = build(machine([PAD]))
    files = CountingFiles()
    look = scanner(tree, files)
    before = look.device(PAD.key)
    for step in range(1, files.steps + 1):
        files.steps, files.at = 0, step
        files.happens = partial(tree.renumber, "1-2", 20 + step)
        seen = look.device(PAD.key)
        after = everything(tree, PAD.key)
        assert seen in (before, after), f"at step {step}"
        before = after


@pytest.mark.parametrize("device", [GPU, PAD, STICK], ids=["gpu", "pad", "stick"])
def test_a_read_that_fails_costs_an_attribute_at_most_and_never_a_node(
    build: Build, device: Device
) -> None:
    tree = build(machine([GPU, PAD, STICK]))
    files = CountingFiles()
    files.fails = True
    look = scanner(tree, files)
    assert look.device(device.key) == device
    shape = shapes(device)
    for step in range(1, files.steps + 1):
        files.steps, files.at = 0, step
        seen = look.device(device.key)
        if step == 1:
            assert seen is None, "there is no such entry on the bus"
            continue
        assert seen is not None, f"at step {step}"
        assert seen.driver == device.driver, f"at step {step}"
        assert shapes(seen) == shape, f"at step {step}"


@pytest.mark.parametrize("fails", [True, False], ids=["one read fails", "one device goes"])
def test_what_happens_to_one_device_is_not_seen_at_its_neighbours(
    build: Build, fails: bool
) -> None:
    tree = build(machine([GPU, STICK]))
    whole = tree.snapshot
    files = CountingFiles()
    look = scanner(tree, files)
    assert look.scan() == whole
    for step in range(1, files.steps + 1):
        files.steps, files.at, files.fails = 0, step, fails
        if not fails:
            files.happens = lambda: tree.unplug(STICK.key)
        try:
            found = look.scan()
        except ScanFailed:
            assert fails, "a device that goes is no unreadable bus"
            continue
        others = [device for device in found.devices if device.key != STICK.key]
        wrong = [device for device in others if device not in whole.devices]
        assert len(wrong) <= fails
        if not fails:
            assert others == [GPU]
            tree.plug(STICK)


@pytest.mark.parametrize(
    "number", [errno.EIO, errno.ENODEV, errno.EINVAL, errno.EPIPE, errno.ETIMEDOUT, errno.ENXIO]
)
@pytest.mark.parametrize(
    ("attribute", "without"),
    [
        ("product", replace(PAD, model=None)),
        ("serial", replace(PAD, serial=None)),
        ("manufacturer", replace(PAD, maker=None)),
    ],
)
def test_an_attribute_that_cannot_be_read_is_absent_and_the_device_is_not(
    build: Build, monkeypatch: pytest.MonkeyPatch, number: int, attribute: str, without: Device
) -> None:
    tree = build(machine([PAD, STICK]))
    broken = os.path.dirname(tree.sys + PAD.path) + f"/{attribute}"
    read = os.read

    def fail(handle: int, size: int) -> bytes:
        if os.readlink(f"/proc/self/fd/{handle}") == broken:
            raise OSError(number, os.strerror(number))
        return read(handle, size)

    with monkeypatch.context() as patched:
        patched.setattr(os, "read", fail)
        found = scanner(tree).scan().devices
    assert list(found) == [STICK, without]


def test_a_machine_that_has_run_out_of_something_is_no_empty_machine(build: Build) -> None:
    tree = build(homelab())
    files = CountingFiles()
    look = scanner(tree, files)
    whole = look.scan()
    steps = files.steps
    files.error = OSError(errno.ENFILE, os.strerror(errno.ENFILE))
    for step in range(1, steps + 1):
        files.steps, files.at = 0, step
        try:
            found = look.scan()
        except ScanFailed:
            continue
        assert found.devices == whole.devices
        assert found.storage.unknown is not None, f"at step {step}"


def test_a_process_without_descriptors_says_so(build: Build) -> None:
    look = scanner(build(machine([PAD])))
    with no_descriptors():
        with pytest.raises(ScanFailed, match="Too many open files"):
            look.scan()
        with pytest.raises(ScanFailed, match=r"cannot read usb 1-2:1.0: .*Too many open files"):
            look.device(PAD.key)
        storage = look.storage()
    assert storage.unknown is not None
    assert look.device(PAD.key) == PAD


@pytest.mark.parametrize("size", [0, 1, 4095, 4096, 10_000])
def test_an_attribute_of_any_length_is_read(build: Build, size: int) -> None:
    tree = build(machine([PAD]))
    Path(f"{os.path.dirname(tree.sys + PAD.path)}/product").write_text("x" * size)
    found = everything(tree, PAD.key)
    assert found is not None
    assert found.model == ("x" * min(size, 4096) or None)


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        (b"\x06\x3f\xc2\xff\x75\x06\x04\n", "\x06?\ufffd\ufffdu\x06\x04"),
        (b"00008020\0\0\0\n", "00008020\0\0\0"),
        (b"BCM2045\xef\xbf\xbd\n", "BCM2045\ufffd"),
        (b"two\nlines\n", "two\nlines"),
        (b"\n", None),
        (b"", None),
    ],
)
def test_text_is_kept_as_it_was_read(build: Build, raw: bytes, expected: str | None) -> None:
    tree = build(machine([PAD]))
    Path(f"{os.path.dirname(tree.sys + PAD.path)}/serial").write_bytes(raw)
    found = everything(tree, PAD.key)
    assert found is not None
    assert found.serial == expected


def test_a_device_without_strings_is_a_device(build: Build) -> None:
    tree = build(machine([replace(PAD, maker=None, model=None, serial=None)]))
    assert not os.path.exists(f"{os.path.dirname(tree.sys + PAD.path)}/serial")
    assert everything(tree, PAD.key) == replace(PAD, maker=None, model=None, serial=None)


def test_an_entry_without_a_modalias_is_no_candidate(build: Build) -> None:
    tree = build(machine([PAD, STICK]))
    os.unlink(f"{tree.sys}{PAD.path}/modalias")
    assert scanner(tree).scan().devices == (STICK,)
    assert everything(tree, PAD.key) is None


def test_an_empty_entry_of_a_bus_is_passed_by(build: Build) -> None:
    tree = build(machine([STICK]))
    os.symlink("../../../devices/gone", f"{tree.sys}/bus/usb/devices/1-7:1.0")
    Path(f"{tree.sys}/bus/pci/devices/odd").write_text("")
    assert scanner(tree).scan().devices == (STICK,)
