"""Anything that JSON can say, and its text.

JSON text is read by people too: by those who get a bug report, and by those who print it on a
terminal. Device strings are in it, and only half of what moves a cursor or reorders text has to be
an escape in JSON.

This file has the type and writes the text. What is in it is up to the caller.
"""

import json
from typing import TypeAlias

Json: TypeAlias = "bool | int | float | str | list[Json] | dict[str, Json] | None"


def dump(value: Json, *, indent: int | None = None) -> str:
    """JSON text in which letters of all languages are themselves and everything unprintable is an
    escape. So are the surrogates that stand for bytes that are no UTF-8: the text can always be
    encoded.

    Args:
        value: what to write.
        indent: spaces for each level; None for one line.
    """
    text = json.dumps(value, indent=indent, ensure_ascii=False)
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c == "\n" else json.dumps(c)[1:-1] for c in text)
