"""The command line: what is typed, and what becomes of it.

`run` and `watch` follow the machine; `inventory`, `explain` and `snapshot` look at it once. All of
them take the same options, so that a made-up tree or a recorded machine works like a real one.
Results go to standard output, the log and errors to standard error.

This file picks the command and turns every failure that is known into one sentence and an exit
status. The words are parsed in `arguments`; the commands are in `commands.look` and
`commands.follow`.
"""

import os
import sys
from collections.abc import Callable

from liken_events import log
from liken_events.arguments import EXIT_USAGE, Arguments, parse
from liken_events.commands import CommandError, follow, look
from liken_events.config import Config, ConfigError, load
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
}


def main(words: list[str] | None = None) -> int:
    """Runs one command.

    Args:
        words: what was typed after the program's name; None for the process's own arguments.

    Returns:
        The exit status: 0, 1 for a command that failed, 2 for wrong usage or configuration.
    """
    arguments = parse(words)
    try:
        config = load(file=arguments.config, environ=os.environ, flags=arguments.flags)
        log.configure(form=config.log_format, level=config.log_level)
        return _COMMANDS[arguments.command](config, arguments)
    except ConfigError as error:
        return _complain(str(error), EXIT_USAGE)
    except (CommandError, ScanFailed) as error:
        return _complain(str(error), EXIT_FAILED)
    except BrokenPipeError:
        # Whoever read the output has seen enough; Python would complain once more at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED


def _complain(text: str, status: int) -> int:
    sys.stderr.write(f"liken-events: {printable(text)}\n")
    return status
