"""What the agent makes of its slices on a real API server."""

import pytest

from liken_events.core.model.snapshot import Device
from liken_events.sinks.slices import UID_RETRY
from tests.cluster.real.agents import NODES, SLICES, Agent, generation, names, version, writes
from tests.cluster.real.client import Client, Object
from tests.cluster.real.control_plane import ControlPlane
from tests.cluster.real.objects import node, resource_slice
from tests.fakes.agents import STICK, STICK_NAME, Build
from tests.fakes.devices import tty, usb
from tests.fakes.machines import empty_vm, machine

OTHER = usb("1-2:1.0", "10c4:ea60", "ff0000", "cp210x", 3, serial="Z2", nodes=[tty("ttyUSB1", 1)])
OTHER_NAME = "usb-1-2-1-0"

OWNED_SECONDS = 3 * UID_RETRY.base + 5.0
"""Bound for an owner that was missing twice when it was asked for, at most."""

COLLECT_SECONDS = 60.0
"""Bound for the garbage collector, which is not ours. It takes a second; an API server that was
restarted before has it come back within half a minute."""

AT_ONCE = 2.0
"""Seconds. On two free cores it takes 23 ms (median of 20; 39 ms at most)."""


def sticks(count: int) -> list[Device]:
    """Serial adapters, no more than a hundred on one bus: it numbers its devices up to 127."""
    return [
        usb(
            f"{1 + index // 100}-{1 + index % 100}:1.0",
            "10c4:ea60",
            "ff0000",
            "cp210x",
            2 + index % 100,
            serial=f"S{index}",
            nodes=[tty(f"ttyUSB{index}", index)],
        )
        for index in range(count)
    ]


def owners(body: Object) -> list[tuple[str, str]]:
    """Names and uids of the nodes that own an object."""
    return [
        (owner["name"], owner["uid"])
        for owner in body["metadata"].get("ownerReferences", [])
        if (owner["apiVersion"], owner["kind"]) == ("v1", "Node")
    ]


def test_a_slice_is_made_with_the_first_device_and_goes_with_the_last(
    control_plane: ControlPlane, client: Client, build: Build
) -> None:
    made = client.create(NODES, node("whole"))
    with Agent(control_plane, build(empty_vm()), "whole") as agent:
        agent.until_published()
        assert client.find(agent.path) is None
        agent.say(agent.tree.plug(STICK))
        first = agent.until_offered([STICK_NAME])
        assert owners(first) == [("whole", made["metadata"]["uid"])]
        assert first["spec"]["nodeName"] == "whole"
        assert first["spec"]["pool"] == {
            "name": "whole",
            "generation": 1,
            "resourceSliceCount": 1,
        }
        agent.say(agent.tree.unplug("1-9"))
        client.until_gone(agent.path)
        agent.say(agent.tree.plug(STICK))
        assert generation(agent.until_offered([STICK_NAME])) == 2
        assert agent.troubles == []
    assert names(client.get(agent.path)) == [STICK_NAME]  # a stop withdraws nothing
    client.delete(f"{NODES}/whole")
    client.until_gone(agent.path)


def test_a_change_is_one_patch_of_what_is_different(
    control_plane: ControlPlane, client: Client, build: Build
) -> None:
    many = sticks(21)
    with Agent(control_plane, build(machine(many[:20])), "patched") as agent:
        agent.until_published()
        first = client.get(agent.path)
        agent.say(agent.tree.plug(many[20]))
        second = agent.until_offered([*names(first), "usb-1-21-1-0"])
        assert (writes(second), generation(second)) == (writes(first) + 1, generation(first) + 1)
        agent.say(agent.tree.unplug(many[4].key))
        third = agent.until_offered({*names(second)} - {"usb-1-5-1-0"})
        assert (writes(third), generation(third)) == (writes(first) + 2, generation(first) + 2)
        # Each has three operations: the version that it is based on, the device, the generation.
        assert [line["operations"] for line in agent.logged("slice.patched")] == [3, 3]
    client.delete(agent.path)


def test_an_agent_that_is_started_again_writes_nothing(
    control_plane: ControlPlane, client: Client, build: Build
) -> None:
    client.create(NODES, node("again"))
    tree = build(machine([STICK, OTHER]))
    with Agent(control_plane, tree, "again") as agent:
        agent.until_published()
        first = client.get(agent.path)
    with Agent(control_plane, tree, "again") as agent:
        agent.until(lambda: len(agent.logged("offer.published")) == 2, "publishing", seconds=20)
        assert client.get(agent.path) == first
    client.delete(f"{NODES}/again")
    client.until_gone(agent.path)


def test_what_others_do_to_a_slice_is_put_right_at_once(
    control_plane: ControlPlane, client: Client, build: Build
) -> None:
    others = [
        client.create(SLICES, resource_slice("righted-gpu", "gpu.example", "righted", 2)),
        client.create(SLICES, resource_slice("elsewhere-liken.sh", "liken.sh", "elsewhere", 2)),
    ]
    client.create(NODES, node("righted"))
    with Agent(control_plane, build(machine([STICK, OTHER])), "righted") as agent:
        agent.until_published()
        first = client.get(agent.path)
        client.delete(agent.path)
        back = client.until(agent.path, lambda it: it != first, seconds=AT_ONCE)
        assert back["metadata"]["uid"] != first["metadata"]["uid"]
        assert back["spec"]["devices"] == first["spec"]["devices"]
        assert generation(back) == generation(first) + 1

        for change in (
            {"devices": None},
            {"devices": [{"name": "made-up"}]},
            {"pool": {"resourceSliceCount": 2}},
        ):
            before = version(client.patch(agent.path, {"spec": change}))
            fixed = client.until(agent.path, lambda it: version(it) != before, seconds=AT_ONCE)  # noqa: B023
            assert fixed["spec"]["devices"] == first["spec"]["devices"]
            assert fixed["spec"]["pool"]["resourceSliceCount"] == 1
        assert len(agent.logged("machine.read")) == 1
        assert [client.get(f"{SLICES}/{it['metadata']['name']}") for it in others] == others
        assert agent.troubles == []
    for each in others:
        client.delete(f"{SLICES}/{each['metadata']['name']}")
    client.delete(f"{NODES}/righted")
    client.until_gone(agent.path)


@pytest.mark.parametrize("divide", [False, True], ids=["one", "divided"])
def test_a_slice_holds_128_devices(
    control_plane: ControlPlane, client: Client, build: Build, divide: bool
) -> None:
    """What does not fit is left out, or is in a second slice of the same generation."""
    name = "divided" if divide else "full"
    many = sticks(129)
    every = sorted(f"usb-{each.key.address}".replace(":", "-").replace(".", "-") for each in many)

    def slices() -> list[Object]:
        found = client.items(SLICES, fieldSelector=f"spec.nodeName={name}")
        return sorted(found, key=lambda each: str(each["metadata"]["name"]))

    def until_sliced(*wanted: list[str]) -> None:
        agent.until(lambda: [names(each) for each in slices()] == list(wanted), "the slices")
        pools = [each["spec"]["pool"] for each in slices()]
        assert pools == [pools[0]] * len(wanted)
        assert pools[0]["resourceSliceCount"] == len(wanted)

    last = many[[f"usb-{each.key.address}" for each in many].index("usb-2-9:1.0")]
    rest = [each for each in many if each != last]
    with Agent(control_plane, build(machine(rest)), name, divide_pool=divide) as agent:
        agent.until_published()
        assert every[-1] == "usb-2-9-1-0"
        until_sliced(every[:-1])
        agent.say(agent.tree.plug(last))
        if divide:
            until_sliced(every[:128], every[128:])
        gone = agent.tree.unplug(rest[0].key)
        agent.say(gone)
        until_sliced([each for each in every if each != "usb-1-1-1-0"])
        assert agent.troubles == []
    client.delete(agent.path)


def test_a_node_that_is_made_anew_owns_the_slice_again(
    control_plane: ControlPlane, client: Client, build: Build
) -> None:
    """The agent sleeps meanwhile: who is faster, it or who makes the Node, does not matter."""
    old = client.create(NODES, node("anew"))
    with Agent(control_plane, build(machine([STICK])), "anew") as agent:
        agent.until_published()
        first = client.get(agent.path)
        assert owners(first) == [("anew", old["metadata"]["uid"])]
        agent.pause()
        client.delete(f"{NODES}/anew")
        client.until_gone(agent.path, seconds=COLLECT_SECONDS)
        new = client.create(NODES, node("anew"))
        agent.resume()
        wanted = [("anew", new["metadata"]["uid"])]
        agent.until(
            lambda: owners(client.find(agent.path) or first) == wanted, "the new owner", seconds=5
        )
        assert len(agent.logged("slice.created")) == 2
    client.delete(f"{NODES}/anew")
    client.until_gone(agent.path)


def test_a_node_that_is_made_after_its_slice_owns_it(
    control_plane: ControlPlane, client: Client, build: Build
) -> None:
    """Nothing happens on the machine meanwhile."""
    with Agent(control_plane, build(machine([STICK])), "later") as agent:
        agent.until_published()
        assert owners(client.get(agent.path)) == []
        made = client.create(NODES, node("later"))
        wanted = [("later", made["metadata"]["uid"])]
        client.until(agent.path, lambda it: owners(it) == wanted, seconds=OWNED_SECONDS)
        assert agent.troubles == []
    client.delete(f"{NODES}/later")
    client.until_gone(agent.path)


def test_the_slice_of_a_node_that_is_gone_has_no_owner(
    control_plane: ControlPlane, client: Client, build: Build
) -> None:
    client.create(NODES, node("gone"))
    with Agent(control_plane, build(machine([STICK])), "gone") as agent:
        agent.until_published()
        first = client.get(agent.path)
        client.delete(f"{NODES}/gone")
        agent.until(
            lambda: owners(client.find(agent.path) or first) == [],
            "no owner",
            seconds=COLLECT_SECONDS,
        )
        assert agent.offered == {STICK_NAME}
    client.delete(agent.path)
