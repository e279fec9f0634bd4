"""The node by itself: pods run on it, a kubelet that is restarted keeps them, nothing is left."""

import os
import tempfile
from functools import partial
from pathlib import Path

from tests.cluster.real.cgroups import hierarchies
from tests.cluster.real.client import Client
from tests.cluster.real.control_plane import ControlPlane
from tests.cluster.real.node import Node
from tests.cluster.real.objects import pod
from tests.cluster.real.polling import poll
from tests.cluster.real.programs import Programs
from tests.cluster.real.room import SYSCTLS

PODS = "/api/v1/namespaces/default/pods"


def machine() -> dict[str, object]:
    """What a node must leave as it was."""
    tops = ["/etc", "/run", "/var/lib", "/var/log"]
    return {
        "mounts": Path("/proc/self/mountinfo").read_text(),
        "cgroups": [name for top in hierarchies() for name in os.listdir(top)],
        "sysctls": [Path("/proc/sys", name).read_text() for name in SYSCTLS],
        "places": [sorted(os.listdir(top)) for top in tops],
    }


def is_running(pod: dict[str, object]) -> bool:
    status = pod["status"]
    assert isinstance(status, dict)
    return status.get("phase") == "Running"


def test_a_pod_runs_and_says_something(node: Node, client: Client) -> None:
    body = pod("speaks", node.name)
    body["spec"]["containers"][0]["command"] = ["sh", "-c", "echo here; exec sleep 100000"]
    client.create(PODS, body)
    client.until(f"{PODS}/speaks", is_running, seconds=30)
    said = partial(node.pod_log, "default", "speaks", "sleeper")
    poll(lambda: said() == "here\n", 10)  # it runs a moment before it speaks
    assert said() == "here\n"
    client.delete(f"{PODS}/speaks")
    client.until_gone(f"{PODS}/speaks", seconds=30)


def test_a_pod_outlives_a_kubelet(node: Node, client: Client) -> None:
    client.create(PODS, pod("stays", node.name))
    client.until(f"{PODS}/stays", is_running, seconds=30)
    started = client.get(f"{PODS}/stays")["status"]["containerStatuses"][0]["containerID"]
    node.restart_kubelet()
    found = client.get(f"{PODS}/stays")["status"]["containerStatuses"][0]
    assert (found["containerID"], found["restartCount"]) == (started, 0)
    client.delete(f"{PODS}/stays")
    client.until_gone(f"{PODS}/stays", seconds=30)


def test_nothing_is_left_of_a_node(
    programs: Programs, control_plane: ControlPlane, client: Client
) -> None:
    before = machine()
    with (
        tempfile.TemporaryDirectory(prefix="node-") as directory,
        Node(programs, control_plane, directory, "short") as node,
    ):
        client.create(PODS, pod("short", "short"))
        client.until(f"{PODS}/short", is_running, seconds=30)
        inside = f"{node.room.root}/proc"
        assert "containerd-shim" in "".join(
            Path(inside, name, "comm").read_text() for name in os.listdir(inside) if name.isdigit()
        )
    assert machine() == before
    client.delete(f"{PODS}/short", grace=0)
    client.until_gone(f"{PODS}/short", seconds=30)
    client.delete("/api/v1/nodes/short")
