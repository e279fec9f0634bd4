"""How long it takes after a kubelet's start until all is as it was before."""

import time
from dataclasses import dataclass

from tests.cluster.real.client import Client
from tests.cluster.real.node import Node
from tests.cluster.real.node_agent import REGISTERED, NodeAgent

ALLOCATABLE_SECONDS = 30.0
"""Bound for the node's status. The kubelet's first, or one after `nodeStatusUpdateFrequency`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KubeletRestart:
    """One restart of a kubelet, in seconds since its process was started.

    Attributes:
        slice_created: the agent created its slice again, which the kubelet had deleted.
        driver_registered: the kubelet told the agent that it knows the driver.
        host_device_registered: the kubelet took the extended resource.
        allocatable: the node was seen to have units of the resource, in a status of this kubelet.
    """

    slice_created: float
    driver_registered: float
    host_device_registered: float
    allocatable: float


def restart_kubelet(node: Node, agent: NodeAgent, client: Client) -> KubeletRestart:
    """Restarts the kubelet under an agent that is ready, and waits until it is so again.

    Times of the agent are those of its log, that of the node is when a poll saw it.
    """
    slice_before = client.get(agent.slice_path)["metadata"]["uid"]
    node.stop_kubelet()
    none = {"ate.dev/kvm": "0"}  # so that the next status is known by having some
    client.patch(f"{node.path}/status", {"status": {"allocatable": none, "capacity": none}})
    node.start_kubelet()
    client.until(
        node.path,
        lambda body: body["status"]["allocatable"].get("ate.dev/kvm", "0") != "0",
        seconds=ALLOCATABLE_SECONDS,
    )
    allocatable = time.time()
    started = node.kubelet_started
    created, driver, host_device = agent.until_logged("slice.created", *REGISTERED, since=started)
    assert agent.until_published()["metadata"]["uid"] != slice_before
    return KubeletRestart(
        slice_created=created - started,
        driver_registered=driver - started,
        host_device_registered=host_device - started,
        allocatable=allocatable - started,
    )
