"""The documents say what the program does."""

import ast
import re
import shlex
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from liken_events.arguments import parse
from liken_events.config import Config, load
from liken_events.core.model.device import Reason
from liken_events.core.model.host_devices import COUNT, MOST_UNITS, PERMISSIONS
from liken_events.core.model.publish import inventory
from liken_events.core.timing import Timing
from liken_events.options import BY_KEY, ENVIRONMENT, OPTIONS, Option
from tests.fakes.machines import desktop, homelab, server

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "liken_events"
DOCUMENTS = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])

LINK = re.compile(r"\]\(([^)#\s]+)(?:#[^)]*)?\)")
LEVELS = {"debug", "info", "warning", "error", "exception"}

TAKES = {
    "text": "a text",
    "path": "a path",
    "number": "seconds",
    "list": "a list",
    "tables": "a list of tables",
    "switch": "true, false",
}
"""How the documents call what an option takes."""


def text_of(name: str) -> str:
    return (ROOT / name).read_text("utf-8")


def rows(text: str, heading: str) -> list[list[str]]:
    """The cells of the table whose heading begins like this, row by row."""
    lines = text.partition(f"\n| {heading} |")[2].split("\n")[2:]
    table = lines[: lines.index("")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in table]


def names_in(cell: str) -> list[str]:
    """The texts in a cell that stand for themselves."""
    return re.findall(r"`([^`]+)`", cell)


def code(text: str, language: str) -> str:
    """All code of one language in a document; `""` for what is in none."""
    fenced = text.split("\n```")[1::2]
    return "\n".join(
        body for head, _, body in (part.partition("\n") for part in fenced) if head == language
    )


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_somewhere(document: Path) -> None:
    places = [place for place in LINK.findall(document.read_text("utf-8")) if ":" not in place]
    missing = [place for place in places if not (document.parent / place).exists()]
    assert missing == []


def test_every_decision_is_listed() -> None:
    listed = set(LINK.findall(text_of("docs/decisions/README.md")))
    assert listed == {path.name for path in (ROOT / "docs/decisions").glob("0*.md")}


def setting(option: Option) -> list[str]:
    """The row of a setting."""
    default = getattr(Config(), option.key)
    shown = str(default).lower() if option.kind == "switch" else str(default)
    if option.kind == "tables":
        shown = ", ".join(map(str, default))
    takes = TAKES.get(option.kind) or ", ".join(f"`{choice}`" for choice in option.choices)
    return [
        f"`{option.flag}`",
        f"`{option.variable}`",
        takes,
        "" if default in ("", ()) else f"`{shown}`",
        option.help,
    ]


def test_the_settings_are_those_of_the_program_in_its_order() -> None:
    assert rows(text_of("docs/settings.md"), "flag") == [setting(option) for option in OPTIONS]


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_settings_and_variables_that_are_named_exist(document: Path) -> None:
    text = document.read_text("utf-8")
    variables = set(re.findall(rf"{ENVIRONMENT}[A-Z_]+", text)) - {f"{ENVIRONMENT}CONFIG"}
    assert variables <= {option.variable for option in OPTIONS}
    keys = {name for name in names_in(text) if re.match(r"(settle|safety)_", name)}
    assert keys <= BY_KEY.keys()


def test_the_times_in_the_text_are_the_defaults() -> None:
    table = rows(text_of("docs/events.md"), "what happened")
    named = {key: row[1] for row in table for key in names_in(row[2])}
    times = Timing()
    assert named == {
        "settle_probing_usb": f"when the driver is bound; {times.probing_usb:g} s (USB) or "
        f"{times.probing_pci:g} s (PCI) at the latest",
        "settle_probing_pci": named["settle_probing_usb"],
        "settle_probing_disk": f"when that has its driver; {times.probing_disk:g} s at the latest",
        "settle_quiet": f"after {times.quiet:g} s without an event of it",
        "settle_ceiling": f"{times.ceiling:g} s after the first event, then "
        f"{times.ceiling * 2:g}, {times.ceiling * 4:g}, at most every {times.longest:g} s",
        "settle_longest": named["settle_ceiling"],
        "safety_interval": f"everything, every {Config().safety_interval / 60:g} minutes",
    }


def logged() -> Iterator[str]:
    """The name of each event that is logged somewhere; a part that is only known then is `*`."""
    for path in PACKAGE.rglob("*.py"):
        nodes = list(ast.walk(ast.parse(path.read_text("utf-8"))))
        writers = {
            target.id
            for node in nodes
            if isinstance(node, ast.Assign) and any(map(is_log_method, ast.walk(node.value)))
            for target in node.targets
            if isinstance(target, ast.Name)
        }
        for node in nodes:
            if isinstance(node, ast.Call) and (
                is_log_method(node.func)
                or (isinstance(node.func, ast.Name) and node.func.id in writers)
            ):
                name = node.args[0]
                parts = name.values if isinstance(name, ast.JoinedStr) else [name]
                yield "".join(
                    str(part.value) if isinstance(part, ast.Constant) else "*" for part in parts
                )


def is_log_method(node: ast.AST) -> bool:
    """Whether this is `log.info` or another level."""
    return (
        isinstance(node, ast.Attribute)
        and node.attr in LEVELS
        and isinstance(node.value, ast.Name)
        and node.value.id == "log"
    )


def test_the_log_lines_are_those_of_the_program() -> None:
    documented = {
        name for row in rows(text_of("docs/events.md"), "event") for name in names_in(row[0])
    }
    patterns = {
        name: re.compile(re.escape(name).replace(r"\*", "[a-z_]+")) for name in set(logged())
    }
    unknown = [
        name for name in documented if not any(p.fullmatch(name) for p in patterns.values())
    ]
    missing = [
        name for name, p in patterns.items() if not any(p.fullmatch(known) for known in documented)
    ]
    assert (sorted(unknown), sorted(missing)) == ([], [])
    assert len(patterns) > 20


def test_the_reasons_are_those_of_the_program() -> None:
    found = [names_in(row[0]) for row in rows(text_of("docs/devices.md"), "reason")]
    assert found == [[str(reason)] for reason in Reason]


def test_the_attributes_are_those_that_are_published() -> None:
    documented = {
        name: row[1]
        for row in rows(text_of("docs/devices.md"), "attribute")
        for name in names_in(row[0])
    }
    kinds = {str: "string", bool: "bool"}
    published = {
        name: kinds[type(value)]
        for made in (desktop(), server(), homelab())
        for device in inventory(made).offered
        for name, value in device.attributes
    }
    assert documented == published


def commands(text: str) -> list[list[str]]:
    """The words behind `liken-events` in each line of shell code that runs it."""
    lines = re.findall(r"^.*?\bliken-events (?!\|)(.+)$", code(text, "sh"), re.MULTILINE)
    return [shlex.split(line.rstrip("& "), comments=True) for line in lines]


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_commands_can_be_typed(document: Path) -> None:
    for words in commands(document.read_text("utf-8")):
        assert parse(words).command == words[0]


def test_the_readme_shows_every_command() -> None:
    assert {words[0] for words in commands(text_of("README.md"))} == {
        "run",
        "watch",
        "inventory",
        "explain",
        "snapshot",
        "claim",
        "claims",
        "release",
    }


@pytest.mark.parametrize("name", ["README.md", "CONTRIBUTING.md"])
def test_targets_of_make_exist(name: str) -> None:
    targets = set(re.findall(r"^([a-z]+):", text_of("Makefile"), re.MULTILINE))
    named = set(re.findall(r"(?:^|`)make ([a-z]+)", text_of(name), re.MULTILINE))
    assert named
    assert named <= targets


def test_the_example_of_a_configuration_is_one(tmp_path: Path) -> None:
    example = code(text_of("README.md"), "toml")
    path = tmp_path / "agent.toml"
    path.write_text(example, "utf-8")
    config = load(file=str(path), environ={}, flags={})
    assert (config.node_name, config.settle_quiet) == ("worker-1", 0.25)
    assert tomllib.loads(example)["ignore"] == list(config.ignore)


@pytest.mark.parametrize("name", ["docs/settings.md", "docs/host-devices.md"])
def test_the_examples_of_host_devices_can_be_configured(tmp_path: Path, name: str) -> None:
    path = tmp_path / "agent.toml"
    path.write_text(code(text_of(name), "toml"), "utf-8")
    default, several, pattern = load(file=str(path), environ={}, flags={}).host_devices
    assert (default,) == Config().host_devices
    assert len(several.paths) == 2
    assert pattern.is_pattern


def test_the_defaults_of_a_host_device_are_those_of_the_program() -> None:
    table = rows(text_of("docs/host-devices.md"), "key")
    assert {names_in(row[0])[0]: row[2] for row in table} == {
        "resource": "",
        "path": "",
        "count": str(COUNT),
        "permissions": f"`{PERMISSIONS}`",
    }
    assert f"1 to {MOST_UNITS};" in table[2][1]


def test_the_demonstration_is_shown_as_it_is() -> None:
    shown = [line for line in code(text_of("README.md"), "").splitlines() if " ms]" in line]
    assert len(shown) == 3
    for line in shown:
        assert re.fullmatch(r" {4}[-+~] \S+  .*  \[[a-z0-9:. -]+, \d+ ms\]", line)
