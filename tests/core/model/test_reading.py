import pytest

from liken_events.core.model.reading import Place, ReadingError, parse


def place(**values: object) -> Place:
    return Place(values, "the thing")  # type: ignore[arg-type]  # also what no JSON is


def message(caught: pytest.ExceptionInfo[ReadingError]) -> str:
    return str(caught.value)


def test_what_is_there_is_read() -> None:
    top = place(
        text="a", number=-3, yes=True, no=False, texts=["a", ""], inner={"x": "y"}, list=[{}, {}]
    )
    assert top.text("text") == top.text_or_none("text") == "a"
    assert top.integer("number") == top.integer("number", 7) == -3
    assert (top.switch("yes"), top.switch("no")) == (True, False)
    assert top.texts("texts") == ("a", "")
    assert top.place("inner").text("x") == "y"
    assert len(top.places("list")) == 2
    assert top.has("no")


def test_what_is_absent_has_a_default_or_is_wrong() -> None:
    top = place()
    assert top.text_or_none("x") is None
    assert top.integer("x", 7) == 7
    assert top.switch("x") is False
    assert top.texts("x") == ()
    assert top.place("x").has("y") is False
    assert top.places("x") == []
    assert not top.has("x")
    for read in (top.text, top.integer):
        with pytest.raises(ReadingError):
            read("x")


def test_null_is_as_good_as_absent_where_a_value_may_be_absent_and_has_no_default() -> None:
    top = place(x=None)
    assert top.text_or_none("x") is None
    assert not top.has("x")
    for read in (top.text, top.integer, top.switch, top.texts, top.place, top.places):
        with pytest.raises(ReadingError):
            read("x")


@pytest.mark.parametrize(
    ("kind", "value", "expected"),
    [
        ("text", 7, "text"),
        ("text", ["a"], "text"),
        ("text_or_none", 7, "text"),
        ("text_or_none", False, "text"),
        ("integer", "7", "a whole number"),
        ("integer", 7.0, "a whole number"),
        ("integer", True, "a whole number"),
        ("switch", 1, "true or false"),
        ("switch", "true", "true or false"),
        ("texts", "abc", "a list of texts"),
        ("texts", ["a", 7], "a list of texts"),
        ("texts", {"a": "b"}, "a list of texts"),
        ("places", {}, "a list"),
        ("places", "abc", "a list"),
    ],
)
def test_a_wrong_type_is_named_with_its_place(kind: str, value: object, expected: str) -> None:
    with pytest.raises(ReadingError) as caught:
        getattr(place(key=value), kind)("key")
    assert message(caught) == f"the thing: 'key' should be {expected}"


def test_a_place_in_a_place_is_named_whole() -> None:
    top = place(outer={"list": [{"a": 1}, {"a": {"b": 2}}]})
    inner = top.place("outer").places("list")[1].place("a")
    with pytest.raises(ReadingError) as caught:
        inner.text("b")
    assert message(caught) == "the thing, outer, list[1], a: 'b' should be text"


@pytest.mark.parametrize(
    ("value", "where"),
    [({"list": [{}, 7]}, "the thing, list[1]"), ({"list": [None]}, "the thing, list[0]")],
)
def test_what_should_be_an_object_is_named(value: dict[str, object], where: str) -> None:
    with pytest.raises(ReadingError) as caught:
        place(**value).places("list")
    assert message(caught) == f"{where}: expected an object"
    with pytest.raises(ReadingError) as caught:
        place(inner=[]).place("inner")
    assert message(caught) == "the thing, inner: expected an object"


def test_a_text_is_read_up_to_the_newest_format() -> None:
    for version in (1, 2):
        assert parse(f'{{"format": {version}, "a": "b"}}', "x", newest=2).text("a") == "b"
    with pytest.raises(ReadingError) as caught:
        parse('{"format": 3}', "x", newest=2)
    assert message(caught) == "format 3 is newer than this program reads (2)"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "not JSON: "),
        ("\ufeff{}", "not JSON: "),
        ("{'format': 1}", "not JSON: "),
        ('{"format": 1}}', "not JSON: "),
        ("[" * 100_000, "not JSON: "),
        ('{"format": ' + "9" * 5000 + "}", "not JSON: "),
        ("[]", "the thing: expected an object"),
        ("7", "the thing: expected an object"),
        ("{}", "the thing: 'format' should be a whole number"),
        ('{"format": null}', "the thing: 'format' should be a whole number"),
        ('{"format": true}', "the thing: 'format' should be a whole number"),
        ('{"format": 1.0}', "the thing: 'format' should be a whole number"),
        ('{"format": NaN}', "the thing: 'format' should be a whole number"),
        ('{"format": "1"}', "the thing: 'format' should be a whole number"),
    ],
)
def test_what_is_no_object_with_a_format_is_refused(text: str, said: str) -> None:
    with pytest.raises(ReadingError) as caught:
        parse(text, "the thing", newest=1)
    assert message(caught).startswith(said)
    assert isinstance(caught.value, ValueError)
