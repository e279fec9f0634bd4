import itertools
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import pytest
import structlog
from structlog.testing import capture_logs
from structlog.typing import EventDict
from trio.testing import MockClock

import liken_events.rpc  # noqa: F401  # before a test loads grpc: it turns its fork handlers off
from liken_events.core.model.snapshot import Snapshot
from liken_events.simulate.namespace import NoNamespace
from liken_events.simulate.tree import MachineTree
from tests.fakes.agents import Agent, Build, Launch
from tests.fakes.loop import Run, running
from tests.fakes.mount_namespace import MountNamespace, NoMounts
from tests.fakes.network import PrivateNetwork

LONGEST_QUEUE = 200_000
"""Events of an inotify queue that a test still overflows. The kernel's own number is 16,384."""


@pytest.fixture
def clock() -> MockClock:
    """A clock that jumps whenever everybody waits. A test has to ask for it by itself, or it gets
    real time."""
    return MockClock(autojump_threshold=0)


@pytest.fixture
def logs() -> Iterator[list[EventDict]]:
    """What is logged in this process."""
    structlog.reset_defaults()
    with capture_logs() as lines:
        yield lines


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs the loop on a machine in memory."""
    return partial(running, monkeypatch)


@pytest.fixture(scope="session")
def private_network() -> Iterator[PrivateNetwork | str]:
    """A network namespace of our own, or why there is none."""
    with ExitStack() as stack:
        try:
            network = stack.enter_context(PrivateNetwork())
        except NoNamespace as error:
            yield str(error)
        else:
            yield network


@pytest.fixture
def network(private_network: PrivateNetwork | str) -> PrivateNetwork:
    """A network namespace in which uevents reach nobody but the test."""
    if isinstance(private_network, str):
        pytest.skip(f"no network namespace of our own: {private_network}")
    return private_network


@pytest.fixture
def queue_length() -> int:
    """How many events an inotify queue holds, where it can be filled in good time. A fixture and
    no function: the reason of a skip inside an asynchronous test is not shown."""
    length = int(Path("/proc/sys/fs/inotify/max_queued_events").read_text("ascii"))
    if length > LONGEST_QUEUE:
        pytest.skip(f"the inotify queue holds {length} events here: too many to overflow it")
    return length


@pytest.fixture
def build(tmp_path: Path) -> Build:
    """Makes a machine of files from a snapshot."""
    numbers = itertools.count()

    def made(snapshot: Snapshot, *, clutter: bool = False) -> MachineTree:
        root = str(tmp_path / f"machine-{next(numbers)}")
        return MachineTree.build(snapshot, root, clutter=clutter)

    return made


@pytest.fixture
def launch(network: PrivateNetwork, tmp_path: Path) -> Iterator[Launch]:
    """Starts an agent on a tree; all agents of one test share a cluster directory. It is ended
    with the test, and must not have met a bug."""
    agents: list[Agent] = []
    with ExitStack() as stack:

        def start(tree: MachineTree, *flags: str) -> Agent:
            agent = Agent(network, tree, str(tmp_path / "cluster"), *flags)
            agents.append(agent)
            return stack.enter_context(agent)

        yield start
    for agent in agents:
        assert agent.stray == []
        assert agent.logged("part.failed") == []


@pytest.fixture
def mounts() -> Iterator[MountNamespace]:
    """A mount namespace of our own, seen from outside."""
    with ExitStack() as stack:
        try:
            namespace = stack.enter_context(MountNamespace())
        except NoMounts as error:
            pytest.skip(f"no mount namespace of our own: {error}")
        yield namespace
