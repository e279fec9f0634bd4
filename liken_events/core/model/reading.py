"""Reading JSON that somebody may have written or cut by hand.

A snapshot in a bug report, and a record of a prepared claim after a power cut, are text that may
be anything. A reader must say which place is wrong and what was expected there, and must not take
what a newer version of this program wrote for something that it knows.

This file walks such text. What the values mean is left to whoever reads them.
"""

import json
from collections.abc import Mapping, Sequence

from liken_events.core.model.json import Json

FORMAT_KEY = "format"
"""Holds the version of the form."""


class ReadingError(ValueError):
    """The text is not what it should be; the message names the place and what was expected."""


def parse(text: str, where: str, *, newest: int) -> "Place":
    """The object that a text holds.

    Args:
        text: JSON with a `format`.
        where: what it is, for messages: `the snapshot`.
        newest: the highest format that the caller understands.

    Raises:
        ReadingError: it is no JSON, no object, or of a newer format.
    """
    try:
        raw: Json = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ReadingError(f"not JSON: {error}") from None
    top = Place(raw, where)
    version = top.integer(FORMAT_KEY)
    if version > newest:
        raise ReadingError(f"format {version} is newer than this program reads ({newest})")
    return top


class Place:
    """A JSON object and where it stands, so that an error can name both."""

    def __init__(self, raw: Json, where: str) -> None:
        if not isinstance(raw, dict):
            raise ReadingError(f"{where}: expected an object")
        self._raw: Mapping[str, Json] = raw
        self._where = where

    def _error(self, key: str, expected: str) -> ReadingError:
        return ReadingError(f"{self._where}: '{key}' should be {expected}")

    def has(self, key: str) -> bool:
        """Whether there is a value other than null."""
        return self._raw.get(key) is not None

    def text(self, key: str) -> str:
        """A text."""
        value = self._raw.get(key)
        if not isinstance(value, str):
            raise self._error(key, "text")
        return value

    def text_or_none(self, key: str) -> str | None:
        """A text, or None if it is absent or null."""
        return None if self._raw.get(key) is None else self.text(key)

    def texts(self, key: str) -> tuple[str, ...]:
        """A list of texts; empty if it is absent."""
        value = self._raw.get(key, [])
        if not isinstance(value, list):
            raise self._error(key, "a list of texts")
        found = tuple(item for item in value if isinstance(item, str))
        if len(found) != len(value):
            raise self._error(key, "a list of texts")
        return found

    def integer(self, key: str, default: int | None = None) -> int:
        """A whole number."""
        value = self._raw.get(key, default)
        if not isinstance(value, int) or isinstance(value, bool):
            raise self._error(key, "a whole number")
        return value

    def switch(self, key: str) -> bool:
        """True or false; false if it is absent."""
        value = self._raw.get(key, False)
        if not isinstance(value, bool):
            raise self._error(key, "true or false")
        return value

    def place(self, key: str) -> "Place":
        """An object; an empty one if it is absent."""
        return Place(self._raw.get(key, {}), f"{self._where}, {key}")

    def places(self, key: str) -> "Sequence[Place]":
        """A list of objects; empty if it is absent."""
        value = self._raw.get(key, [])
        if not isinstance(value, list):
            raise self._error(key, "a list")
        return [Place(item, f"{self._where}, {key}[{index}]") for index, item in enumerate(value)]
