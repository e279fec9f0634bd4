"""One cluster for all tests here, and what its programs logged when a test fails."""

import os
import shutil
import sys
import tempfile
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from typing import Protocol

import pytest

from tests.cluster.real.accounts import admit
from tests.cluster.real.agent_network import AgentNetwork
from tests.cluster.real.client import Client
from tests.cluster.real.control_plane import ControlPlane
from tests.cluster.real.documented import Documented, apply
from tests.cluster.real.made_up_machine import MadeUpMachine
from tests.cluster.real.node import Node, what_is_missing
from tests.cluster.real.node_agent import NodeAgent
from tests.cluster.real.pods import END_SECONDS, Pods
from tests.cluster.real.polling import poll
from tests.cluster.real.programs import MODULE, NEWEST, Programs, find

ACCOUNT_SECONDS = 60.0
"""Bound for the controllers to make a namespace's account. It takes a moment; after an API server
that was restarted they come back within half a minute."""


class Logging(Protocol):
    """What was started, and logs."""

    def logs(self) -> dict[str, str]: ...


STARTED = pytest.StashKey[list[Logging]]()


@contextmanager
def logs_shown(request: pytest.FixtureRequest, started: Logging) -> Iterator[None]:
    """Has a test that fails meanwhile show the logs of what was started."""
    shown = request.session.stash.setdefault(STARTED, [])
    shown.append(started)
    yield
    shown.remove(started)


@pytest.fixture(scope="session")
def programs() -> Programs:
    """The programs, which are built beforehand; `KUBERNETES` names another release."""
    release = os.environ.get("KUBERNETES", NEWEST)
    found = find(release)
    if found is None:
        pytest.exit(
            f"no programs of Kubernetes: {sys.executable} -m {MODULE} {release}", returncode=1
        )
    return found


@pytest.fixture(scope="session")
def control_plane(programs: Programs, request: pytest.FixtureRequest) -> Iterator[ControlPlane]:
    """The control plane. Tests choose names of their own for what they make in it."""
    directory = tempfile.mkdtemp(prefix="control-plane-")
    try:
        with ControlPlane(programs, directory) as started, logs_shown(request, started):
            yield started
    finally:
        shutil.rmtree(directory)


@pytest.fixture
def client(control_plane: ControlPlane) -> Client:
    """The administrator of the control plane."""
    return control_plane.client


@pytest.fixture(scope="session")
def node(
    programs: Programs, control_plane: ControlPlane, request: pytest.FixtureRequest
) -> Iterator[Node]:
    """The node. Pods that a test makes on it are gone when it is over."""
    missing = what_is_missing()
    if missing is not None:
        pytest.exit(missing, returncode=1)
    directory = tempfile.mkdtemp(prefix="node-")
    try:
        with (
            Node(programs, control_plane, directory, "native") as started,
            logs_shown(request, started),
        ):
            yield started
    finally:
        shutil.rmtree(directory)


@pytest.fixture(scope="session")
def network(programs: Programs, control_plane: ControlPlane) -> Iterator[AgentNetwork]:
    """Where agents are that hear made-up uevents."""
    with (
        tempfile.TemporaryDirectory(prefix="network-") as directory,
        AgentNetwork(programs, directory, control_plane.port) as made,
    ):
        yield made


@pytest.fixture(scope="session")
def session_machine(node: Node, network: AgentNetwork) -> Iterator[MadeUpMachine]:
    """One for all tests; they take `machine`."""
    with tempfile.TemporaryDirectory(prefix="machine-") as directory:
        yield MadeUpMachine(f"{directory}/tree", f"{node.room.root}/dev", network.sender)


@pytest.fixture(scope="session")
def session_agent(
    control_plane: ControlPlane,
    node: Node,
    session_machine: MadeUpMachine,
    network: AgentNetwork,
    request: pytest.FixtureRequest,
) -> Iterator[NodeAgent]:
    """One for all tests; they take `agent`."""
    kubeconfig = admit(control_plane, node.name)
    made = NodeAgent(node, session_machine, control_plane.client, kubeconfig, network.path)
    with logs_shown(request, made):
        yield made
        made.stop()


@pytest.fixture
def machine(session_machine: MadeUpMachine) -> MadeUpMachine:
    """The hardware of the node, as it is at first."""
    session_machine.restore()
    return session_machine


@pytest.fixture
def agent(session_agent: NodeAgent, machine: MadeUpMachine) -> NodeAgent:
    """The agent of the node, which runs and has published all."""
    session_agent.ensure()
    return session_agent


@pytest.fixture(scope="session")
def documented(control_plane: ControlPlane) -> Documented:
    """The objects of the document, of which the classes are in the cluster."""
    found = Documented()
    for name in found.names("DeviceClass"):
        apply(control_plane.client, found.get("DeviceClass", name))
    return found


@pytest.fixture
def pods(client: Client, node: Node, agent: NodeAgent, documented: Documented) -> Iterator[Pods]:
    """A namespace on the node with the agent. When the test is over its pods are gone, and of its
    claims nothing is left."""
    made = client.create(
        "/api/v1/namespaces",
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"generateName": "pods-"}},
    )
    name = made["metadata"]["name"]
    account = f"/api/v1/namespaces/{name}/serviceaccounts/default"
    client.until(account, bool, seconds=ACCOUNT_SECONDS)
    pods = Pods(client, node, name)
    yield pods
    agent.ensure()
    pods.delete_all()
    assert poll(lambda: not pods.specs(), END_SECONDS), pods.specs()
    client.delete(f"/api/v1/namespaces/{name}")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Adds to a failed test's report what the programs logged."""
    report = yield
    if report.failed:
        for started in item.session.stash.get(STARTED, []):
            for name, text in started.logs().items():
                report.sections.append((f"{name}'s log", text))
    return report
