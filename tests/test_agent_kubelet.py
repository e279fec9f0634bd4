"""The whole agent and a kubelet, over real sockets: claims from registration to their end."""

from collections.abc import Iterator
from dataclasses import replace

import pytest
import trio

from liken_events.core.model.delivery import bus_node
from tests.fakes.agent_node import HEALTHY, UNHEALTHY, Node, node_with_stick, until_health
from tests.fakes.agents import NODE, STICK, STICK_NAME, Build
from tests.fakes.devices import tty
from tests.fakes.registered import living
from tests.fakes.waiting import until

BEFORE = [("/dev/bus/usb/001/012", "c", 189, 11), ("/dev/ttyUSB9", "c", 188, 9)]
AFTER = [("/dev/bus/usb/001/040", "c", 189, 39), ("/dev/ttyUSB5", "c", 188, 5)]
STICK_WITH_OTHER_NUMBERS = replace(STICK, bus_node=bus_node("1", "40"), nodes=(tty("ttyUSB5", 5),))


@pytest.fixture
def node(build: Build) -> Iterator[Node]:
    with node_with_stick(build) as made:
        yield made


async def test_a_claim_from_its_allocation_to_its_end(node: Node) -> None:
    async with living(node.kubelet), node.agent():
        plugin = await node.kubelet.plugin()
        claim = node.allocate(STICK_NAME)
        uid = claim[2]
        answer = (await plugin.prepare(claim))[uid]
        assert answer.error == ""
        assert [(d.device_name, d.pool_name, list(d.request_names)) for d in answer.devices] == [
            (STICK_NAME, NODE, ["r0"])
        ]
        assert list(answer.devices[0].cdi_device_ids) == [f"liken.sh/device={uid}-{STICK_NAME}"]
        assert node.specs.nodes(uid, STICK_NAME) == BEFORE
        assert await until_health(plugin, HEALTHY) == ""

        node.say(node.tree.unplug("1-9"))
        assert "is not on this machine now" in await until_health(plugin, UNHEALTHY)
        back = STICK_WITH_OTHER_NUMBERS
        node.say(node.tree.plug(back))
        await until(lambda: node.specs.nodes(uid, STICK_NAME) == AFTER)
        await until(lambda: "/dev/ttyUSB9, which is dead" in plugin.health[STICK_NAME].message)

        assert (await plugin.prepare(claim))[uid] == answer
        assert await until_health(plugin, HEALTHY) == ""
        node.cluster.claims.clear()
        assert (await plugin.unprepare(claim))[uid].error == ""
        assert node.specs.files == []
        assert (await plugin.unprepare(claim))[uid].error == ""


async def test_a_device_that_is_being_plugged_in_is_waited_for(node: Node) -> None:
    async with living(node.kubelet), node.agent():
        plugin = await node.kubelet.plugin()
        claim = node.allocate(STICK_NAME)
        node.say(node.tree.unplug("1-9"))
        await until(lambda: STICK_NAME not in str(node.cluster.slices))

        async def plug() -> None:
            await until(lambda: node.cluster.claims_read)
            node.say(node.tree.plug(STICK_WITH_OTHER_NUMBERS))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(plug)
            answer = await plugin.prepare(claim)
        assert answer[claim[2]].error == ""
        assert node.specs.nodes(claim[2], STICK_NAME) == AFTER


async def test_one_claim_s_trouble_is_its_own(node: Node) -> None:
    async with living(node.kubelet), node.agent():
        plugin = await node.kubelet.plugin()
        good = node.allocate(STICK_NAME, name="good")
        rival = node.allocate(STICK_NAME, name="rival")
        absent = node.allocate("usb-7-7-1-0", name="absent")
        gone = ("default", "gone", "11111111-2222-3333-4444-555555555555")
        assert (await plugin.prepare(good))[good[2]].error == ""
        answers = await plugin.prepare(good, rival, absent, gone)
        assert {uid: answer.error for uid, answer in answers.items()} == {
            good[2]: "",
            rival[2]: f"{STICK_NAME} is prepared for the claim default/good",
            absent[2]: "usb-7-7-1-0 is not on this machine now",
            gone[2]: "the claim default/gone does not exist any more",
        }
        assert await plugin.prepare() == {}


async def test_claims_outlive_the_agent_and_the_kubelet(node: Node) -> None:
    async with living(node.kubelet):
        async with node.agent():
            plugin = await node.kubelet.plugin()
            claim = node.allocate(STICK_NAME)
            answer = await plugin.prepare(claim)
        assert node.specs.nodes(claim[2], STICK_NAME) == BEFORE
        node.tree.unplug("1-9")
        node.tree.plug(STICK_WITH_OTHER_NUMBERS)
        async with node.agent():
            assert node.specs.nodes(claim[2], STICK_NAME) == AFTER
            await node.kubelet.restart(wipe=True)
            plugin = await node.kubelet.plugin()
            assert "came back as" in await until_health(plugin, UNHEALTHY)
            assert await plugin.prepare(claim) == answer
            await until_health(plugin, HEALTHY)
            await plugin.unprepare(claim)
        assert node.specs.files == []


async def test_a_claim_that_ended_while_the_agent_was_away_is_cleaned_up(node: Node) -> None:
    async with living(node.kubelet):
        async with node.agent():
            plugin = await node.kubelet.plugin()
            gone, kept = (
                node.allocate(STICK_NAME, name="gone"),
                node.allocate("usb-1-1-1-0", name="kept"),
            )
            await plugin.prepare(gone, kept)
        del node.cluster.claims["default", "gone"]
        async with node.agent():
            await until(lambda: node.specs.read(gone[2]) is None)
        assert node.specs.read(kept[2]) is not None
