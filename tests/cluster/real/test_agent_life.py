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

DRIVER_REGISTERED = REGISTERED[0]
"""The kubelet knows the driver. It takes the host devices from one agent at a time."""

UPDATES = 3


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


def test_what_the_old_agent_prepared_the_new_one_ends(pods: Pods, agent: NodeAgent) -> None:
    """Both are known to the kubelet until the old one ends."""
    pods.create("before", STICK_CLASS, script=READ)
    started = life(pods.until_running("before"))
    agent.start()
    agent.until_logged(DRIVER_REGISTERED, "instance.waiting")
    pods.create("beside", "gpu-render")
    pods.until_running("beside")
    agent.stop_older()
    agent.until_logged(*REGISTERED, "offer.published")
    pods.create("after", "gpu-render")
    pods.until_running("after")
    for name in ("beside", "after"):
        pods.delete(name)
    assert life(pods.until_running("before")) == started
    assert "could not" not in pods.said("before")
    pods.until_health("before", "Healthy")
    pods.delete("before")
    released = [line["claim"] for line in agent.logged("claim.released")]
    assert f"{pods.namespace}/before-{STICK_CLASS}" in released
    assert pods.specs() == []
    assert pods.failures() == []


def test_a_pod_that_comes_at_the_moment_of_an_update_runs_at_the_first_try(
    pods: Pods, agent: NodeAgent
) -> None:
    """Several at different moments: as the new agent starts, and as the old one ends."""
    for number in range(UPDATES):
        agent.start()
        pods.create(f"as-it-starts-{number}", "gpu-render")
        agent.until_logged(DRIVER_REGISTERED)
        pods.create(f"between-{number}", STICK_CLASS)
        agent.stop_older()
        pods.create(f"as-it-ended-{number}", "gpu-render")
        pods.until_running(f"between-{number}")
        assert pods.until_devices(f"between-{number}") == STICK_NODES
        for name in ("as-it-starts", "as-it-ended"):
            pods.until_running(f"{name}-{number}")
            pods.delete(f"{name}-{number}")
        pods.delete(f"between-{number}")
    assert pods.failures() == []
    assert pods.specs() == []
