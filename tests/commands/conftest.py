import tempfile
from pathlib import Path

import pytest

from liken_events.core.model.snapshot import Snapshot
from liken_events.simulate.tree import MachineTree
from tests.fakes.agents import Build
from tests.fakes.quick_demo import SMALL, saved


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


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The directory for temporary files, with nothing in it."""
    path = tmp_path / "temporary"
    path.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(path))
    return path


@pytest.fixture
def small(tmp_path: Path) -> str:
    """A file with the small machine."""
    return saved(SMALL, tmp_path)
