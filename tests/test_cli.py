import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from liken_events import cli
from liken_events.arguments import Arguments
from liken_events.commands import CommandError
from liken_events.config import Config, ConfigError
from liken_events.core.model.recording import to_json
from liken_events.simulate.recordings import desk
from liken_events.simulate.script import generic_script
from liken_events.sources import ScanFailed
from tests.fakes.agents import QUICK
from tests.fakes.quick_demo import SMALL, STICK, saved, told
from tests.fakes.typed import typed


@pytest.fixture
def snapshot(tmp_path: Path) -> str:
    """A file with a recorded machine."""
    path = tmp_path / "desk.json"
    path.write_text(to_json(desk()), "utf-8")
    return str(path)


def one_sentence(text: str) -> str:
    """The text of an error, which is one line and no traceback."""
    assert text.endswith("\n")
    [line] = text.splitlines()
    assert line.startswith("liken-events")
    return line.partition(": ")[2]


WRONG_USAGE: dict[tuple[str, ...], str] = {
    (): "COMMAND",
    ("frobnicate",): "'frobnicate'",
    ("--nope",): "COMMAND",
    ("inventory", "--nope"): "--nope",
    ("inventory", "--node"): "--node",
    ("inventory", "further"): "further",
    ("inventory", "-o", "yaml"): "'yaml'",
    ("explain", "-o", "slice"): "'slice'",
    ("inventory", "--snapshot"): "--snapshot",
    ("inventory", "--snapshot="): "--snapshot: expected a path, found ''",
    ("inventory", "--config="): "--config: expected a path, found ''",
    ("snapshot", "-o", ""): "-o: expected a path, found ''",
    ("watch", "--snapshot=x.json"): "--snapshot=x.json",
    ("inventory", "--settle-quiet=soon"): "--settle-quiet: expected a number of seconds above 0",
    ("inventory", "--settle-quiet=0"): "--settle-quiet: expected a number of seconds above 0",
    ("inventory", "--cluster=cloud"): "--cluster: expected one of auto, kubernetes, directory",
    ("inventory", "--node-name=A B"): "--node-name: 'A B'",
    ("inventory", "--sys-root=/nowhere"): "--sys-root: /nowhere is no directory",
    ("inventory", "--sys-root=/etc"): "--sys-root: /etc is no sysfs tree",
    ("explain", "--sys-root=/etc"): "--sys-root: /etc is no sysfs tree",
    ("snapshot", "--sys-root=/etc"): "--sys-root: /etc is no sysfs tree",
    ("watch", "--sys-root=/etc"): "--sys-root: /etc is no sysfs tree",
    ("run", "--sys-root=/etc"): "--sys-root: /etc is no sysfs tree",
    ("run", "--simulate-if-empty=desk", "--sys-root=/etc"): "--sys-root: /etc is no sysfs tree",
    ("inventory", "--pci-ids=/nowhere"): "--pci-ids: /nowhere is no file",
    ("inventory", "--config=/nowhere"): "/nowhere: cannot be read",
}


@pytest.mark.parametrize("words", WRONG_USAGE, ids=" ".join)
def test_wrong_usage_is_one_sentence_that_names_it(words: tuple[str, ...]) -> None:
    ran = typed(*words)
    assert (ran.status, ran.out) == (2, "")
    assert WRONG_USAGE[words] in one_sentence(ran.err)


FAILURES: dict[tuple[str, ...], str] = {
    ("inventory", "--snapshot=/nowhere"): "/nowhere: cannot be read: No such file or directory",
    ("inventory", "--snapshot=/etc"): "/etc: cannot be read: Is a directory",
    ("explain", "--snapshot=-"): "-: is no snapshot: not JSON",
    ("run", "--simulate=moon"): "'moon' is neither the recorded machine 'desk' nor a file",
    ("run", "--simulate="): "'' is neither the recorded machine 'desk' nor a file",
    ("run", "--simulate=/etc"): "/etc: cannot be read: Is a directory",
}


@pytest.mark.parametrize("words", FAILURES, ids=" ".join)
def test_a_failure_is_one_sentence_that_names_it(words: tuple[str, ...]) -> None:
    ran = typed(*words)
    assert (ran.status, ran.out) == (1, "")
    assert FAILURES[words] in one_sentence(ran.err)


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "not JSON"),
        (b"garbage\n", "not JSON"),
        (b"\xff\xfe\x00", "utf-8"),
        (b"[" * 100_000, "not JSON"),
        (b"[]", "the snapshot"),
        (b"{}", "'format'"),
        (b'{"format": 99}', "format 99 is newer"),
        (b'{"format": 1, "devices": [{"bus": "usb"}]}', "devices[0]: 'address'"),
    ],
)
def test_a_file_that_is_no_snapshot_is_named_with_what_is_wrong(
    tmp_path: Path, content: bytes, why: str
) -> None:
    path = tmp_path / "odd.json"
    path.write_bytes(content)
    for words in (("inventory", "--snapshot"), ("run", "--simulate")):
        ran = typed(*words, str(path))
        assert (ran.status, ran.out) == (1, "")
        told = one_sentence(ran.err)
        assert told.startswith(f"{path}: is no snapshot: ")
        assert why in told


def test_an_unknown_key_is_named_with_the_file_and_the_key_that_was_meant(tmp_path: Path) -> None:
    path = tmp_path / "agent.toml"
    path.write_text("[settle]\nquit = 1\n", "utf-8")
    ran = typed("inventory", "--config", str(path))
    assert (ran.status, ran.out) == (2, "")
    assert one_sentence(ran.err) == (
        f"{path}: unknown key 'settle_quit'; did you mean 'settle_quiet'?"
    )


def test_settings_of_the_environment_count_and_unknown_ones_are_named(snapshot: str) -> None:
    words = ("inventory", "-o", "json", "--snapshot", snapshot)
    assert typed(*words, environ={"LIKEN_EVENTS_IGNORE": "*"}).out == "[]\n"
    ran = typed(*words, environ={"LIKEN_EVENTS_FAST": "1"})
    assert (ran.status, ran.out) == (2, "")
    assert one_sentence(ran.err) == "LIKEN_EVENTS_FAST: there is no such setting"


def test_the_environment_may_name_the_file_with_settings_unless_a_flag_does(
    snapshot: str, tmp_path: Path
) -> None:
    path, other = tmp_path / "agent.toml", tmp_path / "other.toml"
    path.write_text("ignore = ['*']\n", "utf-8")
    other.write_text("ignore = []\n", "utf-8")
    words = ("inventory", "-o", "json", "--snapshot", snapshot)
    environ = {"LIKEN_EVENTS_CONFIG": str(path)}
    assert typed(*words, environ=environ).out == "[]\n"
    assert typed(*words, "--config", str(other), environ=environ) == typed(*words)
    assert typed(*words, environ={"LIKEN_EVENTS_CONFIG": ""}) == typed(*words)
    assert typed(*words, environ={"LIKEN_EVENTS_CONFIG": "/nowhere"}).status == 2


@pytest.mark.parametrize("words", [("explain", "\x1b[31m\u202e"), ("inventory", "--\x1b[31m")])
def test_an_error_does_not_repeat_escapes(words: Sequence[str]) -> None:
    told = one_sentence(typed(*words).err)
    assert told.isprintable()
    assert "\\x1b[31m" in told


def outcome(monkeypatch: pytest.MonkeyPatch, error: BaseException) -> tuple[int, str]:
    """Exit status and complaint of a command that ends like this."""

    def command(config: Config, arguments: Arguments) -> int:
        raise error

    monkeypatch.setitem(cli._COMMANDS, "watch", command)
    ran = typed("watch")
    return ran.status, ran.err


@pytest.mark.parametrize(
    ("error", "status", "told"),
    [
        (ConfigError("--x: no"), 2, "liken-events: --x: no\n"),
        (CommandError("no"), 1, "liken-events: no\n"),
        (ScanFailed("no\x1b"), 1, "liken-events: no\\x1b\n"),
        (OSError(28, "No space"), 1, "liken-events: [Errno 28] No space\n"),
        (KeyboardInterrupt(), 130, ""),
        (BrokenPipeError(), 0, ""),
    ],
)
def test_an_error_means_the_same_inside_of_nurseries(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    error: BaseException,
    status: int,
    told: str,
) -> None:
    inner = BaseExceptionGroup("a nursery", [error])
    outer = BaseExceptionGroup("a nursery", [inner, inner])
    # The output of a failed command is dropped by its descriptor, so it has one of its own here.
    monkeypatch.setattr(cli, "_drop", lambda _: None)
    for raised in (error, outer):
        assert outcome(monkeypatch, raised) == (status, told)


@pytest.mark.parametrize(
    "error", [ValueError("a bug"), ExceptionGroup("a nursery", [CommandError("no"), KeyError(1)])]
)
def test_a_bug_is_not_hidden_behind_a_sentence(
    monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    with pytest.raises((ValueError, ExceptionGroup)):
        outcome(monkeypatch, error)


def start(*words: str, stdout: int, unbuffered: str = "") -> "subprocess.Popen[bytes]":
    """A process of its own whose output is buffered, as in a shell."""
    return subprocess.Popen(
        [sys.executable, "-m", "liken_events", *words],
        stdin=subprocess.PIPE,
        stdout=stdout,
        stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONUNBUFFERED": unbuffered},
    )


@pytest.mark.parametrize("form", ["table", "json"])
def test_a_reader_that_has_seen_enough_is_no_error(snapshot: str, form: str) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    process = start("inventory", "-o", form, "--snapshot", snapshot, stdout=writer)
    os.close(writer)
    _, err = process.communicate(timeout=30)
    assert (process.returncode, err) == (0, b"")


@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize(
    "words", [("explain", "--snapshot"), ("inventory", "-o", "json", "--snapshot"), ("--help",)]
)
def test_output_that_cannot_be_written_is_an_error_in_one_sentence(
    snapshot: str, words: tuple[str, ...], unbuffered: str
) -> None:
    full = os.open("/dev/full", os.O_WRONLY)
    file = [snapshot] if "--snapshot" in words else []
    process = start(*words, *file, stdout=full, unbuffered=unbuffered)
    os.close(full)
    _, err = process.communicate(timeout=30)
    assert process.returncode == 1
    assert one_sentence(err.decode()) == (
        "standard output cannot be written: No space left on device"
    )


def in_a_shell(redirections: str, *words: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [
            "/bin/sh",
            "-c",
            f'exec "$0" -m liken_events "$@" {redirections}',
            sys.executable,
            *words,
        ],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
        env={**os.environ, "PYTHONUNBUFFERED": ""},
    )


def test_output_that_is_closed_is_an_error_in_one_sentence(snapshot: str) -> None:
    for words in (("inventory", "--snapshot", snapshot), ("--help",)):
        ran = in_a_shell(">&-", *words)
        assert ran.returncode == 1
        assert one_sentence(ran.stderr) == (
            "standard output cannot be written: Bad file descriptor"
        )


@pytest.mark.parametrize("redirections", ["2>&-", "<&- 2>&-", "2>/dev/full"])
def test_what_nobody_can_be_told_changes_no_result(snapshot: str, redirections: str) -> None:
    words = ("inventory", "--snapshot", snapshot)
    ran = in_a_shell(redirections, *words)
    assert (ran.returncode, ran.stdout) == (0, typed(*words).out)
    assert in_a_shell(redirections, "inventory", "--snapshot=/nowhere").returncode == 1
    assert in_a_shell(redirections, "inventory", "--config=/nowhere").returncode == 2
    ran = in_a_shell(f">&- {redirections}", *words)
    assert (ran.returncode, ran.stdout, ran.stderr) == (1, "", "")


@pytest.mark.parametrize("stderr", ["full", "closed", "a pipe"])
def test_the_agent_goes_on_when_its_log_cannot_be_written(tmp_path: Path, stderr: str) -> None:
    """The agent is the one of a simulated machine, which ends by itself."""
    words = ["run", "--simulate", saved(SMALL, tmp_path), *QUICK, "--log-level=debug"]
    code = (
        "import sys; from tests.fakes import quick_demo; sys.exit(quick_demo.main(sys.argv[1:]))"
    )
    reader, writer = os.pipe()
    os.close(reader)
    full = os.open("/dev/full", os.O_WRONLY)
    redirection = "2>&-" if stderr == "closed" else ""
    ran = subprocess.run(
        ["/bin/sh", "-c", f'exec "$0" -c "$@" {redirection}', sys.executable, code, *words],
        stdout=subprocess.PIPE,
        stderr=writer if stderr == "a pipe" else full,
        text=True,
        timeout=60,
        check=False,
        # Without programs there is no namespace: it is the same process all along.
        env={**os.environ, "PYTHONUNBUFFERED": "", "PATH": str(tmp_path)},
    )
    os.close(writer)
    os.close(full)
    assert ran.returncode == 0
    assert told(ran.stdout, generic_script(SMALL)) == [{STICK}] * 5


def test_ctrl_c_ends_a_command_that_waits_for_its_input() -> None:
    reader, writer = os.pipe()
    process = start("explain", "--snapshot", "/dev/stdin", stdout=writer)
    os.close(writer)
    assert process.stdin is not None
    process.stdin.write(b" " * 200_000)  # taken by nobody before the file is being read
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=30)
    os.close(reader)
    assert (process.returncode, err) == (130, b"")
