"""YAML as far as JSON goes: what an API object can hold, and no more.

YAML can name a thing and use it again, so that ten lines are a billion objects; it has keys that
are lists, and a word for a day. Such text may stand in a file that anybody wrote, and the object
would be compared, walked and written by code that knows JSON.

This file reads the plain part and refuses the rest before an object is made of it, and writes
objects without names for their parts. What they are is left to `cluster.slice_file` and
`cluster.claim_file`.
"""

from collections.abc import Iterator

import yaml

from liken_events.core.model.json import Json
from liken_events.core.model.names import printable

DEEPEST = 64
"""Levels of an object within an object. A claim's own fields take 8, and the rest is for the
parameters of drivers; with some 400, Python's own limit ends the writing of it."""

LONGEST_NUMBER = 64
"""Characters of a number. One of 64 bits has 20 at most; one of thousands cannot be printed."""

_PREFIX = "tag:yaml.org,2002:"
_PLAIN = {_PREFIX + kind for kind in ("bool", "float", "int", "map", "null", "seq", "str")}
_NUMBERS = {_PREFIX + "float", _PREFIX + "int"}
_TEXT = _PREFIX + "str"
_TIME = _PREFIX + "timestamp"

_NOT_MADE = (ValueError, LookupError, TypeError, AttributeError)
"""What the library raises for a value that is not of the type that a tag says: `!!bool x`."""


class NotPlain(ValueError):
    """The text is no such YAML. The message says in which line and why, and is safe to print."""


def load(text: str) -> Json:
    """The object in a text; None for an empty one.

    Raises:
        NotPlain: it is no YAML, or more than JSON.
    """
    try:
        loader = _Loader(text)
        try:
            root = loader.get_single_node()
            if root is None:
                return None
            _check(root)
            body: Json = loader.construct_document(root)
            return body
        finally:
            loader.dispose()
    except yaml.MarkedYAMLError as error:
        raise NotPlain(_where(error.problem_mark) + _why(error)) from None
    except yaml.reader.ReaderError:
        raise NotPlain("a character that YAML does not allow") from None
    except _NOT_MADE:
        raise NotPlain("a value that is not what its tag says") from None


def emit(value: Json) -> str:
    """An object as text. Every string comes back as it was, whatever characters it holds."""
    text: str = yaml.dump(value, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=4096)
    return text


class _Dumper(yaml.CSafeDumper):
    """Writes an object that occurs twice twice, and not as a reference that only YAML knows."""

    def ignore_aliases(self, data: object) -> bool:  # noqa: ARG002  # the library's argument
        return True


class _Loader(yaml.CSafeLoader):
    """Leaves a time the text that it is in JSON."""


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != _TIME]
    for first, resolvers in yaml.CSafeLoader.yaml_implicit_resolvers.items()
}


def _check(root: yaml.Node) -> None:
    """Raises MarkedYAMLError for what JSON does not have, and for what is too deep."""
    seen: set[int] = set()
    level = [root]
    for _ in range(DEEPEST):
        below: list[yaml.Node] = []
        for node in level:
            if id(node) in seen:
                raise _refused("an alias: write out what it stands for", node)
            seen.add(id(node))
            if node.tag not in _PLAIN:
                raise _refused("a value of a type that JSON does not have", node)
            if node.tag in _NUMBERS and len(node.value) > LONGEST_NUMBER:
                raise _refused("a number that is too long", node)
            below += _inside(node)
        if not below:
            return
        level = below
    raise _refused("too many levels", level[0])


def _inside(node: yaml.Node) -> Iterator[yaml.Node]:
    if isinstance(node, yaml.SequenceNode):
        yield from node.value
    elif isinstance(node, yaml.MappingNode):
        keys = set()
        for key, value in node.value:
            if key.tag != _TEXT or not isinstance(key, yaml.ScalarNode):
                raise _refused("a key that is no text: put it in quotes", key)
            if key.value in keys:
                raise _refused("a key that is there already", key)
            keys.add(key.value)
            yield value


def _refused(problem: str, node: yaml.Node) -> yaml.MarkedYAMLError:
    return yaml.MarkedYAMLError(problem=problem, problem_mark=node.start_mark)


def _where(mark: yaml.Mark | None) -> str:
    return "" if mark is None else f"line {mark.line + 1}: "


def _why(error: yaml.MarkedYAMLError) -> str:
    return printable(error.problem or error.context or "no YAML")
