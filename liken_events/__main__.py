"""Where the program begins; `python -m liken_events` is `liken-events`.

The kernel gives the first process of a PID namespace, which an agent is in a pod, no signal that
it does not handle. Loading all parts takes half a second, and an agent that is told to end
meanwhile would run on, and publish, until it is killed.

This file sees to that before anything else is loaded.
"""

import os
import signal
import sys


def main() -> int:
    """Runs the command line and returns its exit status."""
    if os.getpid() == 1:
        signal.signal(signal.SIGTERM, _end)

    from liken_events import cli

    return cli.main()


def _end(number: int, _: object) -> None:
    os._exit(128 + number)


if __name__ == "__main__":
    sys.exit(main())
