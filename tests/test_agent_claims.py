"""The whole agent, on a made-up machine, with real uevents: what becomes of claims."""

import os
import shutil
import signal
from typing import Any

from liken_events.core.model.delivery import bus_node
from tests.fakes.agents import QUICK, STICK, STICK_NAME, Agent, Build, Launch
from tests.fakes.claims import Specs, claim_body, uid_of, write_claim
from tests.fakes.devices import tty, usb
from tests.fakes.machines import homelab, machine

BUS = ("/dev/bus/usb/001/012", "c", 189, 11)
TTY = ("/dev/ttyUSB9", "c", 188, 9)
OTHER = usb("1-8:1.0", "0403:6001", "ff0000", "ftdi_sio", 13, nodes=[tty("ttyUSB9", 9)])
"""A stick that is given the node of one that left."""


class Desk:
    """An agent, its claims and its specs."""

    def __init__(self, agent: Agent) -> None:
        self.agent = agent
        self.directory = os.path.dirname(os.path.dirname(agent.path))
        self.specs = Specs(os.path.join(self.directory, "cdi"))

    async def claim(self, *devices: str, **more: Any) -> str:
        """Writes a claim and waits until it is prepared; returns its uid."""
        body = claim_body(*devices, **more)
        uid = uid_of(body)
        write_claim(self.directory, body)
        await self.agent.until(lambda: self.specs.read(uid))
        return uid

    async def until_nodes(self, uid: str, *nodes: tuple[Any, ...]) -> None:
        """Waits until the stick's nodes in a spec are these."""
        await self.agent.until(lambda: self.specs.nodes(uid, STICK_NAME) == list(nodes))


async def launched(build: Build, launch: Launch, *flags: str) -> Desk:
    agent = launch(build(machine([*homelab().devices, STICK])), *QUICK, *flags)
    await agent.until_ready()
    return Desk(agent)


async def test_a_claim_is_prepared_when_its_file_appears_and_ended_when_it_goes(
    build: Build, launch: Launch
) -> None:
    desk = await launched(build, launch)
    body = claim_body(STICK_NAME)
    path = write_claim(desk.directory, body)
    await desk.until_nodes(uid_of(body), BUS, TTY)
    os.unlink(path)
    await desk.agent.until(lambda: desk.specs.files == [])
    await desk.agent.until(lambda: desk.agent.logged("claim.released"))
    assert os.listdir(f"{desk.directory}/records") == []


async def test_a_spec_follows_its_device_through_every_change(
    build: Build, launch: Launch
) -> None:
    desk = await launched(build, launch)
    agent, tree = desk.agent, desk.agent.tree
    uid = await desk.claim(STICK_NAME)
    agent.say(tree.unplug("1-9"))
    await desk.until_nodes(uid, (BUS[0],), (TTY[0],))
    agent.say(tree.plug(OTHER))
    taken = "/dev/liken.sh/usb-1-9-1-0-is-away-and-ttyUSB9-belongs-to-"
    await agent.until(
        lambda: any(path.startswith(taken) for path in desk.specs.paths(uid, STICK_NAME))
    )
    agent.say(tree.plug(usb("1-9:1.0", "10c4:ea60", "ff0000", "cp210x", 14, serial="Z1",
                            nodes=[tty("ttyUSB5", 5)])))  # fmt: skip
    back = ("/dev/bus/usb/001/014", "c", 189, 13)
    await desk.until_nodes(uid, back, ("/dev/ttyUSB5", "c", 188, 5))
    agent.say(tree.unbind(STICK.key))
    await desk.until_nodes(uid, back)
    agent.say(tree.bind(STICK.key, "cp210x", [tty("ttyUSB6", 6)]))
    await desk.until_nodes(uid, back, ("/dev/ttyUSB6", "c", 188, 6))


async def test_a_stranger_in_the_slot_is_not_handed_over(build: Build, launch: Launch) -> None:
    desk = await launched(build, launch)
    uid = await desk.claim(STICK_NAME)
    agent, tree = desk.agent, desk.agent.tree
    stranger = usb("1-9:1.0", "0403:6001", "ff0000", "ftdi_sio", 12, nodes=[tty("ttyUSB9", 9)])
    agent.say(tree.unplug("1-9") + tree.plug(stranger))
    await agent.until(
        lambda: (
            [p.split("-is-away")[0] for p in desk.specs.paths(uid, STICK_NAME)]
            == ["/dev/liken.sh/usb-1-9-1-0"] * 2
        )
    )


async def test_a_killed_agent_goes_on_where_it_was(build: Build, launch: Launch) -> None:
    desk = await launched(build, launch)
    uid = await desk.claim(STICK_NAME)
    os.kill(desk.agent.pid, signal.SIGKILL)
    await desk.agent.until(lambda: desk.agent.status is not None)
    tree = desk.agent.tree
    tree.renumber("1-9", 20)
    second = launch(tree, *QUICK)
    await second.until_ready()
    assert desk.specs.nodes(uid, STICK_NAME) == [("/dev/bus/usb/001/020", "c", 189, 19), TTY]
    assert second.logged("claims.restored", prepared=1)
    assert bus_node("1", "20") is not None


async def test_specs_that_somebody_removes_are_put_back(build: Build, launch: Launch) -> None:
    desk = await launched(build, launch)
    uid = await desk.claim(STICK_NAME)
    shutil.rmtree(desk.specs.directory)
    await desk.until_nodes(uid, BUS, TTY)
