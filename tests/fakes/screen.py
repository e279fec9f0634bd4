"""A terminal, as far as a program can tell: what it shows, and what is typed on it."""

import os
import pty
import re
import subprocess
import sys
import termios
import threading
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Self

ENVIRONMENT = {"TERM": "xterm-256color", "COLORTERM": "", "PYTHONUNBUFFERED": ""}
"""What a terminal puts into the environment, as far as it matters here."""

OVERRIDES = ("NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE", "COLUMNS", "LINES")
"""Variables by which a person changes what a terminal gets."""

CTRL_C = b"\x03"
STYLES = re.compile(r"\x1b\[[0-9;]*m")
"""The only escape sequence that tables and lines have a use for: colours and weights."""


class Screen:
    """A pseudo terminal. Use as a context manager.

    Args:
        columns: its width.

    Attributes:
        descriptor: the side that a program writes to.
    """

    def __init__(self, columns: int = 80) -> None:
        self._raw = b""
        self._ours, self.descriptor = pty.openpty()
        termios.tcsetwinsize(self.descriptor, (40, columns))
        self._reader = threading.Thread(target=self._read, daemon=True)

    def __enter__(self) -> Self:
        self._reader.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is None:
            self.finish()
        os.close(self._ours)

    @property
    def text(self) -> str:
        """All that was shown, with escape sequences, and plain ends of lines."""
        return self._raw.decode("utf-8").replace("\r\n", "\n")

    @property
    def plain(self) -> str:
        """All that was shown, without colours."""
        return STYLES.sub("", self.text)

    def type(self, keys: bytes) -> None:
        """Presses keys."""
        os.write(self._ours, keys)

    def finish(self) -> None:
        """Lets go of the program's side, and reads what the program has written until it let go
        too."""
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1
        self._reader.join(timeout=20)
        assert not self._reader.is_alive(), "somebody still writes to the terminal"

    def _read(self) -> None:
        while True:
            try:
                found = os.read(self._ours, 65536)
            except OSError:  # EIO: nobody has the other side any more
                return
            self._raw += found


def process(
    screen: Screen, words: Sequence[str], environ: Mapping[str, str] | None = None
) -> subprocess.Popen[bytes]:
    """Starts `python -m liken_events` on a terminal of its own."""
    clean = {name: value for name, value in os.environ.items() if name not in OVERRIDES}
    return subprocess.Popen(
        ["setsid", "--ctty", sys.executable, "-m", "liken_events", *words],
        stdin=screen.descriptor,
        stdout=screen.descriptor,
        stderr=screen.descriptor,
        env={**clean, **ENVIRONMENT, **(environ or {})},
    )
