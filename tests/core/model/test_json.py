import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from liken_events.core.model.json import Json, dump

ODD = "\x1b\x7f\x85\u200f\u2028\ufeff\udce9\U000e0001"

texts = st.text(st.characters(exclude_categories=["Cs"], include_characters=ODD), max_size=8)
values: st.SearchStrategy[Json] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=6,
)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "null"),
        ([1, 2.5, True, "a"], '[1, 2.5, true, "a"]'),
        ({"name": "Größe 日本 ®😀"}, '{"name": "Größe 日本 ®😀"}'),
        ("\x1b[31m\r\n\0", '"\\u001b[31m\\r\\n\\u0000"'),
        ("\x7f\x85\u200f\u202e\u2028\ufeff", '"\\u007f\\u0085\\u200f\\u202e\\u2028\\ufeff"'),
        ("\udce9", '"\\udce9"'),
        ("\U000e0001", '"\\udb40\\udc01"'),
        ('"\\', '"\\"\\\\"'),
    ],
)
def test_letters_are_themselves_and_what_is_unprintable_is_an_escape(
    value: Json, text: str
) -> None:
    assert dump(value) == text


def test_an_indent_makes_lines() -> None:
    assert dump({"a": [1, "\x7f"]}, indent=2) == '{\n  "a": [\n    1,\n    "\\u007f"\n  ]\n}'


@given(values, st.sampled_from([None, 2]))
def test_what_was_written_is_read_again_and_can_be_printed_anywhere(
    value: Json, indent: int | None
) -> None:
    text = dump(value, indent=indent)
    assert json.loads(text) == value
    text.encode("utf-8")
    assert text.replace("\n", "" if indent else "\n").isprintable()
