"""An agent with the rights that `packaging/kustomize` gives it, and no others."""

from collections.abc import Callable, Iterator
from contextlib import closing
from typing import TypeAlias

import pytest

from liken_events.simulate.tree import MachineTree
from tests.cluster.real import manifests
from tests.cluster.real.accounts import (
    FORCE_SECONDS,
    AgentPod,
    is_kept_to_its_node,
    user_of,
)
from tests.cluster.real.agents import SLICES, Agent
from tests.cluster.real.client import Client
from tests.cluster.real.control_plane import ControlPlane
from tests.cluster.real.polling import poll

ACCOUNT = "liken-events"
NODE = "mine"

Run: TypeAlias = Callable[[MachineTree], Agent]


@pytest.fixture(scope="session")
def pod(
    control_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[AgentPod]:
    """The agent's pod on the node `mine`. Account, rights and policy are in force."""
    for name in ("namespace.yaml", "access.yaml", "admission.yaml"):
        manifests.apply(control_plane.client, name)
    directory = str(tmp_path_factory.mktemp("account"))
    with AgentPod(control_plane, directory, NODE, manifests.NAMESPACE, ACCOUNT) as made:
        with closing(user_of(control_plane, made.token)) as user:
            assert poll(lambda: is_kept_to_its_node(user), FORCE_SECONDS)
        yield made


@pytest.fixture
def mine(control_plane: ControlPlane, pod: AgentPod) -> Iterator[Client]:
    """The API server, as the agent's pod sees it."""
    with closing(user_of(control_plane, pod.token)) as user:
        yield user


@pytest.fixture
def run_agent(control_plane: ControlPlane, client: Client, pod: AgentPod) -> Iterator[Run]:
    """Makes an agent of the node `mine` with its pod's token. Its slice goes with the test."""
    path = f"{SLICES}/{NODE}-liken.sh"
    yield lambda tree: Agent(control_plane, tree, NODE, account=pod.directory)
    if client.find(path) is not None:
        client.delete(path)
        client.until_gone(path)
