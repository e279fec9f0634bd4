"""An update of the agent on a node: an old and a new one side by side, and a kubelet that calls
either."""

import os
import signal
from collections.abc import Iterator
from functools import partial
from itertools import count

import pytest
import trio

from tests.fakes.agent_node import HEALTHY, UNHEALTHY, Node, node_with_stick, until_health
from tests.fakes.agents import STICK, STICK_NAME, Build, Launch
from tests.fakes.machines import homelab
from tests.fakes.registered import living
from tests.fakes.waiting import until

OLD, NEW = "0c2d6a4e-7d5b-4f0a-9c1e-2b8d6a4e0f13", "3f1c2a9e-7d5b-4f0a-9c1e-2b8d6a4e0f13"


@pytest.fixture
def node(build: Build) -> Iterator[Node]:
    with node_with_stick(build) as made:
        yield made


async def test_a_claim_of_the_old_agent_is_the_new_ones_too(node: Node) -> None:
    async with living(node.kubelet), node.agent(NEW):
        async with node.agent(OLD):
            old, new = await node.kubelet.plugin(OLD), await node.kubelet.plugin(NEW)
            claim, rival = node.allocate(STICK_NAME, name="c"), node.allocate(STICK_NAME, name="r")
            answer = await old.prepare(claim)
            assert answer[claim[2]].error == ""
            refused = (await new.prepare(rival))[rival[2]].error
            assert refused == f"{STICK_NAME} is prepared for the claim default/c"
            for plugin in (old, new):
                await until_health(plugin, HEALTHY)
        assert await new.prepare(claim) == answer
        node.say(node.tree.unplug("1-9"))
        await until_health(new, UNHEALTHY)
        node.say(node.tree.plug(STICK))
        await until_health(new, HEALTHY)
        assert (await new.unprepare(claim))[claim[2]].error == ""
        assert node.specs.files == []
        assert (await new.prepare(rival))[rival[2]].error == ""


async def test_pods_come_and_go_during_updates_and_none_is_refused(node: Node) -> None:
    """The kubelet calls all the time, while each agent takes over from the one before."""
    errors: list[str] = []
    is_over = False

    async def call() -> None:
        for number in count():
            if is_over:
                return
            claim = node.allocate(STICK_NAME, name=f"pod-{number}")
            for method in ("prepare", "unprepare"):
                answer = await getattr(node.kubelet.called(), method)(claim)
                errors.append(answer[claim[2]].error)

    async def until_called_more() -> None:
        before = len(errors)
        await until(lambda: len(errors) > before + 4)

    async with living(node.kubelet), trio.open_nursery() as agents:
        ends = [trio.Event() for _ in range(4)]
        await agents.start(partial(live, node, "agent-0", ends[0]))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(call)
            for number in range(1, len(ends)):
                await agents.start(partial(live, node, f"agent-{number}", ends[number]))
                await until_called_more()
                ends[number - 1].set()
                await until(lambda: len(node.kubelet.plugins) == 1)
                await until_called_more()
            is_over = True
        ends[-1].set()
    assert set(errors) == {""}
    assert node.specs.files == []


async def test_the_old_agent_writes_the_slice_and_the_new_one_when_it_has_ended(
    node: Node,
) -> None:
    """The new one is configured differently: two that write would undo each other's work."""
    ignored = "usb-1-1-1-0"
    async with living(node.kubelet), trio.open_nursery() as agents:
        end = trio.Event()
        await agents.start(partial(live, node, OLD, end))
        await until(lambda: is_offered(node, STICK_NAME))
        async with node.agent(NEW, ignore=(ignored,)):
            await node.kubelet.plugin(NEW)
            before = len(node.cluster.writes)
            node.say(node.tree.unplug("1-9"))
            await until(lambda: not is_offered(node, STICK_NAME))
            node.say(node.tree.plug(STICK))
            await until(lambda: is_offered(node, STICK_NAME))
            with trio.move_on_after(0.3):
                await until(lambda: len(node.cluster.writes) > before + 2)
            assert len(node.cluster.writes) == before + 2
            assert is_offered(node, ignored)
            end.set()
            await until(lambda: not is_offered(node, ignored))
            assert len(node.cluster.writes) == before + 3
            assert is_offered(node, STICK_NAME)


async def test_an_agent_that_waits_for_its_turn_ends_at_once_or_has_it_after_a_crash(
    build: Build, launch: Launch
) -> None:
    tree = build(homelab())
    old = launch(tree, "--instance=old")
    await old.until_ready()
    new = launch(tree, "--instance=new")
    await new.until(lambda: new.logged("instance.waiting", what="slices"))
    assert await new.stop() == 0
    assert not new.logged("agent.stopped_early")
    assert not new.logged("offer.published")
    new = launch(tree, "--instance=new")
    await new.until(lambda: new.logged("instance.waiting"))
    os.kill(old.pid, signal.SIGKILL)
    await new.until_ready()


async def live(
    node: Node, instance: str, end: trio.Event, *, task_status: trio.TaskStatus[None]
) -> None:
    """An agent that is known to the kubelet, until its end."""
    async with node.agent(instance):
        await node.kubelet.plugin(instance)
        task_status.started()
        await end.wait()


def is_offered(node: Node, device: str) -> bool:
    """Whether the slice has a device."""
    return device in str(node.cluster.slices)
