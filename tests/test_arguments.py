import re
import shlex
from dataclasses import fields

import pytest

from liken_events import __version__
from liken_events.arguments import Arguments, parse
from liken_events.config import Config
from liken_events.core.model.device import Reason
from liken_events.options import OPTIONS, Option
from tests.fakes.typed import typed

COMMANDS = (
    "run",
    "watch",
    "inventory",
    "explain",
    "snapshot",
    "claim",
    "claims",
    "release",
)
NEEDED = {"claim": ["usb-1-2-1-0"], "release": ["cam"]}
"""What a command cannot do without."""

PROGRAM = "liken-events"


def help_of(*words: str) -> str:
    """What `--help` prints."""
    ran = typed(*words, "--help")
    assert (ran.status, ran.err) == (0, "")
    return ran.out


def flowing(text: str) -> str:
    """The text with every break and indent as one blank."""
    return " ".join(text.split())


def examples(text: str) -> list[list[str]]:
    """The words of each line that shows what to type."""
    shown = re.findall(rf"^ +({PROGRAM} .*)$", text, re.MULTILINE)
    return [shlex.split(re.split(r" {2,}| \| ", line)[0], comments=True)[1:] for line in shown]


def given(option: Option) -> tuple[list[str], object]:
    """The words that give a setting, and the value that it then has."""
    match option.kind:
        case "switch":
            return [option.flag], True
        case "list" | "tables":
            return [option.flag, "a", option.flag, "b"], ["a", "b"]
        case _:
            return [option.flag, "a"], "a"


def test_without_flags_nothing_is_set_and_a_table_is_wanted() -> None:
    arguments = parse(["inventory"])
    assert set(arguments.flags.values()) == {None}
    assert arguments == Arguments(command="inventory", words=("inventory",), flags=arguments.flags)
    assert arguments.output == "table"


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("option", OPTIONS, ids=lambda option: option.key)
def test_every_command_takes_every_setting(command: str, option: Option) -> None:
    words, value = given(option)
    flags = parse([command, *words, *NEEDED.get(command, [])]).flags
    assert {key: flag for key, flag in flags.items() if flag is not None} == {option.key: value}


def test_a_switch_can_be_turned_off() -> None:
    assert parse(["run", "--no-divide-pool"]).flags["divide_pool"] is False


def test_a_value_is_not_judged_here() -> None:
    assert parse(["run", "--cluster", "cloud"]).flags["cluster"] == "cloud"


def test_what_a_command_takes_of_its_own_is_kept() -> None:
    run = parse(["run", "--simulate", "desk", "--simulate-if-empty=x.json", "--keep"])
    assert (run.simulate, run.simulate_if_empty, run.keep) == ("desk", "x.json", True)
    explain = parse(["explain", "1-2:1.0", "-o", "json", "--snapshot=-"])
    assert (explain.device, explain.output, explain.snapshot) == ("1-2:1.0", "json", "-")
    snapshot = parse(["snapshot", "-o", "x.json", "--with-serials", "--config=c.toml"])
    assert (snapshot.file, snapshot.with_serials, snapshot.config) == ("x.json", True, "c.toml")
    claim = parse(["claim", "usb-1-2-1-0", "1-3:1.0", "--name=cam"])
    assert (claim.devices, claim.name) == (("usb-1-2-1-0", "1-3:1.0"), "cam")
    assert parse(["claims", "-o", "json"]).output == "json"
    assert parse(["release", "default/cam"]).name == "default/cam"


def test_the_words_are_kept_as_they_were_typed() -> None:
    assert parse(["run", "--simulate=desk"]).words == ("run", "--simulate=desk")


@pytest.mark.parametrize(
    "words", [["run", "--sim", "desk"], ["run", "--settle-q", "1"], ["--ver"]]
)
def test_a_flag_may_not_be_shortened(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        parse(words)
    assert ended.value.code == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_an_error_says_where_help_is(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parse(["explain", "-o", "xml"])
    assert capsys.readouterr().err.endswith("; 'liken-events explain --help' explains\n")


def test_the_version_is_the_package_s() -> None:
    ran = typed("--version")
    assert (ran.status, ran.out) == (0, f"{PROGRAM} {__version__}\n")


def test_the_first_help_names_every_command_and_what_to_try() -> None:
    text = help_of()
    assert [line.split()[0] for line in text.splitlines() if re.match(r" {4}\w", line)] == [
        *COMMANDS
    ]
    assert {words[0] for words in examples(text)} <= {*COMMANDS}
    assert ["run", "--simulate", "desk"] in examples(text)


@pytest.mark.parametrize("command", COMMANDS)
def test_help_begins_with_the_usage_and_ends_with_the_exit_statuses(command: str) -> None:
    text = help_of(command)
    assert text.startswith(f"usage: {PROGRAM} {command} [options]")
    assert [int(n) for n in re.findall(r"^  (\d+) +\w", text, re.MULTILINE)] == [0, 1, 2, 130]


def test_the_usage_of_explain_names_what_it_takes() -> None:
    assert help_of("explain").startswith("usage: liken-events explain [options] [DEVICE]\n")


@pytest.mark.parametrize("words", [(), *((command,) for command in COMMANDS)])
def test_help_fits_a_terminal(words: tuple[str, ...]) -> None:
    ran = typed(*words, "--help", environ={"COLUMNS": "80"})
    assert max(len(line) for line in ran.out.splitlines()) <= 80


@pytest.mark.parametrize("command", COMMANDS)
def test_what_help_shows_can_be_typed(command: str) -> None:
    shown = examples(help_of(command))
    assert any(words[0] == command for words in shown)
    for words in shown:
        assert parse(words).command == words[0]


@pytest.mark.parametrize("command", COMMANDS)
def test_help_explains_every_setting_with_its_default(command: str) -> None:
    text = flowing(help_of(command))
    for option in OPTIONS:
        default = getattr(Config(), option.key)
        assert f" {option.flag}" in text
        assert flowing(option.help) in text
        assert all(choice in text for choice in option.choices)
        if default not in ("", (), False):
            shown = ", ".join(map(str, default)) if option.kind == "tables" else default
            assert f"{flowing(option.help)} (default: {shown})" in text


def test_help_explains_every_reason() -> None:
    text = help_of("explain")
    listed = text.partition("\nreasons:\n")[2].partition("\n\n")[0]
    assert [line.split()[0] for line in listed.splitlines()] == [str(reason) for reason in Reason]
    assert all(len(line.split()) > 2 for line in listed.splitlines())


def test_what_was_typed_has_a_place_for_each_setting() -> None:
    assert parse(["run"]).flags.keys() == {item.name for item in fields(Config)}
