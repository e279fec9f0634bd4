"""The agent's own end and new start, under pods that run."""

from tests.cluster.real.made_up_machine import (
    RENUMBERED,
    RENUMBERED_NODES,
    STICK_CLASS,
    STICK_NODES,
    MadeUpMachine,
)
from tests.cluster.real.node_agent import REGISTERED, NodeAgent
from tests.cluster.real.pods import READ, Pods, life


def test_a_pod_outlives_an_agent_that_crashed(
    pods: Pods, agent: NodeAgent, machine: MadeUpMachine
) -> None:
    """The next agent knows the claim, also what became of the device meanwhile."""
    pods.create("stays", STICK_CLASS, script=READ)
    started = life(pods.until_running("stays"))
    claim = pods.claim("stays", STICK_CLASS)
    before = pods.spec(claim)
    agent.kill()
    machine.unplug()
    machine.plug(RENUMBERED)
    assert pods.spec(claim) == before
    agent.start()
    agent.until_logged("claims.restored", *REGISTERED)
    pods.until_health("stays", "Unhealthy", "/dev/ttyUSB9, which is dead")
    assert pods.spec(claim) == RENUMBERED_NODES
    assert life(pods.until_running("stays")) == started
    assert "could not" not in pods.said("stays")
    pods.delete("stays")
    assert pods.specs() == []
    assert pods.failures() == []


def test_a_pod_that_ended_without_an_agent_is_gone_when_there_is_one(
    pods: Pods, agent: NodeAgent
) -> None:
    """Until then it is terminating: the kubelet has nobody to end its claim."""
    pods.create("ends", STICK_CLASS)
    pods.until_running("ends")
    agent.kill()
    pods.begin_deletion("ends")
    pods.until_ended("ends")
    assert len(pods.specs()) == 1
    agent.start()
    pods.until_gone("ends")
    assert pods.specs() == []


def test_a_rolling_update_is_noticed_by_no_pod_that_runs(pods: Pods, agent: NodeAgent) -> None:
    """The new agent waits for the sockets of the old one, which answers until it is stopped."""
    pods.create("before", STICK_CLASS, script=READ)
    started = life(pods.until_running("before"))
    agent.start()
    agent.until_logged("kubelet.cannot_serve", "offer.published")
    pods.create("beside", "gpu-render")
    pods.until_running("beside")
    assert agent.logged("claim.prepared") == []
    agent.stop_older()
    agent.until_logged(*REGISTERED)
    pods.create("after", "gpu-render")
    pods.until_running("after")
    assert [line["claim"] for line in agent.logged("claim.prepared")] == [
        f"{pods.namespace}/after-gpu-render"
    ]
    assert pods.failures() == []
    for name in ("beside", "after"):
        pods.delete(name)
    assert life(pods.until_running("before")) == started
    assert "could not" not in pods.said("before")
    pods.delete("before")
    assert pods.specs() == []


def test_a_pod_that_comes_at_the_moment_of_an_update_runs(pods: Pods, agent: NodeAgent) -> None:
    """Perhaps at the second try, 10 s later. The sockets are away for some milliseconds, but the
    kubelet's connection is broken: it takes a second or two to register the driver anew, and lets
    calls fail meanwhile."""
    agent.start()
    agent.until_logged("kubelet.cannot_serve", "offer.published")
    agent.stop_older()
    pods.create("between", STICK_CLASS)
    pods.until_running("between")
    assert pods.until_devices("between") == STICK_NODES
    [prepared] = agent.logged("claim.prepared")
    assert prepared["claim"] == f"{pods.namespace}/between-{STICK_CLASS}"
