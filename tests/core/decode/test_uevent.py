import struct
from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from liken_events.core.decode.uevent import ACTIONS, decode, sequence_number
from liken_events.core.events import DeviceChanged, NodeAdded, Resync
from liken_events.simulate.uevents import Uevent

STICK = "/devices/pci0000:00/0000:00:14.0/usb1/1-2/1-2:1.0"
LOST = Resync(source="uevent", reason="truncated event")


def kernel(head: str, *texts: str) -> bytes:
    """A message as the kernel sends it."""
    action, _, path = head.partition("@")
    return nul([head, f"ACTION={action}", f"DEVPATH={path}", *texts, "SEQNUM=4711"])


def udev(
    *texts: str, magic: int = 0xFEEDCAFE, offset: int = 40, length: int | None = None
) -> bytes:
    """A message as udevd sends it: a header with hashes for filters, and the properties."""
    properties = nul(texts)
    size = len(properties) if length is None else length
    header = struct.pack(">8sI", b"libudev\0", magic) + struct.pack("=III", 40, offset, size)
    return header + b"\xff" * 16 + properties


def nul(texts: Iterable[str]) -> bytes:
    return "".join(f"{text}\0" for text in texts).encode("utf-8", "surrogateescape")


BOUND = kernel(f"bind@{STICK}", "DEVTYPE=usb_interface", "DRIVER=cp210x", "SUBSYSTEM=usb")
BOUND_BY_UDEV = udev(
    "UDEV_DATABASE_VERSION=1", "ACTION=bind", f"DEVPATH={STICK}", "SUBSYSTEM=usb", "DRIVER=cp210x"
)


@pytest.mark.parametrize("action", sorted(ACTIONS))
def test_every_action_of_the_kernel_is_a_trigger_for_its_device(action: str) -> None:
    expected = DeviceChanged(path=STICK, action=action, subsystem="usb")
    assert decode(kernel(f"{action}@{STICK}", "SUBSYSTEM=usb")) == expected
    assert decode(udev(f"ACTION={action}", f"DEVPATH={STICK}", "SUBSYSTEM=usb")) == expected


def test_the_kernel_knows_eight_actions() -> None:
    known = {"add", "remove", "change", "bind", "unbind", "move", "online", "offline"}
    assert known == ACTIONS


@pytest.mark.parametrize(
    ("action", "kind", "more", "awaited"),
    [
        ("add", "00", [], True),
        ("add", "05", [], True),
        ("add", "0d", [], False),  # an enclosure has no node but `sg`
        ("add", "00", ["SYNTH_UUID=0"], False),
        ("bind", "00", ["DRIVER=sd"], False),
        ("remove", "00", [], False),
    ],
)
def test_a_disk_that_was_found_awaits_its_driver(
    action: str, kind: str, more: list[str], awaited: bool
) -> None:
    texts = ["DEVTYPE=scsi_device", f"MODALIAS=scsi:t-0x{kind}", "SUBSYSTEM=scsi", *more]
    head = f"{action}@{STICK}/host2/target2:0:0/2:0:0:0"
    found = decode(kernel(head, *texts))
    assert isinstance(found, DeviceChanged)
    assert found.awaits_driver == awaited


@pytest.mark.parametrize("message", [BOUND, BOUND_BY_UDEV])
def test_properties_may_stand_in_any_place(message: bytes) -> None:
    assert decode(message) == DeviceChanged(path=STICK, action="bind", subsystem="usb")


def test_udevd_may_put_its_properties_anywhere_behind_the_header() -> None:
    message = udev("JUNK=1", f"DEVPATH={STICK}", "ACTION=add", offset=40 + len("JUNK=1\0"))
    assert decode(message) == DeviceChanged(path=STICK, action="add")


def test_an_at_sign_in_a_property_is_no_head_of_a_message() -> None:
    message = udev("ID_PATH=pci@0000:00:14.0", "ACTION=add", f"DEVPATH={STICK}")
    assert decode(message) == DeviceChanged(path=STICK, action="add")


def test_what_follows_the_properties_of_udevd_is_none_of_them() -> None:
    properties = nul([f"DEVPATH={STICK}", "ACTION=add"])
    message = udev(f"DEVPATH={STICK}", "ACTION=add", "SUBSYSTEM=usb", length=len(properties))
    assert decode(message) == DeviceChanged(path=STICK, action="add")


@pytest.mark.parametrize(
    ("message", "number"),
    [
        (BOUND, 4711),
        (udev("SEQNUM=18446744073709551615", "ACTION=add"), 2**64 - 1),
        (BOUND_BY_UDEV, None),
        (udev("SEQNUM=", "ACTION=add"), None),
        (udev("SEQNUM=-1", "ACTION=add"), None),
        (udev("SEQNUM=" + "9" * 5000, "ACTION=add"), None),
        (udev("SEQNUM=1", magic=1), None),
        (b"add@/devices/x\0SEQNUM=47", None),
        (b"", None),
    ],
)
def test_the_number_of_an_event(message: bytes, number: int | None) -> None:
    assert sequence_number(message) == number


def test_an_event_that_somebody_asked_for_is_synthetic() -> None:
    asked = decode(kernel(f"add@{STICK}", "SYNTH_UUID=0", "SUBSYSTEM=usb"))
    assert asked == DeviceChanged(path=STICK, action="add", subsystem="usb", synthetic=True)
    named = decode(kernel(f"add@{STICK}", "SYNTH_UUID=fe4d7c9d-b8c6-4a70-9ef1-3d8a58d18eed"))
    assert named == DeviceChanged(path=STICK, action="add", synthetic=True)
    genuine = decode(kernel(f"add@{STICK}", "NOT_SYNTH_UUID=0"))
    assert genuine == DeviceChanged(path=STICK, action="add")


@pytest.mark.parametrize(
    "path",
    [
        "/devices/virtual/net/veth1234",
        "/devices/virtual/bdi/0:52",
        "/devices/virtual/block/loop3",
        "/devices/virtual/block/zram0",
        "/devices/virtual/misc/uinput",
        "/devices/virtual/workqueue/scsi_tmf_0",
        "/module/usbserial",
        "/bus/usb/drivers/cp210x",
        "/kernel/slab/:0000064",
        "/fs/ext4/sda1",
        "/class/net/veth1234",
        "/dev/null",
        "devices/pci0000:00",
        "/devicesx/pci0000:00",
        "",
    ],
)
def test_what_cannot_matter_to_hardware_or_disks_is_noise(path: str) -> None:
    assert decode(kernel(f"add@{path}", "SUBSYSTEM=x")) is None
    assert decode(udev("ACTION=add", f"DEVPATH={path}", "SUBSYSTEM=x")) is None
    assert decode(kernel(f"add@{path}", "SUBSYSTEM=x"), truncated=True) is None


@pytest.mark.parametrize(
    "path",
    [
        "/devices/virtual/block/dm-0",
        "/devices/virtual/block/md127",
        "/devices/virtual/block/md_d0",
        "/devices/virtual/block/bcache0",
        "/devices/virtual/nvme-subsystem/nvme-subsys0/nvme0n1/nvme0n1p1",
        "/devices/pci0000:00",
        "/devices/platform/soc/fe9c0000.usb/usb1",
        "/devices/virtualized/thing",
    ],
)
def test_what_filesystems_may_stand_on_is_no_noise(path: str) -> None:
    expected = DeviceChanged(path=path, action="change", subsystem="block")
    assert decode(kernel(f"change@{path}", "SUBSYSTEM=block")) == expected


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"\0",
        b"add",
        b"add@",
        b"@",
        b"@/devices/pci0000:00\0",
        b"libudev\0",
        b"libudev\0" + bytes(32),
        kernel(f"explode@{STICK}"),
        kernel(f"ADD@{STICK}"),
        udev("ACTION=explode", f"DEVPATH={STICK}"),
        udev(f"DEVPATH={STICK}"),
        udev("ACTION=add"),
        udev(),
        udev("ACTION=add", f"DEVPATH={STICK}", magic=0xCAFEFEED),
        udev("ACTION=add", f"DEVPATH={STICK}", offset=0xFFFFFFFF),
        udev("ACTION=add", f"DEVPATH={STICK}", length=0),
        udev("XACTION=add", f"XDEVPATH={STICK}"),
        f"add@{STICK}".encode(),
        b"\xff\xfe@/devices/pci0000:00\0",
    ],
)
def test_nonsense_is_no_trigger(message: bytes) -> None:
    assert decode(message) is None


@pytest.mark.parametrize(
    "odd",
    [
        b"PARTNAME=\xe1!!",
        b"ID_MODEL_ENC=Natural\xae\\x20Ergonomic\\x20Keyboard",
        b"ID_SERIAL=\\",
        b"EMPTY=",
        b"no equals sign",
    ],
)
def test_a_property_that_is_not_text_harms_no_other(odd: bytes) -> None:
    message = kernel(f"add@{STICK}").replace(b"SEQNUM", odd + b"\0SUBSYSTEM=block\0SEQNUM")
    assert decode(message) == DeviceChanged(path=STICK, action="add", subsystem="block")


def test_a_path_that_is_not_utf_8_stays_a_path() -> None:
    message = kernel("add@/devices/pci0000:00/\udce1!!", "SUBSYSTEM=\udce1")
    expected = DeviceChanged(
        path="/devices/pci0000:00/\udce1!!", action="add", subsystem="\N{REPLACEMENT CHARACTER}"
    )
    assert decode(message) == expected


def test_of_a_truncated_event_only_the_device_is_used() -> None:
    cut = kernel(f"bind@{STICK}", "SUBSYSTEM=usb", "SYNTH_UUID=0", "ID_MODEL=A long na")[:-20]
    assert decode(cut, truncated=True) == DeviceChanged(path=STICK, action="bind")
    whole = kernel(f"bind@{STICK}", "SUBSYSTEM=usb", "SYNTH_UUID=0")
    assert decode(whole, truncated=True) == DeviceChanged(path=STICK, action="bind")
    head = f"bind@{STICK}\0".encode()
    assert decode(head, truncated=True) == DeviceChanged(path=STICK, action="bind")


@pytest.mark.parametrize("rest", [b"", b"\0", b"junk\0", b"add\0", b"libudev\0", udev()])
def test_of_a_truncated_event_without_a_name_everything_is_doubtful(rest: bytes) -> None:
    assert decode(rest, truncated=True) == LOST
    assert decode(rest) is None


def test_an_event_without_its_end_is_not_trusted_beyond_its_device() -> None:
    assert decode(BOUND[:-4]) == DeviceChanged(path=STICK, action="bind")
    assert decode(BOUND_BY_UDEV[:-4]) == DeviceChanged(path=STICK, action="bind")


@given(st.binary(max_size=200), st.booleans())
def test_any_bytes_are_accepted(data: bytes, truncated: bool) -> None:
    found = decode(data, truncated=truncated)
    assert (
        found is None
        or isinstance(found, DeviceChanged | NodeAdded)
        or (found == LOST and truncated)
    )


@given(st.sampled_from([BOUND, BOUND_BY_UDEV]), st.data())
def test_a_damaged_event_is_accepted(message: bytes, data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(message)))
    end = data.draw(st.integers(start, len(message)))
    damaged = message[:start] + data.draw(st.binary(max_size=12)) + message[end:]
    found = decode(damaged)
    assert found is None or (isinstance(found, DeviceChanged) and found.action in ACTIONS)


@pytest.mark.parametrize(
    "message",
    [BOUND, BOUND_BY_UDEV, udev(f"DEVPATH={STICK}", "SUBSYSTEM=usb", "ACTION=bind", "DRIVER=x")],
)
def test_an_event_that_was_cut_anywhere_is_never_lost_and_names_no_other_device(
    message: bytes,
) -> None:
    for length in range(len(message)):
        cut = message[:length]
        assert decode(cut, truncated=True) in (LOST, DeviceChanged(path=STICK, action="bind"))
        found = decode(cut)
        assert found is None or (isinstance(found, DeviceChanged) and found.path == STICK)


texts = st.text(st.characters(exclude_characters="\0", codec="utf-8"), max_size=20)
properties = st.lists(
    st.tuples(
        st.text(st.sampled_from("ABCDEFGHIJKLMNOPQRSTUVWXYZ_"), min_size=1, max_size=10).filter(
            lambda name: name not in {"ACTION", "DEVPATH", "SUBSYSTEM", "SYNTH_UUID"}
        ),
        texts,
    ),
    max_size=5,
)


@given(st.sampled_from(sorted(ACTIONS)), texts, texts, properties, st.integers(0, 2**63))
def test_what_the_kernel_says_of_a_device_on_a_bus_is_understood(
    action: str, name: str, subsystem: str, others: list[tuple[str, str]], seqnum: int
) -> None:
    path = f"/devices/pci0000:00/{name}"
    said = Uevent(
        action=action, devpath=path, properties=(*others, ("SUBSYSTEM", subsystem), *others)
    )
    expected = DeviceChanged(path=path, action=action, subsystem=subsystem)
    assert decode(said.to_bytes(seqnum)) == expected
    listed = [f"{key}={value}" for key, value in said.properties]
    assert decode(udev(*listed, f"DEVPATH={path}", f"ACTION={action}")) == expected
