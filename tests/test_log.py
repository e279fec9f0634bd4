import errno
import io
import json
from collections.abc import Iterator
from typing import Any

import pytest
import structlog

from liken_events import log

NASTY = "A\x1b[31m\r\nB\u200f\0\x9b"
BROKEN = "Natural\udcae"
"""Text with half a character, as decoding with surrogate escapes leaves it."""
SECRET = "hunter2"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class Strict(io.TextIOWrapper):
    """A stream that refuses what is no UTF-8, as a pipe to a journal does."""

    def __init__(self) -> None:
        self.raw_bytes = io.BytesIO()
        super().__init__(self.raw_bytes, encoding="utf-8", errors="strict", write_through=True)

    def text(self) -> str:
        return self.raw_bytes.getvalue().decode("utf-8")


@pytest.fixture(autouse=True)
def defaults_afterwards() -> Iterator[None]:
    yield
    structlog.reset_defaults()


def lines(form: str, **facts: Any) -> list[str]:
    out = Strict()
    log.configure(form=form, stream=out)
    structlog.get_logger().warning("device.added", **facts)
    return out.text().splitlines()


@pytest.mark.parametrize("form", ["json", "console"])
@pytest.mark.parametrize("text", [NASTY, BROKEN])
def test_text_of_a_device_stays_one_line_without_control_characters(form: str, text: str) -> None:
    nested = {"in a list": [text], "in a mapping": {text: text}}
    (line,) = lines(form, device=text, error=ValueError(text), **nested)
    assert line.isprintable()
    assert "\\" in line


def test_json_gives_facts_back_as_they_were() -> None:
    (line,) = lines(
        "json", device="usb-1", nodes=["/dev/a", "/dev/b"], count=2, ok=True, none=None
    )
    found = json.loads(line)
    assert found.pop("timestamp").endswith("Z")
    assert found == {
        "event": "device.added",
        "level": "warning",
        "device": "usb-1",
        "nodes": ["/dev/a", "/dev/b"],
        "count": 2,
        "ok": True,
        "none": None,
    }


def fail(password: str) -> None:
    raise ValueError(f"refused: {NASTY} {BROKEN}")


@pytest.mark.parametrize("form", ["json", "console"])
def test_a_traceback_shows_where_and_why_but_no_secrets(form: str) -> None:
    out = Strict()
    log.configure(form=form, stream=out)
    try:
        fail(SECRET)
    except ValueError:
        structlog.get_logger().exception("part.failed", part="slices")
    text = out.text()
    assert "refused" in text
    assert "fail" in text
    assert "test_log.py" in text
    assert SECRET not in text
    assert all(line.isprintable() for line in text.splitlines())
    if form == "json":
        assert len(text.splitlines()) == 1


@pytest.mark.parametrize(
    ("form", "terminal", "expected"),
    [
        ("auto", False, "json"),
        ("auto", True, "console"),
        ("json", True, "json"),
        ("console", False, "console"),
    ],
)
def test_people_get_text_and_machines_json(form: str, terminal: bool, expected: str) -> None:
    out = Terminal() if terminal else io.StringIO()
    log.configure(form=form, stream=out)
    structlog.get_logger().info("agent.starting", node="n1")
    assert (out.getvalue()[0] == "{") == (expected == "json")
    assert ("\x1b[" in out.getvalue()) == (terminal and expected == "console")


@pytest.mark.parametrize(("value", "coloured"), [("", True), ("1", False), ("0", False)])
def test_whoever_wants_no_colours_gets_none(
    monkeypatch: pytest.MonkeyPatch, value: str, coloured: bool
) -> None:
    monkeypatch.setenv("NO_COLOR", value)
    out = Terminal()
    log.configure(stream=out)
    structlog.get_logger().warning("device.added", device="usb-1")
    assert ("\x1b[" in out.getvalue()) == coloured
    assert "device.added" in out.getvalue()


class Full(io.StringIO):
    """A stream that may have no room."""

    room = False

    def write(self, text: str) -> int:
        if not self.room:
            raise OSError(errno.ENOSPC, "No space left on device")
        return super().write(text)

    def flush(self) -> None:
        if not self.room:
            raise BrokenPipeError


@pytest.mark.parametrize("form", ["json", "console"])
def test_a_line_that_cannot_be_written_is_lost_and_nothing_else(form: str) -> None:
    out = Full()
    log.configure(form=form, stream=out)
    structlog.get_logger().warning("lost.event")
    out.room = True
    structlog.get_logger().warning("later.event")
    [line] = out.getvalue().splitlines()
    assert "later.event" in line


def test_less_important_lines_are_left_out() -> None:
    out = io.StringIO()
    log.configure(form="json", level="warning", stream=out)
    logger = structlog.get_logger()
    for write in (logger.debug, logger.info, logger.warning, logger.error):
        write("some.event")
    assert [json.loads(line)["level"] for line in out.getvalue().splitlines()] == [
        "warning",
        "error",
    ]


def test_the_log_goes_to_standard_error(capsys: pytest.CaptureFixture[str]) -> None:
    log.configure(form="json")
    structlog.get_logger().info("agent.starting")
    captured = capsys.readouterr()
    assert captured.out == ""
    assert json.loads(captured.err)["event"] == "agent.starting"
