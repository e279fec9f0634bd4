"""A kubelet's new start, under pods that run and an agent that does."""

import sys
from collections.abc import Callable
from dataclasses import asdict

import pytest

from tests.cluster.real.client import Client
from tests.cluster.real.documented import Documented
from tests.cluster.real.kubelet_restart import restart_kubelet
from tests.cluster.real.made_up_machine import (
    RENUMBERED,
    RENUMBERED_NODES,
    STICK_CLASS,
    MadeUpMachine,
)
from tests.cluster.real.node import Node
from tests.cluster.real.node_agent import NodeAgent
from tests.cluster.real.pods import READ, Pods, life


def test_all_comes_back_after_a_kubelet_s_start_and_pods_keep_their_devices(
    pods: Pods,
    node: Node,
    agent: NodeAgent,
    client: Client,
    documented: Documented,
    record_property: Callable[[str, object], None],
    capsys: pytest.CaptureFixture[str],
) -> None:
    pods.create("reads", STICK_CLASS, script=READ)
    pods.apply(documented.pod("virtual-machine", node.name))
    names = ("reads", "virtual-machine")
    started = [life(pods.until_running(name)) for name in names]
    claim = pods.claim("reads", STICK_CLASS)
    spec = pods.spec(claim)

    times = asdict(restart_kubelet(node, agent, client))
    with capsys.disabled():
        for name, seconds in times.items():
            record_property(name, seconds)
            sys.stdout.write(f"\n  {name} {seconds:.2f} s")

    assert [life(pods.until_running(name)) for name in names] == started
    assert pods.spec(claim) == spec
    pods.until_said_more("reads")
    assert "could not" not in pods.said("reads")
    pods.create("later", "gpu-render")
    pods.until_running("later")
    pods.delete("reads")
    assert pods.spec(claim) == {}
    assert pods.failures() == []


def test_a_container_that_is_restarted_after_a_kubelet_s_start_has_the_new_node(
    pods: Pods, node: Node, machine: MadeUpMachine
) -> None:
    """The kubelet does not ask to prepare the claim again. It hands the name of a device in a spec
    to the runtime, and the agent has written that anew."""
    pods.create("crashes", STICK_CLASS)
    pods.until_running("crashes")
    claim = pods.claim("crashes", STICK_CLASS)
    node.restart_kubelet()
    machine.unplug()
    machine.plug(RENUMBERED)
    pods.until_spec(claim, RENUMBERED_NODES)
    pods.kill("crashes")
    pods.until_running("crashes", restarts=1)
    assert pods.until_devices("crashes") == RENUMBERED_NODES
