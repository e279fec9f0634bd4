"""One cluster for all tests here, and what its programs logged when a test fails."""

import shutil
import sys
import tempfile
from collections.abc import Generator, Iterator

import pytest

from tests.cluster.real.client import Client
from tests.cluster.real.control_plane import ControlPlane
from tests.cluster.real.node import Node, what_is_missing
from tests.cluster.real.programs import MODULE, Programs, find

STARTED = pytest.StashKey[list[ControlPlane | Node]]()


@pytest.fixture(scope="session")
def programs() -> Programs:
    """The programs, which are built beforehand."""
    found = find()
    if found is None:
        pytest.exit(f"no programs of Kubernetes: {sys.executable} -m {MODULE}", returncode=1)
    return found


@pytest.fixture(scope="session")
def control_plane(programs: Programs, request: pytest.FixtureRequest) -> Iterator[ControlPlane]:
    """The control plane. Tests choose names of their own for what they make in it."""
    directory = tempfile.mkdtemp(prefix="control-plane-")
    try:
        with ControlPlane(programs, directory) as started:
            request.session.stash.setdefault(STARTED, []).append(started)
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
        with Node(programs, control_plane, directory, "native") as started:
            request.session.stash.setdefault(STARTED, []).append(started)
            yield started
    finally:
        shutil.rmtree(directory)


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
