"""One guest with one agent for all tests here, and what they show when one fails."""

import json
import os
import shutil
import tempfile
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest

from tests.vm.claims import FOLDER, Claims
from tests.vm.desk import Desk, start_agent
from tests.vm.gadgets import Gadgets
from tests.vm.hardware import AT_BOOT, Hardware
from tests.vm.machine import Machine, what_is_missing
from tests.vm.recorded import recorded

RECORDINGS = "VM_RECORDINGS"
"""An environment variable: a directory that gets a recording of each test's records."""


@pytest.fixture(scope="session")
def machine() -> Iterator[Machine]:
    """The guest."""
    missing = what_is_missing()
    if missing is not None:
        pytest.exit(missing, returncode=1)
    directory = tempfile.mkdtemp(prefix="vm-")  # short: sockets are below it
    try:
        with Machine(directory, list(AT_BOOT)) as guest:
            guest.control.do("uevents", files=RECORDINGS in os.environ)
            yield guest
    finally:
        shutil.rmtree(directory)


@pytest.fixture(scope="session")
def agent(machine: Machine) -> int:
    """The agent in the guest; all tests are about this one."""
    if RECORDINGS in os.environ:
        machine.control.do("follow", directory=FOLDER)
    return start_agent(machine)


@pytest.fixture
def desk(machine: Machine, agent: int, request: pytest.FixtureRequest) -> Iterator[Desk]:
    """The guest as this test sees it. When the test is over and its devices are pulled out, what
    is published must be what was before, and nothing else may ever have changed."""
    if machine.control.ended:
        pytest.exit(f"the guest is no more:\n{machine.console()}", returncode=1)
    found = Desk(machine, agent)
    request.node.stash[DESK] = found
    yield found
    found.until_as_before()
    if not found.failed:
        found.assert_bystanders_stayed()
        assert found.logged("part.failed") == []
    keep_recording(found, request.node.name)


@pytest.fixture
def hardware(desk: Desk, machine: Machine, tmp_path: Path) -> Iterator[Hardware]:
    """Devices of QEMU's; they are pulled out at the end."""
    plugged = Hardware(machine, str(tmp_path))
    yield plugged
    plugged.pull_all()


@pytest.fixture
def claims(desk: Desk) -> Iterator[Claims]:
    """Claims for devices of the guest; they are released at the end."""
    held = Claims(desk)
    yield held
    held.release_all()


@pytest.fixture
def gadgets(desk: Desk) -> Iterator[Gadgets]:
    """USB devices that the guest makes for itself; they are pulled out at the end."""
    plugged = Gadgets(desk)
    yield plugged
    plugged.pull_all()


DESK = pytest.StashKey[Desk]()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Adds to a failed test's report what the guest said."""
    report = yield
    desk = item.stash.get(DESK, None)
    if report.failed and desk is not None:
        desk.failed = True
        start = desk.control.records[desk.start]["time"] if desk.records("uevent") else 0
        told = [
            f"{record['time'] - start:9.3f} {shown(record)}"
            for record in desk.control.records[desk.start :]
            if record["kind"] not in {"sysfs", "table"}
        ]
        report.sections.append(("the guest's records", "\n".join(told)))
        report.sections.append(("the guest's console", desk.machine.console()))
    return report


def shown(record: dict[str, object]) -> str:
    """A record as one line."""
    if record["kind"] == "uevent":
        properties = record["properties"]
        assert isinstance(properties, dict)
        names = ("ACTION", "DEVPATH", "SUBSYSTEM", "DRIVER", "DEVNAME")
        return " ".join([str(record["group"]), *(properties.get(name, "-") for name in names)])
    hidden = ("kind", "time", "raw", "pid", "directory")
    return json.dumps({key: value for key, value in record.items() if key not in hidden})


def keep_recording(desk: Desk, name: str) -> None:
    """Writes what the guest told during a test to a file, if it is asked for."""
    directory = os.environ.get(RECORDINGS)
    if directory and not desk.failed:
        os.makedirs(directory, exist_ok=True)
        with open(os.path.join(directory, f"{name}.jsonl"), "w", encoding="utf-8") as file:
            for record in recorded(desk):
                file.write(json.dumps(record) + "\n")
