from dataclasses import replace

import pytest
from hypothesis import given, settings

from liken_events.core.model.claims import Allocated, ClaimReference, Refused
from liken_events.core.model.device import Judgement, Reason
from liken_events.core.model.names import device_name, printable
from liken_events.core.model.prepared import (
    Aliases,
    PreparedDevice,
    Presence,
    Sight,
    holder,
    is_called,
    look_at,
    resolve,
)
from liken_events.core.model.publish import Policy, inventory
from liken_events.core.model.shapes import PARTS
from liken_events.core.model.snapshot import Device, Key, Node, Snapshot, Storage, Use
from tests.core import generated
from tests.fakes.devices import dp_aux, drm, hidraw, i2c, pci, root_hub, scsi_disk, tty, usb
from tests.fakes.held import held, judged, prepared
from tests.fakes.machines import machine
from tests.fakes.snapshots import snapshots

PORT = tty("ttyUSB0", 0)
STICK = usb("1-2:1.0", "10c4:ea60", "ff0000", "cp210x", 7, nodes=[PORT])
RADIO = usb("1-4:1.0", "8087:0aaa", "e00101", "btusb", 3)
CARD, RENDER, BUS, AUX = drm("card0", 0), drm("renderD128", 128), i2c(0), dp_aux(0, "card0-DP-1")
FRAMEBUFFER = Node(path="/dev/fb0", subsystem="graphics", major=29, minor=0, place="graphics/fb0")
GPU = pci(
    "0000:03:00.0",
    "1002:73e3",
    "030000",
    "amdgpu",
    nodes=[CARD, RENDER, BUS, AUX, FRAMEBUFFER],
)
NVME = pci("0000:04:00.0", "144d:a824", "010802", "nvme", nodes=scsi_disk("", 0, 0, 1))

DETACHED = replace(STICK, driver=None, nodes=())
BY_PROGRAM = replace(STICK, driver="usbfs", nodes=())
OTHER = replace(STICK, vendor="0403", product="6010", nodes=(tty("ttyUSB0", 0),))
LOADER = usb("2-3:1.0", "1a6e:089a", "ff0000", "apex", 5, nodes=[hidraw("0003:1A6E:089A.0001", 0)])
LOADED = usb("2-3:1.0", "18d1:9302", "ff0000", "apex", 6, nodes=[hidraw("0003:18D1:9302.0001", 1)])
CORAL = Aliases(groups=(frozenset({"dead:beef"}), frozenset({"1a6e:089a", "18d1:9302"})))

NAME = "usb-1-2-1-0"


def usbfs(device: Device) -> Node:
    assert device.bus_node is not None
    return device.bus_node


def allocated(device: Device, suffix: str = "", *, is_admin: bool = False) -> Allocated:
    name = device_name(device.key, suffix)
    return Allocated(request="r", pool="n1", device=name, is_admin=is_admin)


def refusal(found: PreparedDevice | Refused) -> str:
    assert isinstance(found, Refused), found
    return found.reason


def test_a_name_stands_for_what_is_in_its_slot() -> None:
    nodes = (usbfs(STICK), PORT)
    assert resolve(allocated(STICK), judged(STICK)) == PreparedDevice(
        name=NAME,
        key=Key(bus="usb", address="1-2:1.0"),
        vendor="10c4",
        product="ea60",
        is_shared=False,
        given=nodes,
        nodes=nodes,
    )


def test_a_radio_is_its_usbfs_node() -> None:
    assert held(RADIO).given == (usbfs(RADIO),)


@pytest.mark.parametrize(
    ("suffix", "nodes", "is_shared"),
    [
        ("", (RENDER,), True),
        ("-display", (CARD,), False),
        ("-i2c-dev", (BUS,), False),
        ("-drm-dp-aux-dev", (AUX,), False),
    ],
)
def test_each_part_of_a_gpu_is_found_by_its_suffix(
    suffix: str, nodes: tuple[Node, ...], is_shared: bool
) -> None:
    found = held(GPU, suffix)
    assert (found.name, found.key) == (f"pci-0000-03-00-0{suffix}", GPU.key)
    assert (found.given, found.nodes, found.is_shared) == (nodes, nodes, is_shared)


def test_an_administrator_has_it_beside_others() -> None:
    for device in (STICK, GPU):
        found = resolve(allocated(device, is_admin=True), judged(device))
        assert isinstance(found, PreparedDevice)
        assert found.is_shared


def test_what_is_not_there_is_refused() -> None:
    assert refusal(resolve(allocated(STICK), None)) == f"{NAME} is not on this machine now"
    assert (
        refusal(resolve(allocated(STICK), None, held(STICK)))
        == f"{NAME} is not on this machine now"
    )


def test_a_part_that_the_device_does_not_have_is_refused() -> None:
    headless = judged(replace(GPU, nodes=(RENDER,)))
    reason = "pci-0000-03-00-0-display is no part of its device now"
    assert refusal(resolve(allocated(GPU, "-display"), headless)) == reason
    assert refusal(resolve(allocated(GPU, "-display"), headless, held(GPU, "-display"))) == reason


def withheld_by(reason: Reason) -> Judgement:
    """A device that is withheld for one reason, as the agent found it."""
    policy, uses, unknown = Policy(), [Use(what="/", fstype="ext4", source="/dev/sda1")], None
    found = [STICK]
    match reason:
        case Reason.NO_DRIVER:
            found = [DETACHED]
        case Reason.BUS_STRUCTURE:
            found = [root_hub(1, 2)]
        case Reason.NO_NODES:
            found = [BY_PROGRAM]
        case Reason.IN_USE:
            found = [NVME]
        case Reason.STORAGE_UNKNOWN:
            found, unknown = [NVME], "the mounts could not be read"
        case Reason.IGNORED:
            policy = Policy(ignore=("10c4:*",))
        case Reason.SAME_NAME:
            twin = replace(STICK, key=Key(bus="usb", address="1-2-1.0"))
            found = [twin, replace(STICK, nodes=(hidraw("x", 9),))]
        case Reason.OVER_LIMIT:
            policy = Policy(limit=0)
    built = machine(found, uses)
    storage = replace(built.storage, unknown=unknown)
    return inventory(replace(built, storage=storage), policy).judgements[-1]


@pytest.mark.parametrize("reason", Reason)
def test_what_is_withheld_is_refused_with_the_reason(reason: Reason) -> None:
    judgement = withheld_by(reason)
    withheld = judgement.withheld
    assert withheld is not None
    assert withheld.reason is reason
    name = device_name(judgement.device.key)
    said = refusal(resolve(allocated(judgement.device), judgement))
    assert said == f"{name} is withheld: {reason}: {withheld.detail}"
    assert said == printable(said)


def test_a_claim_is_not_handed_another_model() -> None:
    said = f"{NAME} is another model now: 0403:6010 instead of 10c4:ea60"
    assert refusal(resolve(allocated(STICK), judged(OTHER), held(STICK))) == said
    fresh = resolve(allocated(STICK), judged(OTHER))
    assert isinstance(fresh, PreparedDevice), "a new claim has no model yet"
    assert fresh.model == "0403:6010"


def test_a_device_that_loaded_its_firmware_is_the_same_where_a_rule_says_so() -> None:
    mine = held(LOADER)
    assert isinstance(resolve(allocated(LOADER), judged(LOADED), mine), Refused)
    found = resolve(allocated(LOADER), judged(LOADED), mine, CORAL)
    assert found == held(LOADED)
    assert look_at(mine, judged(LOADED), CORAL).presence is Presence.THERE
    assert look_at(held(LOADED), judged(LOADER), CORAL).presence is Presence.THERE


@pytest.mark.parametrize("device", [DETACHED, BY_PROGRAM])
def test_a_claim_that_detached_its_driver_is_prepared_again_with_the_usbfs_node(
    device: Device,
) -> None:
    mine = held(STICK)
    found = resolve(allocated(STICK), judged(device), mine)
    assert found == replace(mine, given=(usbfs(STICK),), nodes=(usbfs(STICK),))
    assert isinstance(resolve(allocated(STICK), judged(device)), Refused), "nobody else is"


@pytest.mark.parametrize("is_shared", [True, False])
def test_a_detached_device_stays_as_shared_as_it_was(is_shared: bool) -> None:
    mine = replace(held(STICK), is_shared=is_shared)
    again = resolve(allocated(STICK), judged(DETACHED), mine)
    assert isinstance(again, PreparedDevice)
    assert again.is_shared is is_shared
    admin = resolve(allocated(STICK, is_admin=True), judged(DETACHED), mine)
    assert isinstance(admin, PreparedDevice)
    assert admin.is_shared


def test_a_claim_is_prepared_again_with_the_numbers_of_now() -> None:
    moved = usb("1-2:1.0", "10c4:ea60", "ff0000", "cp210x", 9, nodes=[tty("ttyUSB4", 4)])
    assert resolve(allocated(STICK), judged(moved), held(STICK)) == held(moved)


LONG = Key(bus="usb", address="1-" + ".".join(["12"] * 30) + ":1.0")
"""A slot of which the name has a hash."""


@pytest.mark.parametrize("key", [STICK.key, GPU.key, LONG, Key(bus="pci", address="a!b")])
def test_a_slot_is_called_by_its_name_with_any_suffix_of_a_part(key: Key) -> None:
    for suffix in PARTS:
        name = device_name(key, suffix)
        assert is_called(key, name)
        assert not is_called(key, name + "x")
        assert not is_called(Key(bus=key.bus, address=key.address + "9"), name)
    assert not is_called(key, device_name(key) + "-sound")
    assert not is_called(key, "")


def test_a_hash_in_a_name_changes_nothing() -> None:
    odd = replace(GPU, key=LONG)
    for suffix in PARTS:
        mine = held(odd, suffix)
        assert mine.name == device_name(LONG, suffix)
        assert look_at(mine, judged(odd)).nodes == mine.nodes


def test_a_device_has_one_holder() -> None:
    mine, radio = held(STICK), held(RADIO)
    first, second = prepared(radio, uid="first"), prepared(radio, mine, uid="second")
    assert holder(mine, [first, second]) is second
    assert holder(mine, [first]) is None
    assert holder(mine, []) is None


def test_what_is_shared_has_none() -> None:
    mine = held(STICK)
    for_all = replace(mine, is_shared=True)
    assert holder(for_all, [prepared(mine)]) is None, "an administrator looks on"
    assert holder(mine, [prepared(for_all)]) is None, "an administrator is in nobody's way"
    assert holder(held(GPU), [prepared(held(GPU))]) is None, "a render node is shared"
    both = [prepared(for_all, uid="admin"), prepared(mine, uid="owner")]
    found = holder(mine, both)
    assert found is not None
    assert found.reference == ClaimReference(namespace="default", name="c", uid="owner")


def test_parts_of_one_gpu_have_holders_of_their_own() -> None:
    assert holder(held(GPU, "-display"), [prepared(held(GPU, "-i2c-dev"))]) is None
    display = held(GPU, "-display")
    assert holder(display, [prepared(held(GPU, "-i2c-dev"), display)]) is not None


FEW = settings(max_examples=20)
machines = generated.machines() | snapshots()


@FEW
@given(machines)
def test_whatever_is_published_can_be_prepared_and_is_there_then(found: Snapshot) -> None:
    for judgement in inventory(found).judgements:
        for published in judgement.published:
            item = Allocated(request="r", pool="n1", device=published.name)
            mine = resolve(item, judgement)
            assert isinstance(mine, PreparedDevice)
            assert (mine.key, mine.nodes) == (published.key, published.nodes)
            assert is_called(mine.key, mine.name)
            assert look_at(mine, judgement) == Sight(
                presence=Presence.THERE, nodes=published.nodes, found=mine.model
            )
            assert resolve(item, judgement, mine) == mine
            assert look_at(mine, None) == Sight(presence=Presence.AWAY)


@FEW
@given(machines, generated.devices())
def test_whatever_comes_into_its_slot_a_held_device_delivers_no_other_models_node(
    found: Snapshot, stranger: Device
) -> None:
    for judgement in inventory(replace(found, storage=Storage())).judgements:
        for published in judgement.published:
            item = Allocated(request="r", pool="n1", device=published.name)
            mine = resolve(item, judgement)
            assert isinstance(mine, PreparedDevice)
            for model in ((mine.vendor, mine.product), (stranger.vendor, stranger.product)):
                now = replace(stranger, key=mine.key, vendor=model[0], product=model[1])
                seen = look_at(mine, judged(now))
                assert set(seen.nodes) <= {*now.nodes, now.bus_node}
                assert bool(seen.nodes) is seen.is_usable
                assert not seen.is_usable or seen.found == mine.model
                if now.driver is None:
                    assert set(seen.nodes) <= {now.bus_node}
