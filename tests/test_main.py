import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from liken_events import __version__


@pytest.mark.parametrize(
    ("words", "status", "out"),
    [(["--version"], 0, f"liken-events {__version__}\n"), (["explain", "--nope"], 2, "")],
)
def test_the_package_can_be_run_as_a_module(words: list[str], status: int, out: str) -> None:
    ran = subprocess.run(
        [sys.executable, "-m", "liken_events", *words],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert (ran.returncode, ran.stdout) == (status, out)
    assert ran.stderr.count("\n") == (status != 0)


WAITING = """
import signal, sys, types
import liken_events
cli = types.ModuleType("liken_events.cli")
def main():
    print("loading", flush=True)
    signal.pause()
cli.main = main
liken_events.cli = sys.modules["liken_events.cli"] = cli
from liken_events.__main__ import main
main()
"""
"""The program while it loads its parts, for as long as nobody ends it."""


def child_of(parent: int) -> int:
    """The number of a process's only child, as it is seen from here."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # it ended
            if int(path.read_text("utf-8", "replace").rpartition(")")[2].split()[1]) == parent:
                found.append(int(path.parent.name))
    [child] = found
    return child


def test_the_first_process_of_a_pod_can_be_ended_while_it_loads() -> None:
    namespace = ["unshare", "--user", "--map-root-user", "--fork", "--pid", "--kill-child"]
    tried = subprocess.run([*namespace, "true"], capture_output=True, text=True, check=False)
    if tried.returncode != 0:
        pytest.skip(f"no PID namespace of our own: {tried.stderr.strip()}")
    line = [*namespace, sys.executable, "-c", WAITING]
    with subprocess.Popen(line, stdout=subprocess.PIPE, text=True) as outer:
        try:
            assert outer.stdout is not None
            assert outer.stdout.readline() == "loading\n"
            os.kill(child_of(outer.pid), signal.SIGTERM)
            assert outer.wait(timeout=10) == 128 + signal.SIGTERM
        finally:
            outer.kill()
