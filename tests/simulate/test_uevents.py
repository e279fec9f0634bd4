"""Uevents as bytes, and sent for real: in a private network namespace, received by libudev.

What the agent makes of such bytes is tested in `tests/core/decode/test_uevent.py`.
"""

import json
import subprocess
import sys
import textwrap

import pytest

from liken_events.core.decode.uevent import decode
from liken_events.core.events import DeviceChanged
from liken_events.simulate.namespace import NoNamespace, inside
from liken_events.simulate.recordings import desk
from liken_events.simulate.uevents import InProcessFeed, Uevent
from tests.fakes import uevent_listener
from tests.fakes.agents import Build

STICK = Uevent(
    action="add",
    devpath="/devices/pci0000:00/usb1/1-2",
    properties=(("SUBSYSTEM", "usb"), ("DEVNAME", "bus/usb/001/004")),
)


def run_inside(code: str) -> str:
    """What Python code prints that runs in a private network namespace."""
    prelude = """
        import errno, socket
        from liken_events.simulate.uevents import Uevent, UeventSender, can_send
        def listen():
            made = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 15)
            made.bind((0, 1))
            made.settimeout(0)
            return made
    """
    program = textwrap.dedent(prelude) + textwrap.dedent(code)
    try:
        line = inside([sys.executable, "-c", program])
    except NoNamespace as error:
        pytest.skip(str(error))
    return subprocess.run(
        line, check=True, capture_output=True, text=True, timeout=30
    ).stdout.strip()


def test_a_message_is_written_as_the_kernel_writes_it() -> None:
    assert STICK.to_bytes() == (
        b"add@/devices/pci0000:00/usb1/1-2\0ACTION=add\0DEVPATH=/devices/pci0000:00/usb1/1-2\0"
        b"SUBSYSTEM=usb\0DEVNAME=bus/usb/001/004\0"
    )


def test_the_sequence_number_comes_last() -> None:
    assert STICK.to_bytes(7).endswith(b"DEVNAME=bus/usb/001/004\0SEQNUM=7\0")


def test_in_process_the_bytes_carry_the_numbers_that_the_kernel_would_add() -> None:
    taken: list[bytes] = []
    feed = InProcessFeed(taken.append)

    feed.send([STICK, STICK])
    feed.send([STICK])

    assert taken == [STICK.to_bytes(1), STICK.to_bytes(2), STICK.to_bytes(3)]


def test_in_process_bytes_are_understood_by_the_agent() -> None:
    taken: list[bytes] = []

    InProcessFeed(taken.append).send([STICK])

    assert decode(taken[0]) == DeviceChanged(
        path=STICK.devpath, action="add", subsystem="usb", node="/dev/bus/usb/001/004"
    )


def test_libudev_receives_every_property_of_every_event(build: Build) -> None:
    tree = build(desk())
    uevents = [
        *tree.renumber("1-3", 40),
        *tree.unplug("2-2"),
        *tree.unplug(desk().devices[1].key),
    ]
    try:
        line = uevent_listener.command()
    except NoNamespace as error:
        pytest.skip(str(error))

    done = subprocess.run(
        line,
        input=uevent_listener.to_json(uevents),
        check=True,
        capture_output=True,
        text=True,
        timeout=30,
    )

    received = json.loads(done.stdout)
    numbers = [int(properties.pop("SEQNUM")) for properties in received]
    assert received == [as_libudev_shows(uevent) for uevent in uevents]
    assert numbers == sorted(set(numbers))


def as_libudev_shows(uevent: Uevent) -> dict[str, str]:
    """The properties of an event; libudev puts the device directory before the node's name."""
    properties = dict(uevent.properties)
    if "DEVNAME" in properties:
        properties["DEVNAME"] = f"/dev/{properties['DEVNAME']}"
    return {"ACTION": uevent.action, "DEVPATH": uevent.devpath, **properties}


def test_a_flood_arrives_complete_and_in_order() -> None:
    said = run_inside("""
        listener = listen()
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 18)
        with UeventSender() as sender:
            sent = sender.send_many(
                Uevent(action="change", devpath=f"/devices/{n}").to_bytes() for n in range(100)
            )
        heads = [listener.recv(4096).partition(bytes(1))[0] for _ in range(100)]
        print(sent, heads == [f"change@/devices/{n}".encode() for n in range(100)])
    """)

    assert said == "100 True"


def test_a_flood_overruns_a_listener_that_does_not_read() -> None:
    said = run_inside("""
        listener = listen()
        payload = Uevent(action="change", devpath="/devices/x").to_bytes()
        with UeventSender() as sender:
            sender.send_many(payload for _ in range(20_000))
        try:
            listener.recv(4096)
        except OSError as error:
            print(errno.errorcode[error.errno])
    """)

    assert said == "ENOBUFS"


def test_a_message_that_is_too_long_is_refused_by_name() -> None:
    said = run_inside("""
        with UeventSender() as sender:
            try:
                sender.send([Uevent(action="add", devpath="/devices/" + "x" * 2048)])
            except OSError as error:
                print(errno.errorcode[error.errno])
    """)

    assert said == "EINVAL"


def test_one_refused_message_of_a_flood_is_told_and_keeps_back_no_other() -> None:
    said = run_inside("""
        listener = listen()
        good = Uevent(action="change", devpath="/devices/x").to_bytes()
        with UeventSender() as sender:
            try:
                sender.send_many([good, bytes(3000), good])
            except OSError as error:
                print(errno.errorcode[error.errno])
            sender.send([Uevent(action="add", devpath="/devices/after")])
        print(len([listener.recv(4096) for _ in range(3)]))
    """)

    assert said.split() == ["EINVAL", "3"]


def test_asking_whether_events_can_be_sent_sends_none() -> None:
    said = run_inside("""
        listener = listen()
        print(can_send())
        try:
            print(listener.recv(4096))
        except BlockingIOError:
            print("silence")
    """)

    assert said.split() == ["True", "silence"]


def test_nothing_can_be_sent_where_somebody_else_owns_the_network_namespace() -> None:
    said = run_inside("""
        import subprocess, sys
        code = "from liken_events.simulate.uevents import can_send; print(can_send())"
        line = ["unshare", "--user", "--map-root-user", sys.executable, "-c", code]
        print(subprocess.run(line, capture_output=True, text=True, timeout=20).stdout)
    """)

    assert said == "False"
