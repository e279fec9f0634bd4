import socket
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from liken_events.core.decode.uevent import ACTIONS, decode
from liken_events.simulate.uevents import Uevent
from liken_events.sources.uevent_filter import attach, program
from tests.fakes.network import PrivateNetwork

HARDWARE = (
    "/devices/pci0000:00/0000:00:14.0/usb1/1-2",
    "/devices/pci0000:00/0000:00:14.0/usb1/1-2/1-2:1.0/net/eth0",
    "/devices/platform/soc/3f980000.usb/usb1",
    "/devices/virtual/block/dm-0",
    "/devices/virtual/block/md0",
    "/devices/virtual/block/bcache0",
    "/devices/virtual/nvme-subsystem/nvme-subsys0/nvme0n1",
    "/devices/x",
)
NOISE = (
    "/devices/virtual/net/veth1a2b3c4d",
    "/devices/virtual/net/veth1a2b3c4d/queues/rx-0",
    "/devices/virtual/bdi/0:52",
    "/devices/virtual/block/loop0",
    "/devices/virtual/block/loop12/loop12p1",
    "/module/hid_generic",
    "/kernel/slab/:A-0000192/cgroup/dentry(1023:pod)",
    "/bus/usb/drivers/usbhid",
    "/fs/ext4/sda1",
)
PADDING = (("SUBSYSTEM", "some"), ("DEVTYPE", "some"), ("SEQNUM", "123456789"))


def message(action: str, path: str) -> bytes:
    return Uevent(action=action, devpath=path, properties=PADDING).to_bytes()


def accepts(data: bytes) -> bool:
    """Runs the program as the kernel does."""
    code, at, value = program(), 0, 0
    while True:
        operation, if_true, if_false, number = code[at]
        at += 1
        match operation:
            case 0x80:  # length
                value = len(data)
            case 0x20 | 0x30:  # word, byte
                size = 4 if operation == 0x20 else 1
                if number + size > len(data):
                    return False  # a load behind the end drops the message
                value = int.from_bytes(data[number : number + size], "big")
            case 0x15:  # equal
                at += if_true if value == number else if_false
            case 0x35:  # at least
                at += if_true if value >= number else if_false
            case 0x06:  # return
                return number > 0
            case _:
                raise AssertionError(operation)


@pytest.mark.parametrize("action", sorted(ACTIONS))
def test_hardware_passes_and_noise_does_not(action: str) -> None:
    assert [path for path in HARDWARE if not accepts(message(action, path))] == []
    assert [path for path in NOISE if accepts(message(action, path))] == []


names = st.text(st.sampled_from("abdeilnoptvx0:-@/"), max_size=12)
paths = st.builds(
    "".join,
    st.lists(
        st.sampled_from(["/devices", "/virtual", "/net/", "/bdi/", "/block", "/loop", "/dm-"])
        | names,
        max_size=6,
    ),
)


@given(st.sampled_from(sorted(ACTIONS)) | names, paths, st.integers(0, 300))
def test_nothing_is_dropped_that_could_matter(action: str, path: str, length: int) -> None:
    data = message(action, path)[:length]
    assert accepts(data) or decode(data) is None


@pytest.mark.parametrize("action", ["add", "offline"])
def test_a_message_that_was_cut_anywhere_is_not_dropped_if_it_could_matter(action: str) -> None:
    whole = [message(action, path) for path in (*HARDWARE, *NOISE)]
    parts = [data[:length] for data in whole for length in range(len(data))]
    assert [data for data in parts if not accepts(data) and decode(data) is not None] == []


@given(st.binary(max_size=200), st.sampled_from([b"", b"libudev\0\xfe\xed\xca\xfe"]))
def test_the_program_ends_for_any_bytes_and_passes_what_udevd_says(
    data: bytes, start: bytes
) -> None:
    assert accepts(start + data) in ((True,) if start else (True, False))


def test_the_program_fits_the_kernel() -> None:
    code = program()
    assert len(code) <= 4096  # BPF_MAXINSNS
    *steps, (last, _, _, _) = code
    assert last == 0x06, "it returns at its end"
    for at, (_, if_true, if_false, _) in enumerate(steps):
        assert at + 1 + max(if_true, if_false) < len(code)
        assert max(if_true, if_false) < 256


def received(sock: socket.socket) -> list[bytes]:
    """First lines of all that waits."""
    found = []
    while True:
        try:
            found.append(sock.recv(16384).partition(b"\0")[0])
        except BlockingIOError:
            return found


def test_the_kernel_drops_noise_before_it_is_queued(network: PrivateNetwork) -> None:
    with network.listen() as sock:
        assert attach(sock)
        for action in sorted(ACTIONS):
            network.send_raw([message(action, path) for path in NOISE])
        assert received(sock) == []
        expected = []
        for action in sorted(ACTIONS):
            network.send_raw([message(action, path) for path in (*HARDWARE, *NOISE)])
            expected += [f"{action}@{path}".encode() for path in HARDWARE]
        assert received(sock) == expected


def test_without_the_filter_all_of_it_arrives(network: PrivateNetwork) -> None:
    with network.listen() as sock:
        network.send_raw([message("add", path) for path in (*HARDWARE, *NOISE)])
        assert len(received(sock)) == len(HARDWARE) + len(NOISE)


def test_noise_leaves_room_for_what_matters(network: PrivateNetwork) -> None:
    with network.listen() as sock:
        assert attach(sock)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        network.send_raw([message("add", path) for path in NOISE], repeat=500)
        network.send_raw([message("add", HARDWARE[0])])
        assert received(sock) == [f"add@{HARDWARE[0]}".encode()]


class NoFilter(socket.socket):
    """A socket of a kernel that takes no filter."""

    def setsockopt(self, *_: Any) -> None:
        raise OSError(92, "Protocol not available")


def test_a_kernel_that_takes_no_filter_is_lived_with() -> None:
    with NoFilter(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        assert not attach(sock)
