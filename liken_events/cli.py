"""The command line: what is typed, and what becomes of it.

`run` and `watch` follow the machine; `inventory`, `explain` and `snapshot` look at it once;
`claim`, `claims` and `release` are for a machine without a cluster. All of them take the same
options, so that a made-up tree or a recorded machine works like a real one.
Results go to standard output, the log and errors to standard error.

This file picks the command and turns every failure that is known into one sentence and an exit
status. The words are parsed in `arguments`; the commands are in `commands.look`,
`commands.follow` and `commands.claims`.
"""

import os
import sys
from collections.abc import Callable

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
    status = 0
    try:
        try:
            arguments = parse(words)
            file = arguments.config or os.environ.get(CONFIG_VARIABLE) or None
            config = load(file=file, environ=os.environ, flags=arguments.flags)
            log.configure(form=config.log_format, level=config.log_level)
            status = _COMMANDS[arguments.command](config, arguments)
        finally:
            sys.stdout.flush()  # at Python's own end it would be too late for one sentence
    # The commands that follow run in nurseries, which put every error into a group.
    except* ConfigError as group:
        status = _complain(group, EXIT_USAGE)
    except* (CommandError, ScanFailed) as group:
        status = _complain(group, EXIT_FAILED)
    except* BrokenPipeError:
        _drop_output()  # whoever read it has seen enough
    except* OSError as group:
        _drop_output()
        status = _complain(group, EXIT_FAILED)
    except* KeyboardInterrupt:
        status = EXIT_INTERRUPTED
    return status


def _complain(error: BaseException, status: int) -> int:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    sys.stderr.write(f"liken-events: {printable(str(error))}\n")
    return status


def _drop_output() -> None:
    """What is still in the buffer cannot be written either, and Python would complain once
    more."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
