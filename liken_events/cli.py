"""The command line: what is typed, and what becomes of it.

`run` and `watch` follow the machine; `inventory`, `explain` and `snapshot` look at it once;
`claim`, `claims` and `release` are for a machine without a cluster. All of them take the same
options, so that a made-up tree or a recorded machine works like a real one.
Results go to standard output, the log and errors to standard error.

This file picks the command and turns every failure that is known into one sentence and an exit
status. The words are parsed in `arguments`; the commands are in `commands.look`,
`commands.follow` and `commands.claims`.
"""

import contextlib
import io
import os
import sys
from collections.abc import Callable
from typing import TextIO

from liken_events import log
from liken_events.arguments import EXIT_USAGE, Arguments, parse
from liken_events.commands import CommandError, claims, follow, look
from liken_events.config import CONFIG_VARIABLE, Config, ConfigError, load
from liken_events.core.model.names import printable
from liken_events.sources import ScanFailed

EXIT_FAILED = 1
EXIT_INTERRUPTED = 130
"""128 + SIGINT, as shells have it."""

_COMMANDS: dict[str, Callable[[Config, Arguments], int]] = {
    "run": follow.run,
    "watch": follow.watch,
    "inventory": look.inventory,
    "explain": look.explain,
    "snapshot": look.snapshot,
    "claim": claims.claim,
    "claims": claims.claims,
    "release": claims.release,
}


def main(words: list[str] | None = None) -> int:
    """Runs one command.

    Args:
        words: what was typed after the program's name; None for the process's own arguments.

    Returns:
        The exit status: 0, 1 for a command that failed, 2 for wrong usage or configuration, 130
        for Ctrl-C.
    """
    _open_standard_files()
    status = 0
    try:
        try:
            arguments = parse(words)
            file = arguments.config or os.environ.get(CONFIG_VARIABLE) or None
            config = load(file=file, environ=os.environ, flags=arguments.flags)
            log.configure(form=config.log_format, level=config.log_level)
            status = _COMMANDS[arguments.command](config, arguments)
        finally:
            _flush_output()  # at Python's own end it would be too late for one sentence
    # The commands that follow run in nurseries, which put every error into a group.
    except* ConfigError as group:
        status = _complain(group, EXIT_USAGE)
    except* (CommandError, ScanFailed) as group:
        status = _complain(group, EXIT_FAILED)
    except* BrokenPipeError:
        _drop(sys.stdout)  # whoever read it has seen enough
    except* OSError as group:
        _drop(sys.stdout)
        status = _complain(group, EXIT_FAILED)
    except* KeyboardInterrupt:
        status = EXIT_INTERRUPTED
    finally:
        _flush_log()
    return status


def _complain(error: BaseException, status: int) -> int:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    with contextlib.suppress(OSError):  # the status says it too
        sys.stderr.write(f"liken-events: {printable(str(error))}\n")
    return status


def _open_standard_files() -> None:
    """Makes standard files of which it can be told whether they can be used.

    Where the shell closed one (`>&-`), Python has None, and the kernel would give its number to
    the next file that is opened. What stands in for it can be inherited; nothing can be read from
    it, the log is lost, and results cannot be written, which is an error.

    Where Python is told not to buffer, what could not be written is forgotten, and so is the error
    if the writer does not look (argparse does not).
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            handle = os.open(os.devnull, os.O_WRONLY if name == "stderr" else os.O_RDONLY)
            os.set_inheritable(handle, True)
            setattr(sys, name, open(handle, mode, encoding="utf-8"))  # noqa: SIM115  # stays open
    raw = getattr(sys.stdout, "buffer", None)
    if isinstance(raw, io.FileIO):
        sys.stdout = open(  # noqa: SIM115  # stays open
            raw.fileno(),
            "w",
            encoding=sys.stdout.encoding,
            errors=sys.stdout.errors,
            closefd=False,
        )


def _flush_output() -> None:
    """Hands over what a command printed. What could not be written is still in the buffer, and
    fails here once more: so this error is told from all others."""
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        _drop(sys.stdout)
        raise CommandError(f"standard output cannot be written: {error.strerror}") from None


def _flush_log() -> None:
    try:
        sys.stderr.flush()
    except OSError:
        _drop(sys.stderr)


def _drop(stream: TextIO) -> None:
    """What is still in the buffer cannot be written either, and Python would complain once more,
    and end with a status of its own."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
