from pathlib import Path

import pytest

from liken_events.core.model.snapshot import Snapshot
from liken_events.simulate.tree import MachineTree
from tests.fakes.agents import Build


@pytest.fixture(scope="session")
def standing(tmp_path_factory: pytest.TempPathFactory) -> Build:
    """Machines of files that nobody changes, each made once for all tests."""
    known: dict[tuple[Snapshot, bool], MachineTree] = {}

    def made(snapshot: Snapshot, *, clutter: bool = False) -> MachineTree:
        key = snapshot, clutter
        if key not in known:
            root: Path = tmp_path_factory.mktemp("standing") / "machine"
            known[key] = MachineTree.build(snapshot, str(root), clutter=clutter)
        return known[key]

    return made
