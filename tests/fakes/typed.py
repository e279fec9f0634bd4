"""The command line in this process: what is typed, and what a pipe or a terminal gets."""

import io
import os
import sys
from collections.abc import Callable, Mapping
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


def typed(
    *words: str,
    stdin: str = "",
    columns: int | None = None,
    environ: Mapping[str, str] | None = None,
    run: Callable[[list[str]], int] = main,
) -> Ran:
    """Runs a command.

    Args:
        words: what is typed after `liken-events`.
        stdin: what standard input holds.
        columns: width of the terminal that standard output is; None for a pipe.
        environ: further environment variables.
        run: what runs it.
    """
    with pytest.MonkeyPatch.context() as patch:
        for name in list(os.environ):
            if name in OVERRIDES or name.startswith(SETTINGS):
                patch.delenv(name)
        shown = {} if columns is None else {**ENVIRONMENT, "COLUMNS": str(columns)}
        for name, value in {**shown, **(environ or {})}.items():
            patch.setenv(name, value)
        err = io.StringIO()
        patch.setattr(sys, "stdin", io.StringIO(stdin))
        patch.setattr(sys, "stderr", err)
        if columns is None:
            out = io.StringIO()
            patch.setattr(sys, "stdout", out)
            return Ran(status=_status(run, words), out=out.getvalue(), err=err.getvalue())
        with Screen(columns) as screen:
            with open(screen.descriptor, "w", encoding="utf-8", closefd=False) as terminal:
                patch.setattr(sys, "stdout", terminal)
                status = _status(run, words)
            screen.finish()
            return Ran(status=status, out=screen.text, err=err.getvalue())


def _status(run: Callable[[list[str]], int], words: tuple[str, ...]) -> int:
    try:
        return run(list(words))
    except SystemExit as ended:
        return int(ended.code or 0)
    finally:
        structlog.reset_defaults()  # the log went to a stream that is gone now


def at(tree: MachineTree) -> list[str]:
    """The flags that make a command look at a machine of files."""
    return [
        f"--cdi-dir={tree.root}/cdi",
        f"--sys-root={tree.sys}",
        f"--dev-root={tree.dev}",
        f"--proc-root={tree.proc}",
        f"--pci-ids={tree.pci_ids}",
    ]
