"""One guest that is a node, with one agent, for all tests here. What is in the cluster beside it,
and a test's pods, are the directory's above."""

import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.cluster.real.accounts import admit
from tests.cluster.real.conftest import logs_shown
from tests.cluster.real.control_plane import ControlPlane
from tests.cluster.real.guest.agent import GuestAgent
from tests.cluster.real.guest.node import GuestNode, server_of
from tests.cluster.real.node import what_is_missing as what_a_node_lacks
from tests.cluster.real.programs import Programs
from tests.vm.gadgets import Gadgets
from tests.vm.hardware import Hardware
from tests.vm.machine import what_is_missing as what_a_guest_lacks

ACCOUNT = "guest-agent"

Lap = Callable[[str], None]


@pytest.fixture(scope="module")
def node(
    programs: Programs, control_plane: ControlPlane, request: pytest.FixtureRequest
) -> Iterator[GuestNode]:
    """The guest. It is there for one module: while others run, it would take their time."""
    missing = what_a_node_lacks() or what_a_guest_lacks()
    if missing is not None:
        pytest.exit(missing, returncode=1)
    directory = tempfile.mkdtemp(prefix="guest-")  # short: sockets are below it
    try:
        with (
            GuestNode(programs, control_plane, directory, "guest") as started,
            logs_shown(request, started),
        ):
            yield started
    finally:
        shutil.rmtree(directory)


@pytest.fixture(scope="module")
def agent(
    control_plane: ControlPlane, node: GuestNode, request: pytest.FixtureRequest
) -> Iterator[GuestAgent]:
    """The agent of the guest."""
    kubeconfig = admit(control_plane, node.name, ACCOUNT, server_of(control_plane))
    # The guest has the files that were there when it booted.
    node.place.write(kubeconfig, Path(kubeconfig).read_text(encoding="utf-8"))
    made = GuestAgent(node, control_plane.client, kubeconfig)
    with logs_shown(request, made):
        yield made


@pytest.fixture
def hardware(node: GuestNode, agent: GuestAgent, tmp_path: Path) -> Iterator[Hardware]:
    """Devices of QEMU's. They are pulled out at the end, and then the slice is as it was: a test
    takes it before its pods, which end first."""
    plugged = Hardware(node.machine, str(tmp_path))
    yield plugged
    plugged.pull_all()
    agent.until_slice(lambda names: names == agent.base)


@pytest.fixture
def gadgets(agent: GuestAgent) -> Iterator[Gadgets]:
    """USB devices that the guest makes for itself; the same is true of them."""
    plugged = Gadgets(agent.desk)
    yield plugged
    plugged.pull_all()
    agent.until_slice(lambda names: names == agent.base)


@pytest.fixture
def lap(record_property: Callable[[str, object], None], capsys: pytest.CaptureFixture[str]) -> Lap:
    """Writes how long each step of a test took: call it after the step, with a name for it."""
    since = time.monotonic()

    def write(step: str) -> None:
        nonlocal since
        now = time.monotonic()
        record_property(step, now - since)
        with capsys.disabled():
            sys.stdout.write(f"\n  {now - since:6.1f} s  {step}")
        since = now

    return write
