"""The whole agent under floods: lost events, noise, and events that change nothing."""

import os
import signal

from liken_events.simulate.uevents import Uevent
from tests.fakes.agents import QUICK, STICK, STICK_NAME, Agent, Build, Launch
from tests.fakes.machines import desktop, homelab

FLOOD = 60_000
"""Events of at least 768 bytes of socket memory each: more than the 32 MiB of the buffer hold."""

ROUNDS = 6
MOST_THREADS = 16
"""The main one and those that read, of which there are eight at most, and a reserve."""

FEW_LINES = 20
"""More than a start and one change log."""


def noise(action: str) -> list[Uevent]:
    """What a container host says all day."""
    paths = ("net/veth1a2b3c4", "net/veth1a2b3c4/queues/rx-0", "bdi/0:52", "block/loop7")
    return [Uevent(action=action, devpath=f"/devices/virtual/{path}") for path in paths] + [
        Uevent(action=action, devpath=f"/kernel/slab/:A-0000192/cgroup/{'dentry' * 8}(1:pod)")
    ]


async def test_after_lost_events_the_slice_is_that_of_a_fresh_look(
    build: Build, launch: Launch
) -> None:
    agent = launch(build(desktop()), *QUICK)
    await agent.until_sliced()
    tree = agent.tree
    controller = Uevent(action="change", devpath="/devices/pci0000:00/0000:00:14.0")
    with paused(agent):
        agent.flood([controller], repeat=FLOOD)
        agent.say(tree.unplug("1-1"))
        agent.say(tree.plug(STICK))
        agent.say(tree.renumber("1-3", 99))
    await agent.until_true()
    assert STICK_NAME in agent.offered
    assert agent.logged("machine.resync", reason="receive buffer overrun")
    await agent.until_last_nodes("usb-1-3-1-0", "/dev/bus/usb/001/099")


async def test_noise_neither_costs_an_event_nor_a_look(build: Build, launch: Launch) -> None:
    agent = launch(build(homelab()), *QUICK)
    before = await agent.until_sliced()
    with paused(agent):
        agent.flood(noise("add"), repeat=FLOOD // 5)
        agent.say(agent.tree.plug(STICK))
        agent.flood(noise("remove"), repeat=FLOOD // 5)
    await agent.until_offered(present=[STICK_NAME])
    assert agent.generation == before + 1
    assert not agent.logged("machine.resync")
    assert len(agent.logged("machine.read")) == 1


async def test_being_told_of_everything_again_writes_nothing(build: Build, launch: Launch) -> None:
    agent = launch(
        build(desktop()), *QUICK, "--settle-probing-usb=0.1", "--settle-probing-pci=0.1"
    )
    before = await agent.until_sliced()
    snapshot = agent.tree.snapshot
    paths = [device.path for device in snapshot.devices]
    paths += [
        f"{device.path}/{node.place}" for device in snapshot.devices for node in device.nodes
    ]
    again = [Uevent(action="add", devpath=path) for path in paths]
    asked = [
        Uevent(action="add", devpath=path, properties=(("SYNTH_UUID", "0"),)) for path in paths
    ]
    agent.flood([*again, *asked], repeat=3)
    assert len(again + asked) * 3 > 300
    agent.say(agent.tree.plug(STICK))
    await agent.until_offered(present=[STICK_NAME])
    assert agent.generation == before + 1
    await agent.until(lambda: agent.logged("device.added", device=STICK_NAME))
    assert [line["device"] for line in agent.log if "device" in line] == [STICK_NAME]
    assert len(agent.log) < FEW_LINES


async def test_a_hub_that_drops_and_returns_many_times_ends_as_it_is(
    build: Build, launch: Launch
) -> None:
    agent = launch(build(desktop()), *QUICK)
    before = await agent.until_sliced()
    tree = agent.tree
    for number in range(40, 40 + ROUNDS):
        children = [device for device in tree.snapshot.devices if "/1-1/" in device.path]
        for said in (tree.unplug("1-1"), tree.plug(*children), tree.renumber("1-1.2", number)):
            agent.say(said)
    await agent.until_true()
    stick = next(name for name in agent.offered if name.startswith("usb-1-1-2-"))
    await agent.until_last_nodes(stick, "/dev/bus/usb/001/045")
    assert agent.generation <= before + 2 * ROUNDS
    assert len(os.listdir(f"/proc/{agent.pid}/task")) < MOST_THREADS


class paused:  # noqa: N801  # reads as a statement
    """Keeps the agent from running, as a machine does that is too busy for it."""

    def __init__(self, agent: Agent) -> None:
        self._pid = agent.pid

    def __enter__(self) -> None:
        os.kill(self._pid, signal.SIGSTOP)

    def __exit__(self, *_: object) -> None:
        os.kill(self._pid, signal.SIGCONT)
