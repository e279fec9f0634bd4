"""Private network namespaces: really entered where the machine allows it, and refused with a
reason where not."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from liken_events.simulate.namespace import (
    OUTSIDE,
    NoNamespace,
    command,
    inside,
    is_inside,
    open_feed,
    reexec,
)
from liken_events.simulate.uevents import InProcessFeed

OWN = "/proc/self/ns/net"


def fake_unshare(directory: Path, script: str) -> str:
    """A directory with an `unshare` of ours, to be the only one on the path."""
    program = directory / "unshare"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    return str(directory)


def test_a_command_runs_in_another_network_namespace_and_knows_it() -> None:
    code = (
        "import os; from liken_events.simulate.namespace import is_inside, open_feed;"
        f"print(os.readlink('{OWN}'), is_inside(), type(open_feed(print)).__name__)"
    )
    try:
        line = inside([sys.executable, "-c", code])
    except NoNamespace as error:
        pytest.skip(str(error))

    done = subprocess.run(line, check=True, capture_output=True, text=True, timeout=30)
    namespace, knows, feed = done.stdout.split()

    assert namespace != os.readlink(OWN)
    assert (knows, feed) == ("True", "UeventSender")


def test_this_process_is_not_inside() -> None:
    assert not is_inside()


def test_a_marker_that_names_our_own_namespace_does_not_count(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(OUTSIDE, os.readlink(OWN))

    assert not is_inside()


def test_outside_uevents_stay_in_the_process() -> None:
    assert isinstance(open_feed(lambda _: None), InProcessFeed)


def test_a_machine_without_unshare_is_told_so(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))

    with pytest.raises(NoNamespace, match=r"unshare .*: No such file or directory"):
        inside(["true"])


def test_the_reason_of_a_refusal_is_what_unshare_says(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    script = "echo 'unshare: unshare failed: Operation not permitted' >&2; exit 1"
    monkeypatch.setenv("PATH", fake_unshare(tmp_path, script))

    with pytest.raises(NoNamespace, match=r"--user .*: unshare: unshare failed: Operation not"):
        inside(["true"])


def test_an_unshare_that_hangs_is_given_up(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", fake_unshare(tmp_path, "exec /bin/sleep 60"))

    with pytest.raises(NoNamespace, match=r"no answer within 0\.2 s"):
        inside(["true"], limit=0.2)


def test_the_second_way_is_taken_where_the_first_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", fake_unshare(tmp_path, '[ "$1" = --user ]'))

    line = inside(["true"])

    assert line[:4] == ["unshare", "--user", "--map-root-user", "--net"]
    assert line[-1] == "true"


def test_a_command_of_this_program_is_run_by_the_same_python(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", fake_unshare(tmp_path, "exit 0"))

    line = command(["run", "--simulate", "desk"])

    assert line[-6:] == [sys.executable, "-m", "liken_events", "run", "--simulate", "desk"]
    assert f"{OUTSIDE}={os.readlink(OWN)}" in line


def test_starting_again_replaces_the_process_by_that_command(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    started: list[tuple[str, list[str]]] = []
    monkeypatch.setenv("PATH", fake_unshare(tmp_path, "exit 0"))
    monkeypatch.setattr(os, "execvp", lambda file, line: started.append((file, line)))

    reexec(["run"])

    assert started == [("unshare", command(["run"]))]
