"""`python -m liken_events` is `liken-events`."""

import sys

from liken_events.cli import main

if __name__ == "__main__":
    sys.exit(main())
