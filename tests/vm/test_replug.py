"""A claimed device that is pulled and plugged in again and again, beside others that also are.

The kernel gives the lowest free number to whatever comes next, so `/dev/ttyUSB0` goes from one
adapter to the other all the time. Whose it was at which moment is told by the kernel's uevents,
and every version of the spec is held against that.
"""

import os
import random
import re
import time
from collections.abc import Iterator

import pytest

from tests.vm.attributes import FTDI, KEYBOARD, TABLET, usb
from tests.vm.claims import Claims
from tests.vm.desk import Desk
from tests.vm.hardware import Hardware

NAME, ADDRESS = "usb-1-1-1-0", "1-1:1.0"
ROUNDS = int(os.environ.get("VM_REPLUGS", "100"))
LONGEST_PAUSE = 3.0

CATCHES_UP = 4
"""One round in so many waits until the spec is right again. In the others the device may be away
before the kernel is through with it, or before it has settled: then no version tells of it."""

LATE_SECONDS = 0.5
"""A version may be written this long after the kernel told that a node is another device's now: an
emulated processor takes its time. udevd tells of it up to half a second later than that."""

RESTLESS = "usb-1-2-1-0"
BYSTANDERS = {
    RESTLESS: usb("1-2:1.0", FTDI, serial="B1"),
    "usb-1-3-1-0": usb("1-3:1.0", FTDI, serial="B2"),
    "usb-1-4-1-0": usb("1-4:1.0", KEYBOARD, serial="B3"),
    "usb-1-5-1-0": usb("1-5:1.0", TABLET, serial="B4"),
}


@pytest.mark.timeout(60 + 20 * ROUNDS)
def test_a_spec_names_no_other_devices_node_however_often_its_own_comes_and_goes(
    desk: Desk, hardware: Hardware, claims: Claims
) -> None:
    seed = int(os.environ.get("VM_SEED", str(random.randrange(1 << 32))))
    print(f"VM_SEED={seed}")  # noqa: T201  # shown if the test fails
    chance = random.Random(seed)
    mine = hardware.usb_serial("1", "MINE")
    desk.until_offered(NAME)
    restless = hardware.usb_serial("2", "B1")
    hardware.usb_serial("3", "B2")
    hardware.usb("usb-kbd", "4", serial="B3")
    hardware.usb("usb-tablet", "5", serial="B4")
    desk.until_offered(*BYSTANDERS)
    uid = claims.claim(NAME)
    for number in range(ROUNDS):  # the pauses are the case, not waits for something
        hardware.pull(mine)
        time.sleep(chance.uniform(0, LONGEST_PAUSE))
        if chance.random() < 0.5:
            hardware.pull(restless)
            time.sleep(chance.uniform(0, LONGEST_PAUSE / 10))
            restless = hardware.usb_serial("2", "B1")
            time.sleep(chance.uniform(0, LONGEST_PAUSE / 10))
        before = desk.control.records[-1]["time"]
        mine = hardware.usb_serial("1", "MINE")
        if number % CATCHES_UP == 0:
            until_caught_up(desk, claims, uid, before)
        time.sleep(chance.uniform(0, LONGEST_PAUSE))

    desk.until_offered(NAME, *BYSTANDERS)
    claims.until(uid, NAME, claims.now(ADDRESS))
    expected = BYSTANDERS | {NAME: usb(ADDRESS, FTDI, serial="MINE")}
    for state in desk.states(*expected):
        assert state.items() <= expected.items()
    assert_own_nodes(desk, claims, uid)
    assert desk.fresh() == desk.offered.keys()
    assert desk.log_above_info() == []


def until_caught_up(desk: Desk, claims: Claims, uid: str, before: float) -> None:
    """Waits until the spec has both nodes that came after a moment. What it has to say is told by
    the kernel's uevents: a look at the guest would find the device half there."""

    def is_right() -> bool:
        own = sorted(
            (path, "c", *numbers)
            for path, numbers, address, since, until in ownership(desk)
            if address == "1-1" and since > before and until == float("inf")
        )
        return len(own) == 2 and claims.versions(uid, NAME)[-1] == tuple(own)

    desk.until(is_right, f"the spec of {NAME} to have the nodes of now")


def assert_own_nodes(desk: Desk, claims: Claims, uid: str) -> None:
    """A node's numbers were the claimed device's at some time; and no version was in force that
    named a node while that was another device's, but for the time that it takes to notice."""
    held = list(ownership(desk))
    own = {(path, *numbers) for path, numbers, address, *_ in held if address == "1-1"}
    timed = claims.timed(uid, NAME)
    assert len(timed) > ROUNDS // CATCHES_UP
    ends = [moment for moment, _ in timed[1:]] + [float("inf")]
    for (start, version), end in zip(timed, ends, strict=True):
        for path, *kind_and_numbers in version:
            if kind_and_numbers:
                assert (path, *kind_and_numbers[1:]) in own, (path, kind_and_numbers)
            for its, _, address, since, until in held:
                if its == path and address != "1-1":
                    overlap = min(end, until) - max(start, since + LATE_SECONDS)
                    assert overlap <= 0, f"{path} is {address}'s, and in the spec for {overlap} s"


def ownership(desk: Desk) -> Iterator[tuple[str, tuple[int, int], str, float, float]]:
    """Which USB device had which node when: path, major and minor, the device's address; from when
    the kernel told of it, until it told that it went."""
    uevents = [
        (item["group"], item["time"], item["properties"]) for item in desk.records("uevent")
    ]
    nodes: dict[str, tuple[tuple[int, int], str, float]] = {}
    for group, moment, fields in uevents:
        if group != "kernel" or "DEVNAME" not in fields:
            continue
        path = f"/dev/{fields['DEVNAME']}"
        address = re.search(r"/usb\d+/([^/]+)", fields["DEVPATH"])
        if fields["ACTION"] == "add" and address:
            numbers = (int(fields["MAJOR"]), int(fields["MINOR"]))
            nodes[path] = (numbers, address[1], moment)
        elif fields["ACTION"] == "remove" and path in nodes:
            yield (path, *nodes.pop(path), moment)
    for path, rest in nodes.items():
        yield (path, *rest, float("inf"))
