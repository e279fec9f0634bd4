"""One claim that several pods name."""

from tests.cluster.real.client import RESOURCE, Client, Object
from tests.cluster.real.made_up_machine import STICK_CLASS, STICK_NAME, STICK_NODES
from tests.cluster.real.node import Node
from tests.cluster.real.node_agent import NodeAgent
from tests.cluster.real.objects import claim, pod
from tests.cluster.real.pods import READ, SAY, Pods, allocated, life

CLAIM = "shared"


def reader(name: str, node: Node) -> Object:
    """A pod that has the claim, says which devices it has, and reads from the stick."""
    body = pod(name, node.name, claims=(CLAIM,))
    [container] = body["spec"]["containers"]
    container |= {"name": "main", "command": ["sh", "-c", SAY + READ]}
    return body


def test_two_pods_of_one_claim_have_its_device_until_the_last_has_ended(
    pods: Pods, node: Node, agent: NodeAgent, client: Client
) -> None:
    """The kubelet asks to prepare it for the first pod, and to end it after the last."""

    def said(event: str) -> int:
        whose = f"{pods.namespace}/{CLAIM}"
        return len([line for line in agent.logged(event) if line["claim"] == whose])

    pods.apply(claim(CLAIM, STICK_CLASS), reader("first", node))
    pods.until_running("first")
    shared = client.get(f"{RESOURCE}/namespaces/{pods.namespace}/resourceclaims/{CLAIM}")
    assert allocated(shared) == [STICK_NAME]
    assert pods.spec(shared) == STICK_NODES
    pods.apply(reader("second", node))
    started = life(pods.until_running("second"))
    for name in ("first", "second"):
        assert pods.until_devices(name) == STICK_NODES
        pods.until_said_more(name)
    assert said("claim.prepared") == 1

    pods.delete("first")
    assert said("claim.released") == 0
    assert pods.spec(shared) == STICK_NODES
    pods.until_said_more("second")
    assert "could not" not in pods.said("second")
    assert life(pods.until_running("second")) == started

    pods.delete("second")
    assert said("claim.released") == 1
    assert pods.specs() == []
    assert said("claim.prepared") == 1
    assert pods.failures() == []
