"""`liken-events` with a simulation that does not wait for anybody to read along."""

from collections.abc import Sequence
from functools import partial

import pytest

from liken_events import cli
from liken_events.commands import demo


def main(words: Sequence[str]) -> int:
    """Runs one command; returns its exit status."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(demo, "simulate", partial(demo.simulate, pause=0, spread=0))
        return cli.main(list(words))
