import json
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from liken_events.cluster.plain_yaml import DEEPEST, LONGEST_NUMBER, NotPlain, emit, load
from liken_events.core.model.json import Json

LAUGHS = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"a{number}: &a{number} [{', '.join([f'*a{number - 1}'] * 9)}]\n" for number in range(1, 30)
)
MERGES = "a0: &a0 {x: 1}\n" + "".join(
    f"a{number}: &a{number} {{<<: [{', '.join([f'*a{number - 1}'] * 9)}]}}\n"
    for number in range(1, 30)
)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("", None),
        ("# a remark\n", None),
        ("a: 1\nb: [x, 2.5, true, null, '3']\n", {"a": 1, "b": ["x", 2.5, True, None, "3"]}),
        ("at: 2026-01-02T03:04:05Z\n", {"at": "2026-01-02T03:04:05Z"}),
        ("day: 2026-01-02\n", {"day": "2026-01-02"}),
        ('"yes": 1\n', {"yes": 1}),
        ("a: &named x\n", {"a": "x"}),
        ("{a: {b: {c: []}}}", {"a": {"b": {"c": []}}}),
    ],
)
def test_what_json_has_is_read(text: str, value: Json) -> None:
    assert load(text) == value


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("a: [1\nb: 2\n", "line 2: "),
        ("a: 1\n---\nb: 2\n", "line 2: "),
        ("a: *missing", "line 1: "),
        ("\x00", "a character that YAML does not allow"),
        ("[" * 100_000, "line 1: "),
        ("- " * 100_000, "line 1: "),
        ("[" * (DEEPEST + 1) + "]" * (DEEPEST + 1), "line 1: too many levels"),
        ("a: &x [1]\nb: *x\n", "line 1: an alias: write out what it stands for"),
        ("a: &x [*x]\n", "line 1: an alias"),
        (LAUGHS, "an alias"),
        (MERGES, "a key that is no text"),
        ("<<: {a: 1}\n", "line 1: a key that is no text: put it in quotes"),
        ("a: 1\nyes: 2\n", "line 2: a key that is no text"),
        ("1: a\n", "a key that is no text"),
        ("[a]: b\n", "a key that is no text"),
        ("? !!str [a]\n: b\n", "a key that is no text"),
        ("a: 1\nb: 1\na: 2\n", "line 3: a key that is there already"),
        ("a: !!binary eA==\n", "a value of a type that JSON does not have"),
        ("a: !!set {x}\n", "a value of a type that JSON does not have"),
        ("a: !!timestamp 2026-01-02\n", "a value of a type that JSON does not have"),
        ("a: !other x\n", "a value of a type that JSON does not have"),
        ("a: =\n", "a value of a type that JSON does not have"),
        ("!!python/object/apply:os.getpid []", "a value of a type that JSON does not have"),
        ("a: " + "1" * (LONGEST_NUMBER + 1), "line 1: a number that is too long"),
        ("a: 0x" + "f" * LONGEST_NUMBER, "a number that is too long"),
        ("a: 1" + ":20" * LONGEST_NUMBER + ".5", "a number that is too long"),
        ("a: !!bool perhaps\n", "a value that is not what its tag says"),
        ("a: !!int x\n", "a value that is not what its tag says"),
        ("a: !!float ''\n", "a value that is not what its tag says"),
        ("a: !!map x\n", "line 1: "),
        ('a: "\\ud800"\n', "line 1: "),
    ],
)
def test_what_json_does_not_have_is_refused_with_the_line(text: str, reason: str) -> None:
    started = time.perf_counter()
    with pytest.raises(NotPlain) as caught:
        load(text)
    assert reason in str(caught.value)
    assert str(caught.value).isprintable()
    assert time.perf_counter() - started < 5


def test_as_many_levels_as_are_allowed_can_be_compared_and_written() -> None:
    text = "[" * DEEPEST + "]" * DEEPEST
    found = load(text)
    assert found == load(text)
    assert json.dumps(found) == text
    assert load(emit(found)) == found


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=9), inner),
    max_leaves=12,
)


@given(JSON)
def test_what_is_written_is_read_as_it_was(value: Json) -> None:
    assert load(emit(value)) == value


def test_what_occurs_twice_is_written_twice() -> None:
    twice: list[Json] = ["x"]
    assert emit({"a": twice, "b": twice}) == "a:\n- x\nb:\n- x\n"


@given(st.text(max_size=60) | st.text(alphabet="{}[]&*<>!:-?|'\"% \nab1", max_size=60))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        found = load(text)
    except NotPlain:
        return
    json.dumps(found)
