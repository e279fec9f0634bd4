"""Claims on a real kernel: their specs follow the hardware and never name a bystander's node."""

import re

from tests.vm.attributes import FTDI, usb
from tests.vm.claims import Claims
from tests.vm.desk import Desk
from tests.vm.hardware import Hardware

NAME, ADDRESS = "usb-1-1-1-0", "1-1:1.0"
OTHER, OTHER_ADDRESS = "usb-1-2-1-0", "1-2:1.0"
HERE = {NAME: usb(ADDRESS, FTDI, serial="MINE")}


def test_a_spec_follows_a_device_that_comes_back_while_another_has_its_node(
    desk: Desk, hardware: Hardware, claims: Claims
) -> None:
    mine = hardware.usb_serial("1", "MINE")
    desk.until_offered(NAME)
    first = claims.now(ADDRESS)
    uid = claims.claim(NAME)
    claims.until(uid, NAME, first)
    hardware.pull(mine)
    away = tuple((path,) for path, *_ in first)
    claims.until(uid, NAME, away)
    other = hardware.usb_serial("2", "OTHER")
    desk.until_offered(OTHER)
    taken = claims.now(OTHER_ADDRESS)
    assert taken[1] == first[1], "the other one was to get the node"
    telling = f"/dev/liken.sh/{NAME}-is-away-and-ttyUSB0-belongs-to-"
    claims.until(uid, NAME, (away[0], (f"{telling}{OTHER}",)))
    hardware.usb_serial("1", "MINE")
    desk.until_offered(NAME)
    second = claims.now(ADDRESS)
    claims.until(uid, NAME, second)
    hardware.pull(other)
    desk.until_gone(OTHER)

    versions = claims.versions(uid, NAME)
    assert versions[0] == first
    assert versions[-1] == second
    for version in versions[versions.index(away) :]:
        assert taken[1] not in version, "a node was named that belongs to the other one"
    # Who has the node is known when the kernel names it; which device that is, when it settled.
    told = {(f"{telling}{owner}",) for owner in (OTHER, "ttyUSB0")}
    allowed = {*first, *away, *told, *second}
    assert {node for version in versions for node in version} <= allowed
    both = HERE | {OTHER: usb(OTHER_ADDRESS, FTDI, serial="OTHER")}
    only_other = {OTHER: both[OTHER]}
    assert desk.states(NAME, OTHER) == [{}, HERE, {}, only_other, both, HERE]


def test_a_claim_of_a_neighbour_is_left_alone(
    desk: Desk, hardware: Hardware, claims: Claims
) -> None:
    mine = hardware.usb_serial("1", "MINE")
    hardware.usb_serial("2", "OTHER")
    desk.until_offered(NAME, OTHER)
    uid = claims.claim(OTHER)
    hardware.pull(mine)
    desk.until_gone(NAME)
    hardware.usb_serial("1", "MINE")
    desk.until_offered(NAME)
    assert claims.versions(uid, OTHER) == [claims.now(OTHER_ADDRESS)]
    desk.states(NAME, OTHER)


def test_what_a_program_detached_is_given_back_when_its_claim_ends(
    desk: Desk, hardware: Hardware, claims: Claims
) -> None:
    hardware.usb_serial("1", "MINE")
    desk.until_offered(NAME)
    whole = claims.now(ADDRESS)
    uid = claims.claim(NAME)
    bus, number = re.findall(r"\d+", whole[0][0])
    desk.control.run(desk.machine.python, "-m", "tests.vm.inside.detach", bus, number, "0")
    claims.until(uid, NAME, whole[:1])
    desk.until_gone(NAME)
    claims.release(uid)
    desk.until_offered(NAME)
    assert desk.logged("claim.gave_back", device=NAME)
    assert desk.logged("claim.give_back_failed") == []
    assert claims.versions(uid, NAME) == [whole, whole[:1]]
    assert claims.now(ADDRESS) == whole
    assert desk.states(NAME) == [{}, HERE, {}, HERE]
    assert desk.why(NAME) == ["no-driver: no kernel driver is bound to it"]
