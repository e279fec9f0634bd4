"""The command line in this process: what is typed, and what a pipe or a terminal gets."""

import io
import os
import sys
from dataclasses import dataclass

import pytest
import structlog

from liken_events.cli import main
from liken_events.options import ENVIRONMENT as SETTINGS
from liken_events.simulate.tree import MachineTree
from tests.fakes.screen import ENVIRONMENT, OVERRIDES, Screen


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """A command that ended: its exit status, and what it wrote."""

    status: int
    out: str
    err: str


def typed(*words: str, stdin: str = "", columns: int | None = None) -> Ran:
    """Runs a command.

    Args:
        words: what is typed after `liken-events`.
        stdin: what standard input holds.
        columns: width of the terminal that standard output is; None for a pipe.
    """
    with pytest.MonkeyPatch.context() as patch:
        for name in os.environ:
            if name in OVERRIDES or name.startswith(SETTINGS):
                patch.delenv(name)
        err = io.StringIO()
        patch.setattr(sys, "stdin", io.StringIO(stdin))
        patch.setattr(sys, "stderr", err)
        if columns is None:
            out = io.StringIO()
            patch.setattr(sys, "stdout", out)
            return Ran(status=_run(words), out=out.getvalue(), err=err.getvalue())
        for name, value in {**ENVIRONMENT, "COLUMNS": str(columns)}.items():
            patch.setenv(name, value)
        with Screen(columns) as screen:
            with open(screen.descriptor, "w", encoding="utf-8", closefd=False) as terminal:
                patch.setattr(sys, "stdout", terminal)
                status = _run(words)
            screen.finish()
            return Ran(status=status, out=screen.text, err=err.getvalue())


def _run(words: tuple[str, ...]) -> int:
    try:
        return main(list(words))
    except SystemExit as ended:
        return int(ended.code or 0)
    finally:
        structlog.reset_defaults()  # the log went to a stream that is gone now


def at(tree: MachineTree) -> list[str]:
    """The flags that make a command look at a machine of files."""
    return [
        f"--sys-root={tree.sys}",
        f"--dev-root={tree.dev}",
        f"--proc-root={tree.proc}",
        f"--pci-ids={tree.pci_ids}",
    ]
