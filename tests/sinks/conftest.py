"""Two agents that keep the same claims."""

from pathlib import Path

import pytest

from tests.fakes.agents import Build
from tests.fakes.keeping import OTHER, STICK, Keeping
from tests.fakes.machines import machine


@pytest.fixture
async def both(build: Build, tmp_path: Path) -> tuple[Keeping, Keeping]:
    """The old one and the new one, which started before anything was prepared."""
    old = Keeping(build(machine([STICK, OTHER])), tmp_path)
    new = old.anew()
    for kept in (old, new):
        await kept.holdings.restore()
        kept.look()
    return old, new
