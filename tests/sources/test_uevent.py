import errno
import os
import socket
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import pyudev
import trio
from structlog.typing import EventDict
from trio.testing import MockClock, wait_all_tasks_blocked

from liken_events.core.backlog import Backlog
from liken_events.core.events import DeviceChanged, NodeAdded, Resync, Trigger
from liken_events.inbox import Inbox
from liken_events.simulate.uevents import Uevent
from liken_events.sources import SourceLost
from liken_events.sources.uevent import (
    DRAIN_AT_ONCE,
    FAILING_PAUSE,
    SO_RCVBUFFORCE,
    UeventSource,
    choose_group,
    enlarge_buffer,
)
from liken_events.supervise import follow
from tests.fakes.network import PrivateNetwork
from tests.fakes.scripted import ScriptedSocket, SourceOn, from_uid
from tests.fakes.waiting import until

OVERRUN = Resync(source="uevent", reason="receive buffer overrun")


def said(number: int, action: str = "add") -> bytes:
    return Uevent(action=action, devpath=f"/devices/pci0000:00/{number}").to_bytes(number)


def changed(number: int, action: str = "add") -> DeviceChanged:
    return DeviceChanged(path=f"/devices/pci0000:00/{number}", action=action)


def from_udevd(properties: bytes) -> bytes:
    """A message with udevd's header in front of its properties."""
    header = b"libudev\0" + struct.pack(">I", 0xFEEDCAFE) + struct.pack("=III", 40, 40, 0)
    header = header[:20] + struct.pack("=I", len(properties)) + header[24:]
    return header.ljust(40, b"\0") + properties


def taken(inbox: Inbox) -> list[Trigger]:
    return [marked.trigger for marked in inbox.take()]


@asynccontextmanager
async def listening(source: UeventSource) -> AsyncIterator[Inbox]:
    inbox = Inbox()
    async with trio.open_nursery() as nursery:
        await nursery.start(source.run, inbox)
        yield inbox
        nursery.cancel_scope.cancel()


async def heard(*script: Any, group: str = "kernel") -> tuple[list[Trigger], SourceOn]:
    """What the source makes of a script."""
    source = SourceOn(ScriptedSocket(script), group=group)
    async with listening(source) as inbox:
        await trio.sleep(10)
        return taken(inbox), source


async def test_after_an_overrun_the_rest_is_read_and_everything_once(clock: MockClock) -> None:
    found, source = await heard(errno.ENOBUFS, said(1), said(2), said(3))
    assert found == [changed(1), changed(2), changed(3), OVERRUN]
    assert source.overruns == 1


async def test_what_is_lost_until_the_buffer_is_empty_is_read_too(clock: MockClock) -> None:
    async with listening(SourceOn(ScriptedSocket([errno.ENOBUFS, said(1)]))) as inbox:
        await inbox.wait()
        heard_at = trio.current_time()
        await trio.sleep(10)
        (mark,) = [marked for marked in inbox.take() if marked.trigger == OVERRUN]
    assert mark.at >= heard_at + FAILING_PAUSE, "when the last event was read, and not before"


async def test_an_overrun_between_two_events_loses_neither(clock: MockClock) -> None:
    found, source = await heard(said(1), errno.ENOBUFS, said(2), errno.ENOBUFS, errno.ENOBUFS)
    assert set(found) == {changed(1), OVERRUN, changed(2)}
    assert source.overruns == 3


async def test_a_socket_that_only_fails_is_asked_some_times_a_second(clock: MockClock) -> None:
    sock = ScriptedSocket([*[errno.ENOBUFS] * 1000, said(1)])
    source = SourceOn(sock)
    start = trio.current_time()
    async with listening(source) as inbox:
        await trio.sleep(50)
        assert sock.reads <= 50 / FAILING_PAUSE + 1
        assert taken(inbox) == [OVERRUN]
        await inbox.wait()
        while changed(1) not in taken(inbox):
            await inbox.wait()
        assert trio.current_time() - start >= 1000 * FAILING_PAUSE - 0.01
    assert source.overruns == 1000


async def test_interruptions_keep_the_socket_and_a_dead_one_is_replaced(
    clock: MockClock, logs: list[EventDict]
) -> None:
    first = ScriptedSocket([errno.ENOBUFS, errno.EINTR, errno.EAGAIN, said(1), errno.EBADF])
    second = ScriptedSocket([said(2)])
    inbox = Inbox()
    async with trio.open_nursery() as nursery:
        await nursery.start(follow, SourceOn(first, second), inbox)
        await trio.sleep(0.01)
        assert first.reads == 1, "it only said that it overran"
        await trio.sleep(10)
        nursery.cancel_scope.cancel()
    restarted = Resync(source="uevent", reason="the source is started again")
    assert set(taken(inbox)) == {OVERRUN, changed(1), restarted, changed(2)}
    assert [line["reason"] for line in logs if line["event"] == "source.lost"] == [
        "reading uevents failed: [Errno 9] Bad file descriptor"
    ]


@pytest.mark.parametrize("number", [errno.EBADF, errno.ENOTCONN, errno.EIO])
async def test_other_errors_are_a_known_ending(clock: MockClock, number: int) -> None:
    with pytest.raises(SourceLost, match=os.strerror(number)):
        await SourceOn(ScriptedSocket([number])).run(Inbox())


async def test_beside_udevd_s_events_only_what_cannot_wait_is_told_of(clock: MockClock) -> None:
    stick, disk = "/devices/pci0000:00/usb1/1-2", "/devices/pci0000:00/usb1/1-3/6:0:0:0"
    tty, made = f"{stick}/ttyUSB0", "/devices/virtual/input/input9/event9"
    events = [
        Uevent(action="add", devpath=tty, properties=(("DEVNAME", "ttyUSB0"),)),
        Uevent(action="bind", devpath=stick),
        Uevent(action="add", devpath=made, properties=(("DEVNAME", "input/event9"),)),
        Uevent(action="remove", devpath=made, properties=(("DEVNAME", "input/event9"),)),
        Uevent(action="add", devpath=disk, properties=(("MODALIAS", "scsi:t-0x00"),)),
        Uevent(action="bind", devpath=disk, properties=(("MODALIAS", "scsi:t-0x00"),)),
        Uevent(action="remove", devpath=stick),
    ]
    script = [event.to_bytes(number) for number, event in enumerate(events)]
    async with listening(SourceOn(ScriptedSocket(script), early_only=True)) as inbox:
        await trio.sleep(10)
        assert taken(inbox) == [
            NodeAdded(path=tty, node="/dev/ttyUSB0"),
            NodeAdded(path=made, node="/dev/input/event9"),
            DeviceChanged(path=disk, action="add", awaits_driver=True),
            DeviceChanged(path=stick, action="remove"),
        ]


async def test_udevd_is_behind_until_it_has_told_what_the_kernel_has(clock: MockClock) -> None:
    backlog = Backlog()
    heard = SourceOn(ScriptedSocket([said(1)]), early_only=True, backlog=backlog)
    async with listening(heard) as inbox:
        await trio.sleep(1)
        assert (taken(inbox), list(backlog.paths(0.0))) == ([], [changed(1).path])
    told = SourceOn(
        ScriptedSocket([from_uid(from_udevd(said(1).partition(b"\0")[2]), 0)]),
        group="udev",
        backlog=backlog,
    )
    async with listening(told):
        await trio.sleep(1)
        assert list(backlog.paths(0.0)) == []


async def test_after_an_overrun_nobody_is_behind(clock: MockClock) -> None:
    backlog = Backlog()
    backlog.heard("/devices/a", 1, trio.current_time())
    async with listening(SourceOn(ScriptedSocket([errno.ENOBUFS]), backlog=backlog)):
        await trio.sleep(1)
        assert list(backlog.paths(0.0)) == []


async def test_a_flood_does_not_keep_others_from_their_turn() -> None:
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            turns += 1
            await trio.lowlevel.checkpoint()

    count = 20 * DRAIN_AT_ONCE
    sock = ScriptedSocket(said(number % 7) for number in range(count))
    async with listening(SourceOn(sock)) as inbox, trio.open_nursery() as nursery:
        nursery.start_soon(others)
        await until(lambda: sock.reads >= count)
        nursery.cancel_scope.cancel()
        assert len(taken(inbox)) == 7
    assert turns >= 15, "one between each two batches, more or less"


async def test_a_message_that_was_cut_still_says_where_to_look(clock: MockClock) -> None:
    def cut(data: bytes) -> Any:
        return data, [], socket.MSG_TRUNC, (0, 1)

    whole = Uevent(
        action="bind", devpath="/devices/pci0000:00/1", properties=(("SUBSYSTEM", "usb"),)
    ).to_bytes()
    found, _ = await heard(cut(whole[:-3]), cut(b"bi"))
    assert found == [changed(1, "bind"), Resync(source="uevent", reason="truncated event")]


@pytest.mark.parametrize(
    "data", [b"", b"\0", b"x" * 100, b"add@", b"add@/module/x\0", b"\xff@\xfe"]
)
async def test_nonsense_and_noise_are_passed_by(clock: MockClock, data: bytes) -> None:
    found, _ = await heard(data, said(1))
    assert found == [changed(1)]


async def test_the_kernel_s_group_hears_the_kernel_alone(clock: MockClock) -> None:
    found, _ = await heard((said(1), [], 0, (4711, 1)), from_uid(said(2), 0), said(3))
    assert found == [changed(3)]


async def test_udevd_s_group_hears_root_alone(clock: MockClock) -> None:
    message = from_udevd(said(1))
    found, _ = await heard(from_uid(message, 1000), (message, [], 0, (0, 2)), group="udev")
    assert found == []
    found, _ = await heard(from_uid(message, 0), group="udev")
    assert found == [changed(1)]


ACTIONS = ("add", "remove", "change", "bind", "unbind", "move", "online", "offline")


async def test_all_that_the_kernel_says_is_heard_in_order(network: PrivateNetwork) -> None:
    async with listening(SourceOn(network.listen())) as inbox:
        network.send_raw([said(number, action) for number, action in enumerate(ACTIONS)])
        found: list[Trigger] = []
        with trio.fail_after(5):
            while len(found) < len(ACTIONS):
                await inbox.wait()
                found += taken(inbox)
    assert found == [changed(number, action) for number, action in enumerate(ACTIONS)]


@pytest.mark.parametrize("groups", [0, 1], ids=["to the socket", "to the group"])
async def test_what_another_process_says_is_not_heard(
    network: PrivateNetwork, groups: int
) -> None:
    listener, liar = network.listen(), network.listen(groups=0)
    port, _ = listener.getsockname()
    with liar:
        async with listening(SourceOn(listener)) as inbox:
            liar.sendto(said(666), (0, 1) if groups else (port, 0))
            network.send_raw([said(1)])
            with trio.fail_after(5):
                await inbox.wait()
            await wait_all_tasks_blocked()
            assert taken(inbox) == [changed(1)]


async def test_the_kernel_s_own_overrun_is_heard_and_survived(network: PrivateNetwork) -> None:
    listener = network.listen()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    source = SourceOn(listener)
    network.send_raw([said(1)], repeat=100)
    async with listening(source) as inbox:
        found: set[Trigger] = set()
        for last in (changed(1), changed(2)):
            with trio.fail_after(5):
                while last not in found:
                    await inbox.wait()
                    found.update(taken(inbox))
            network.send_raw([said(2)])
    assert source.overruns == 1
    assert found == {OVERRUN, changed(1), changed(2)}


@pytest.mark.parametrize("group", ["kernel", "udev"])
async def test_this_machine_can_be_listened_to(logs: list[EventDict], group: Any) -> None:
    before = len(os.listdir("/proc/self/fd"))
    async with listening(UeventSource(group, buffer_bytes=1 << 20)):
        pass
    (line,) = logs
    assert line["event"] == "uevent.listening"
    assert line["group"] == group
    assert line["buffer_bytes"] > 0
    assert line["kernel_filter"] is True
    assert len(os.listdir("/proc/self/fd")) == before


class NoMonitor(pyudev.Monitor):
    """A monitor where there is no netlink."""

    @classmethod
    def from_netlink(cls, context: Any, source: str = "udev") -> Any:
        raise OSError(errno.EPROTONOSUPPORT, os.strerror(errno.EPROTONOSUPPORT))


async def test_a_machine_without_netlink_is_a_known_loss(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pyudev, "Monitor", NoMonitor)
    with pytest.raises(SourceLost, match=r"cannot listen to kernel uevents: .*not supported"):
        await UeventSource("kernel").run(Inbox())


async def test_a_machine_without_libudev_is_a_known_loss(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing() -> None:
        raise ImportError("no library named udev")

    monkeypatch.setattr(pyudev, "Context", missing)
    with pytest.raises(SourceLost, match="no library named udev"):
        await UeventSource("kernel").run(Inbox())


class Refusing(socket.socket):
    """A socket that takes no such options."""

    refused: tuple[int, ...] = ()

    def setsockopt(self, level: int, option: int, *value: Any) -> None:
        if option in self.refused:
            raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))
        super().setsockopt(level, option, *value)


def test_a_buffer_is_made_as_large_as_is_allowed() -> None:
    with Refusing(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        plain = sock.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF)
        sock.refused = (SO_RCVBUFFORCE, socket.SO_RCVBUF)
        assert enlarge_buffer(sock, 1 << 16) == plain
        sock.refused = (SO_RCVBUFFORCE,)
        assert enlarge_buffer(sock, 1 << 16) == 2 << 16
        capped = enlarge_buffer(sock, 1 << 30)
        assert 2 << 16 <= capped < 1 << 30, "cut to net.core.rmem_max without a word"
        assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) == capped


@pytest.fixture
def udevd(tmp_path: Path) -> str:
    """A run directory of a machine with udevd."""
    control = tmp_path / "run" / "udev" / "control"
    control.parent.mkdir(parents=True)
    control.touch()
    return f"{tmp_path}/run"


def host(tmp_path: Path, namespace: str) -> str:
    """A procfs whose process 1 is in this network namespace."""
    link = tmp_path / "proc" / "1" / "ns" / "net"
    link.parent.mkdir(parents=True)
    link.symlink_to(namespace)
    return f"{tmp_path}/proc"


def test_where_no_udevd_runs_the_kernel_is_listened_to(tmp_path: Path) -> None:
    assert choose_group(run=str(tmp_path))[0] == "kernel"


def test_in_the_host_s_namespace_udevd_is_listened_to(tmp_path: Path, udevd: str) -> None:
    proc = host(tmp_path, os.readlink("/proc/self/ns/net"))
    assert choose_group(run=udevd, proc=proc) == ("udev", "udevd runs")


def test_in_another_namespace_udevd_cannot_be_heard(tmp_path: Path, udevd: str) -> None:
    group, reason = choose_group(run=udevd, proc=host(tmp_path, "net:[1]"))
    assert group == "kernel"
    assert "network namespace" in reason


def test_who_may_not_look_takes_the_namespace_for_the_host_s(tmp_path: Path, udevd: str) -> None:
    assert choose_group(run=udevd, proc=str(tmp_path))[0] == "udev"
