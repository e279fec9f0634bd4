"""The tree itself: tests mirror the package, files are small, modules say what they are for."""

import ast
from collections.abc import Iterator
from pathlib import Path

import liken_events

PACKAGE = Path(liken_events.__file__).parent
TESTS = Path(__file__).parent

MOST_LINES = 400

WITHOUT_TEST = {
    "commands/__init__.py": "one exception, which the commands' tests catch",
    "servers/__init__.py": "a protocol, which has nothing to do",
    "sinks/__init__.py": "a protocol and an exception, which have nothing to do",
    "sources/__init__.py": "two protocols and two exceptions, which have nothing to do",
}
"""Modules with code and without a test of their own, and why."""

WITHOUT_MODULE = {
    "test_layout.py": "this file",
    "test_purity.py": "about all of the core",
    "test_docs.py": "about the documents",
    "test_recorded_hotplug.py": "about the whole agent, on recordings of a real kernel",
    "fakes/test_apiserver.py": "about the fake itself",
}
"""Tests that belong to no single module, and what they are about."""

OF_THE_WHOLE = (TESTS / "vm", TESTS / "cluster" / "real")
"""Tests of the whole agent, on a real kernel and in a real cluster."""

VAGUE = {"utils", "util", "helpers", "helper", "common", "manager", "handler", "misc"}
"""Names that say nothing of what is inside."""


def sources(top: Path) -> Iterator[Path]:
    return (path for path in sorted(top.rglob("*.py")) if "__pycache__" not in path.parts)


def has_code(path: Path) -> bool:
    """Whether a module defines a function or a class; names and types alone need no test."""
    kinds = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
    return any(isinstance(node, kinds) for node in ast.walk(ast.parse(path.read_text("utf-8"))))


def test_name(module: Path) -> str:
    """The test of a module, relative to the tests: `core/test_timing.py` of `core/timing.py`, and
    `cluster/test_init.py` of `cluster/__init__.py`."""
    return str(module.with_name(f"test_{module.stem.strip('_')}.py"))


test_name.__test__ = False  # type: ignore[attr-defined]  # it is none


def test_every_module_has_a_test_or_a_reason_to_have_none() -> None:
    modules = [path.relative_to(PACKAGE) for path in sources(PACKAGE) if has_code(path)]
    untested = {str(item) for item in modules if not (TESTS / test_name(item)).exists()}
    assert sorted(untested - WITHOUT_TEST.keys()) == []
    assert sorted(WITHOUT_TEST.keys() - untested) == []


def test_every_test_is_about_a_module() -> None:
    about = {test_name(path.relative_to(PACKAGE)).removesuffix(".py") for path in sources(PACKAGE)}
    strangers = set()
    for path in sources(TESTS):
        if any(path.is_relative_to(top) for top in OF_THE_WHOLE):
            continue
        name = str(path.relative_to(TESTS)).removesuffix(".py")
        if path.name.startswith("test_") and not any(
            name == stem or name.startswith(f"{stem}_") for stem in about
        ):
            strangers.add(f"{name}.py")
    assert sorted(strangers - WITHOUT_MODULE.keys()) == []
    assert sorted(WITHOUT_MODULE.keys() - strangers) == []


def test_every_file_is_short_enough_to_be_read_at_once() -> None:
    lengths = {
        str(path): len(path.read_text("utf-8").splitlines())
        for top in (PACKAGE, TESTS, PACKAGE.parent / "bench")
        for path in sources(top)
    }
    assert {path: length for path, length in lengths.items() if length > MOST_LINES} == {}


def test_every_module_says_what_it_is_for() -> None:
    silent = [
        str(path)
        for top in (PACKAGE, PACKAGE.parent / "bench")
        for path in sources(top)
        if not ast.get_docstring(ast.parse(path.read_text("utf-8")))
    ]
    assert silent == []


def test_no_module_is_named_for_nothing() -> None:
    parts = {path.stem for top in (PACKAGE, TESTS) for path in top.rglob("*")}
    assert parts & VAGUE == set()
