"""Logs: one event name a thing, and key-value pairs.

Somebody reads the logs of a node agent when hardware did not do what was expected, often by
machine and much later. So an event has a fixed name, its facts are fields, and text that came out
of a device cannot break a line or a terminal.

This file sets structlog up. Names of events are dotted, subject first: `device.added`,
`slice.patched`.
"""

import contextlib
import io
import logging
import os
import sys
import traceback
from collections.abc import MutableMapping
from typing import Any, TextIO, cast

import structlog

from liken_events.core.model.names import printable

_TRACEBACKS = structlog.processors.ExceptionRenderer(
    structlog.tracebacks.ExceptionDictTransformer(show_locals=False)
)
"""Tracebacks as JSON, without local variables: one of them may be a token."""


class _Lossy(io.TextIOBase):
    """Where lines go, as long as they can.

    A pipe whose reader is gone, a full disk: the line is lost, and nothing else. The machine is
    followed all the same, and the log goes on when there is room again. What the stream keeps of a
    line that it could not write is one buffer at most.
    """

    def __init__(self, out: TextIO) -> None:
        self._out = out

    def write(self, text: str) -> int:
        """Writes the text, or loses it."""
        with contextlib.suppress(OSError):
            self._out.write(text)
        return len(text)

    def flush(self) -> None:
        """Hands over what was written, or loses it."""
        with contextlib.suppress(OSError):
            self._out.flush()


def configure(*, form: str = "auto", level: str = "info", stream: TextIO | None = None) -> None:
    """Sets the log's form and threshold for the whole process.

    Args:
        form: `console` for people, `json` for machines; `auto` takes console on a terminal.
        level: `debug`, `info`, `warning` or `error`.
        stream: where to; standard error if None, looked up at each line.
    """
    out = stream if stream is not None else sys.stderr
    terminal = out.isatty()
    console = form == "console" or (form == "auto" and terminal)
    renderer: structlog.typing.Processor = (
        structlog.dev.ConsoleRenderer(
            colors=terminal and not os.environ.get("NO_COLOR"),
            pad_event_to=26,
            exception_formatter=_write_traceback,
        )
        if console
        else structlog.processors.JSONRenderer(ensure_ascii=True)
    )
    stamp = structlog.processors.TimeStamper(
        fmt="%H:%M:%S.%f" if console else "iso", utc=not console
    )
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            stamp,
            *([] if console else [_TRACEBACKS]),
            _escape,
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(getattr(logging, level.upper())),
        logger_factory=structlog.PrintLoggerFactory(cast("TextIO", _Lossy(out))),
        cache_logger_on_first_use=False,
    )


def _escape(
    _logger: Any,  # noqa: ANN401  # structlog's own signature
    _method: str,
    event: MutableMapping[str, Any],
) -> MutableMapping[str, Any]:
    """Makes every text printable: a device's own strings must not move a cursor or fake a second
    line."""
    for key, value in event.items():
        if key not in ("exception", "exc_info", "stack"):
            event[key] = _safe(value)
    return event


def _write_traceback(out: TextIO, error: structlog.typing.ExcInfo) -> None:
    """Writes a traceback for people, with the same care as every other text."""
    for part in traceback.format_exception(*error):
        for line in part.splitlines():
            out.write(f"\n{printable(line)}")


def _safe(value: object) -> object:
    match value:
        case str():
            return printable(value)
        case list() | tuple():
            return [_safe(item) for item in value]
        case dict():
            return {_safe(key): _safe(item) for key, item in value.items()}
        case None | bool() | int() | float():
            return value
        case _:
            return printable(str(value))
