import subprocess
import sys

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
