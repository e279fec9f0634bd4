"""The core is pure: it imports with everything blocked that could reach out of it."""

import ast
import subprocess
import sys
from pathlib import Path

import liken_events.core

CORE = Path(liken_events.core.__file__).parent
MODULES = sorted(
    ".".join(path.relative_to(CORE.parents[1]).with_suffix("").parts).removesuffix(".__init__")
    for path in CORE.rglob("*.py")
)

BLOCKED = (
    "grpc", "inotify_simple", "kubernetes", "pyudev", "rich", "structlog", "trio", "yaml",
    "asyncio", "ctypes", "datetime", "fcntl", "io", "logging", "mmap", "multiprocessing", "os",
    "pathlib", "random", "secrets", "select", "shutil", "signal", "socket", "ssl", "subprocess",
    "tempfile", "threading", "time", "urllib",
)  # fmt: skip

ALLOWED = {
    "bisect", "collections", "dataclasses", "enum", "fnmatch", "functools", "hashlib", "itertools",
    "json", "re", "struct", "sys", "typing", "unicodedata",
}  # fmt: skip
"""What of the standard library computes and does nothing else. `sys` is there for the byte order
of the machine."""

OUTWARD = {"open", "print", "input", "exec", "eval", "breakpoint", "__import__"}
"""Built-in functions that reach out."""

PROGRAM = """
import importlib, sys
for name in {allowed!r}:  # they import some of what is blocked, for themselves
    importlib.import_module(name)
import liken_events
for name in {blocked!r}:
    for known in [item for item in sys.modules if item == name or item.startswith(name + ".")]:
        del sys.modules[known]
    sys.modules[name] = None
for name in {modules!r}:
    importlib.import_module(name)
print(len({modules!r}))
"""


def run(modules: list[str]) -> subprocess.CompletedProcess[str]:
    """Imports modules in a process of their own with everything blocked."""
    program = PROGRAM.format(allowed=sorted(ALLOWED), blocked=BLOCKED, modules=modules)
    return subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        cwd=CORE.parents[1],
    )


def trees() -> dict[str, ast.Module]:
    return {
        str(path.relative_to(CORE)): ast.parse(path.read_text("utf-8"))
        for path in sorted(CORE.rglob("*.py"))
    }


def imports(tree: ast.Module) -> set[str]:
    """The modules that a file itself imports, wherever in it."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found.add("." * node.level + (node.module or ""))
    return found


def test_the_whole_core_imports_with_the_outside_blocked() -> None:
    done = run(MODULES)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == str(len(MODULES))
    assert len(MODULES) > 20


def test_the_block_holds() -> None:
    for module in ("os", "trio", "liken_events.latest", "liken_events.sources.sysfs"):
        done = run([module])
        assert done.returncode != 0, module
        assert "ModuleNotFoundError" in done.stderr, done.stderr


def test_the_core_names_only_itself_and_what_computes() -> None:
    strange = {
        (path, name)
        for path, tree in trees().items()
        for name in imports(tree)
        if name.split(".")[0] not in ALLOWED and not name.startswith("liken_events.core.")
    }
    assert strange == set()


def test_the_core_calls_nothing_that_reaches_out_and_waits_for_nothing() -> None:
    found = {
        (path, ast.unparse(node))
        for path, tree in trees().items()
        for node in ast.walk(tree)
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Name)
            and node.func.id in OUTWARD
        )
        or isinstance(node, ast.AsyncFunctionDef | ast.Await | ast.Global)
    }
    assert found == set()


def test_of_the_interpreter_only_the_byte_order_is_used() -> None:
    used = {
        ast.unparse(node)
        for tree in trees().values()
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name)
        and node.value.id == "sys"
    }
    assert used == {"sys.byteorder"}
