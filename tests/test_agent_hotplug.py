"""The whole agent, on a made-up machine, with real uevents: what plugging and pulling leads to."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
import trio

from liken_events.core.model.delivery import bus_node
from liken_events.core.model.snapshot import Device, Key, Snapshot
from liken_events.simulate.tree import MachineTree
from liken_events.simulate.uevents import Uevent
from tests.fakes.agents import QUICK, STICK, STICK_NAME, Agent, Build, Launch
from tests.fakes.devices import dp_aux, drm, event, hidraw, i2c, pci, tty, usb
from tests.fakes.machines import desktop, homelab, machine

MARKER = usb("1-8:1.0", "10c4:ea60", "ff0000", "cp210x", 11, nodes=[tty("ttyUSB8", 8)])
MARKER_NAME = "usb-1-8-1-0"

MOVED: Any = {"bus_node": bus_node("1", "77"), "nodes": (tty("ttyUSB5", 5),)}
"""A stick as it comes back after other sticks were plugged in."""

GPU = pci(
    "0000:00:02.0",
    "8086:3e92",
    "030000",
    "i915",
    nodes=[drm("card0", 0), drm("renderD128", 128), i2c(4), i2c(5), dp_aux(0, "card0-DP-1")],
)
GPU_NAMES = {
    f"pci-0000-00-02-0{suffix}" for suffix in ("", "-display", "-i2c-dev", "-drm-dp-aux-dev")
}
GAP = 0.12
"""Seconds between two nodes of a slow probe: more than the quiet time of `QUICK`."""


async def settled(agent: Agent) -> None:
    """Waits until the agent has looked at everything that was said before.

    A marker that is plugged in last appears last, because all devices settle in the same time.
    """
    agent.say(agent.tree.plug(MARKER))
    await agent.until_offered(present=[MARKER_NAME])


def key(address: str) -> Key:
    return Key(bus="usb", address=address)


def of(snapshot: Snapshot, prefix: str) -> list[Device]:
    return [device for device in snapshot.devices if device.key.address.startswith(prefix)]


async def test_a_stick_appears_once_with_all_its_nodes(build: Build, launch: Launch) -> None:
    agent = launch(build(homelab()), *QUICK)
    before = await agent.until_sliced()
    agent.say(agent.tree.plug(STICK))
    await agent.until_offered(present=[STICK_NAME])
    await agent.until_nodes(STICK_NAME, ["/dev/bus/usb/001/012", "/dev/ttyUSB9"])
    assert agent.offered[STICK_NAME]["serial"] == "Z1"
    assert agent.generation == before + 1
    await agent.until_true()


async def test_a_removal_waits_for_nothing(build: Build, launch: Launch) -> None:
    agent = launch(build(homelab()), "--settle-quiet=60", "--settle-ceiling=60")
    await agent.until_ready()
    agent.say(agent.tree.unplug("1-1"))
    await agent.until_offered(absent=["usb-1-1-1-0"], seconds=5)
    cause = "remove 1-1:1.0"
    await agent.until(lambda: agent.logged("device.removed", device="usb-1-1-1-0", cause=cause))


async def test_all_that_hangs_on_a_hub_leaves_in_one_change(build: Build, launch: Launch) -> None:
    agent = launch(build(desktop()), *QUICK)
    before = await agent.until_sliced()
    children = {name for name in agent.offered if name.startswith("usb-1-1-")}
    assert len(children) > 1
    agent.say(agent.tree.unplug("1-1"))
    await agent.until_offered(absent=children)
    await agent.until_true()
    assert agent.generation == before + 1


async def test_a_stick_that_returns_under_another_number_gets_its_new_nodes(
    build: Build, launch: Launch
) -> None:
    agent = launch(build(homelab()), *QUICK)
    before = await agent.until_sliced()
    agent.say(agent.tree.unplug("1-1"))
    await agent.until_offered(absent=["usb-1-1-1-0"])
    agent.say(agent.tree.plug(replace(of(homelab(), "1-1:")[0], **MOVED)))
    await agent.until_offered(present=["usb-1-1-1-0"])
    await agent.until_nodes("usb-1-1-1-0", ["/dev/bus/usb/001/077", "/dev/ttyUSB5"])
    assert agent.generation == before + 2


async def test_a_return_that_is_seen_too_late_is_noticed_by_the_number_alone(
    build: Build, launch: Launch
) -> None:
    agent = launch(build(homelab()), *QUICK)
    before = await agent.until_sliced()
    agent.say(agent.tree.renumber("1-1", 78))  # heard when the device is there again already
    await agent.until_nodes("usb-1-1-1-0", ["/dev/bus/usb/001/078", "/dev/ttyUSB0"])
    await settled(agent)
    assert agent.generation == before + 1, "the slice names the slot, which is the same"


async def test_a_late_removal_does_not_take_away_what_is_there_now(
    build: Build, launch: Launch
) -> None:
    agent = launch(build(homelab()), *QUICK)
    before = await agent.until_sliced()
    stick = of(homelab(), "1-1:")
    gone = agent.tree.unplug("1-1")
    come = agent.tree.plug(*stick)
    agent.say([*come, *gone])
    await settled(agent)
    assert all("usb-1-1-1-0" in shape for shape in agent.shapes)
    assert agent.generation == before + 1


async def test_a_device_that_is_gone_without_a_removal_is_found_by_its_unbind(
    build: Build, launch: Launch
) -> None:
    agent = launch(build(homelab()), *QUICK)
    await agent.until_ready()
    said = agent.tree.unplug("1-4")
    agent.say(event for event in said if event.action == "unbind")
    await agent.until_offered(absent=["usb-1-4-1-0", "usb-1-4-1-1"])


async def test_events_about_a_device_that_is_not_there_change_nothing(
    build: Build, launch: Launch
) -> None:
    agent = launch(build(homelab()), *QUICK, "--settle-probing-usb=0.1")
    before = await agent.until_sliced()
    come = agent.tree.plug(STICK)
    gone = agent.tree.unplug("1-9")
    agent.say([*come, *gone, *gone])
    await settled(agent)
    assert all(STICK_NAME not in shape for shape in agent.shapes)
    assert agent.generation == before + 1
    assert not agent.logged_above_info()


async def test_a_driver_that_leaves_and_returns_at_once_writes_nothing(
    build: Build, launch: Launch
) -> None:
    agent = launch(build(homelab()), *QUICK)
    before = await agent.until_sliced()
    tree, stick = agent.tree, of(homelab(), "1-1:")[0]
    said: list[Uevent] = []
    for _ in range(3):
        said += tree.unbind(stick.key) + tree.bind(stick.key, "cp210x", stick.nodes)
    agent.say(said)
    await settled(agent)
    assert all("usb-1-1-1-0" in shape for shape in agent.shapes)
    assert agent.generation == before + 1


async def test_another_driver_is_one_change(build: Build, launch: Launch) -> None:
    agent = launch(build(homelab()), *QUICK)
    before = await agent.until_sliced()
    tree, stick = agent.tree, of(homelab(), "1-1:")[0]
    agent.say(tree.unbind(stick.key) + tree.bind(stick.key, "usbserial", stick.nodes))
    await agent.until(lambda: agent.offered["usb-1-1-1-0"]["driver"] == "usbserial")
    assert agent.generation == before + 1


async def test_a_device_is_offered_only_while_it_has_a_driver(
    build: Build, launch: Launch
) -> None:
    agent = launch(build(homelab()), *QUICK)
    await agent.until_ready()
    tree, stick = agent.tree, of(homelab(), "1-1:")[0]
    agent.say(tree.unbind(stick.key))
    await agent.until_offered(absent=["usb-1-1-1-0"])
    agent.say(tree.bind(stick.key, "cp210x", stick.nodes))
    await agent.until_offered(present=["usb-1-1-1-0"])
    await agent.until_nodes("usb-1-1-1-0", ["/dev/bus/usb/001/002", "/dev/ttyUSB0"])


@pytest.mark.parametrize("order", [1, -1], ids=["card first", "card last"])
@pytest.mark.parametrize("reads", ["600", "0.1"], ids=["left alone", "with full looks"])
async def test_a_gpu_is_offered_whole_however_slowly_its_driver_probes(
    build: Build, launch: Launch, order: int, reads: str
) -> None:
    agent = launch(build(homelab()), *QUICK, f"--safety-interval={reads}")
    before = await agent.until_sliced()
    *added, bound = agent.tree.plug(replace(GPU, nodes=()))
    assert bound.action == "bind"
    agent.say(added)
    for node in GPU.nodes[::order]:
        await trio.sleep(GAP)  # the driver takes its time: this is the case, not a wait
        agent.say(agent.tree.add_nodes(GPU.key, [node]))
    assert agent.generation == before
    agent.say([bound])
    await agent.until_offered(present=GPU_NAMES)
    assert_gpu_was_always_whole(agent)
    assert agent.generation == before + 1


async def test_a_gpu_that_leaves_while_it_is_probed_was_never_there(
    build: Build, launch: Launch
) -> None:
    agent = launch(build(homelab()), *QUICK)
    before = await agent.until_sliced()
    *added, _ = agent.tree.plug(replace(GPU, nodes=()))
    agent.say(added)
    agent.say(agent.tree.add_nodes(GPU.key, GPU.nodes[:1]))
    await trio.sleep(GAP)
    agent.say(agent.tree.unplug(GPU.key))
    await settled(agent)
    assert all(not GPU_NAMES & shape.keys() for shape in agent.shapes)
    assert agent.generation == before + 1


async def test_a_probe_that_never_ends_is_waited_for_no_longer_than_configured(
    build: Build, launch: Launch
) -> None:
    agent = launch(build(homelab()), *QUICK, "--settle-probing-pci=0.2")
    await agent.until_ready()
    *added, _ = agent.tree.plug(GPU)
    agent.say(added)
    await agent.until_offered(present=GPU_NAMES)
    assert_gpu_was_always_whole(agent)


async def test_a_gpu_that_is_bound_anew_is_offered_whole(build: Build, launch: Launch) -> None:
    agent = launch(build(machine([*homelab().devices, GPU])), *QUICK)
    before = await agent.until_sliced()
    agent.say(agent.tree.unbind(GPU.key))
    await agent.until_offered(absent=GPU_NAMES)
    agent.say(agent.tree.bind(GPU.key, "i915", GPU.nodes))
    await agent.until_offered(present=GPU_NAMES)
    assert_gpu_was_always_whole(agent)
    assert agent.generation == before + 2


def assert_gpu_was_always_whole(agent: Agent) -> None:
    for shape in agent.shapes:
        found = GPU_NAMES & shape.keys()
        assert found in (set(), GPU_NAMES), shape
        if found:
            assert shape["pci-0000-00-02-0"]["renderNode"] is True
            assert shape["pci-0000-00-02-0-display"]["displayNode"] is True
    assert agent.nodes("pci-0000-00-02-0") in ([], [["/dev/dri/renderD128"]])


KEYBOARD = usb("1-2:1.0", "0627:0001", "030101", None, 2, serial="42")
HID = "0003:0627:0001.0001"
KEYBOARD_NODES = [event(f"{HID}/input", 5, 4), hidraw(HID, 0)]


async def test_a_keyboard_whose_modules_load_first_is_one_change(
    build: Build, launch: Launch
) -> None:
    """The order and the pauses of a real one; its nodes come 190 ms after its driver's link."""
    agent = launch(build(machine([GPU])))
    before = await agent.until_sliced()
    for pause, said in keyboard_burst(agent.tree):
        await trio.sleep(pause)
        agent.say(said)
    await agent.until_offered(present=["usb-1-2-1-0"])
    await agent.until_nodes(
        "usb-1-2-1-0", ["/dev/bus/usb/001/002", "/dev/hidraw0", "/dev/input/event4"]
    )
    assert agent.generation == before + 1


def keyboard_burst(tree: MachineTree) -> Sequence[tuple[float, list[Uevent]]]:
    """Pauses in seconds and what the kernel said after each, from a recording."""
    device, interface = tree.plug(KEYBOARD), KEYBOARD.key
    add, change, add_interface, bind_device = device
    *_, bind = tree.bind(interface, "usbhid")
    nodes = tree.add_nodes(interface, KEYBOARD_NODES)
    hid = next(said for said in nodes if said.devpath.endswith(HID))
    last = [said for said in nodes if said.action == "bind"]
    children = [said for said in nodes if said is not hid and said not in last]
    return [
        (0.0, [add]),
        (0.027, [change]),
        (0.003, [add_interface]),
        (0.004, [bind_device]),
        (0.190, [Uevent(action="add", devpath="/module/hid")]),
        (0.054, [hid]),
        (0.008, [bind]),
        (0.050, children[:1]),
        (0.130, children[1:]),
        (0.006, last),
    ]


async def test_ports_that_come_and_go_one_by_one_are_all_followed(
    build: Build, launch: Launch
) -> None:
    ports = [tty(f"ttyUSB{number}", number) for number in (10, 11, 12, 13)]
    adapter = replace(STICK, nodes=())
    agent = launch(build(homelab()), *QUICK)
    await agent.until_ready()
    agent.say(agent.tree.plug(adapter))
    paths = ["/dev/bus/usb/001/012"]
    expected = []
    for port in ports:
        agent.say(agent.tree.add_nodes(adapter.key, [port]))
        paths = [*paths, port.path]
        expected.append(paths)
        await agent.until_nodes(STICK_NAME, *expected)
    agent.say(agent.tree.remove_nodes(adapter.key, ports[2:3]))
    await agent.until_nodes(STICK_NAME, *expected, [*paths[:3], paths[4]])
