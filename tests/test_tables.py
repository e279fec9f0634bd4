import json
import re
from collections.abc import Iterable
from dataclasses import replace

import pytest
import yaml
from rich.cells import cell_len

from liken_events import tables
from liken_events.core.model.device import Inventory, Judgement, PublishedDevice, Reason, Withheld
from liken_events.core.model.publish import inventory
from liken_events.core.model.recording import to_json
from liken_events.core.model.snapshot import Device, Key, Node, Snapshot
from liken_events.report import Change
from tests.fakes.devices import scsi_disk, tty, usb
from tests.fakes.machines import desktop, homelab, machine, server
from tests.fakes.screen import STYLES, Screen
from tests.fakes.typed import typed

HOSTILE = (
    "\x1b[31mred\x1b[0m",
    "\x1b]0;title\x07",
    "two\nlines\r\x0b\x0c\x85\u2028\u2029",
    "\u202eright to left\u2066\u200f",
    "\x9b31m\x7f\b\x00\t",
    "\ufeff\ue000\U000e0001",
)
"""Texts that move a cursor, break a line, reorder or hide text."""

MARKUP = "[red]:smile:[/red]"
"""What rich would take for a colour and a picture, if it were asked to."""

STICK = usb("1-1:1.0", "10c4:ea60", "ff0000", "cp210x", 2, nodes=[tty("ttyUSB0", 0)])


def hostile(text: str) -> Snapshot:
    """A machine of which everything that is text is this text."""
    node = Node(path=f"/dev/{text}", subsystem=text, major=300, minor=1, place=text)
    found = replace(
        STICK,
        driver=text,
        modalias=text,
        vendor=text,
        product=text,
        class_code=text,
        serial=text,
        maker=text,
        model=text,
        nodes=(node,),
    )
    offered = replace(found, key=Key(bus="usb", address="1-2:1.0"))
    named = replace(found, key=Key(bus="usb", address=text), driver=None)
    disk = usb("2-1:1.0", "1058:25a2", "080650", text, 3, nodes=scsi_disk("", 0, 0, 1))
    return machine([found, offered, named, disk])


COMMANDS = (
    ("inventory",),
    ("inventory", "-o", "json"),
    ("inventory", "-o", "slice"),
    ("explain",),
    ("explain", "-o", "json"),
    ("explain", "--ignore", "*"),
)


@pytest.mark.parametrize("columns", [None, 80])
@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
@pytest.mark.parametrize("text", HOSTILE)
def test_no_text_of_a_device_reaches_the_reader_as_more_than_text(
    text: str, words: tuple[str, ...], columns: int | None
) -> None:
    recorded = to_json(hostile(text))
    ran = typed(*words, "--snapshot=-", stdin=recorded, columns=columns)
    assert (ran.status, ran.err) == (0, "")
    plain = ran.out if columns is None else STYLES.sub("", ran.out)
    assert {char for char in plain if not char.isprintable()} <= {"\n"}
    if words[-1] == "json":
        assert json.loads(plain)
    if words[-1] == "slice":
        assert yaml.safe_load(plain)


@pytest.mark.parametrize("columns", [None, 200])
@pytest.mark.parametrize("words", [("inventory",), ("explain",)])
def test_text_of_a_device_is_no_markup(words: tuple[str, ...], columns: int | None) -> None:
    stick = replace(STICK, maker=MARKUP, driver=MARKUP, nodes=(Node(path=f"/dev/{MARKUP}"),))
    ran = typed(*words, "--snapshot=-", stdin=to_json(machine([stick])), columns=columns)
    assert MARKUP in STYLES.sub("", ran.out)


@pytest.mark.parametrize("words", [("inventory",), ("explain",), ("explain", "1-1.2:1.0")])
def test_colours_are_for_terminals(words: tuple[str, ...]) -> None:
    recorded = to_json(desktop())
    assert "\x1b[" in typed(*words, "--snapshot=-", stdin=recorded, columns=80).out
    assert "\x1b" not in typed(*words, "--snapshot=-", stdin=recorded).out


@pytest.mark.parametrize("environ", [{"NO_COLOR": "1"}, {"TERM": "dumb"}])
def test_a_terminal_without_colours_gets_none(environ: dict[str, str]) -> None:
    ran = typed("explain", "--snapshot=-", stdin=to_json(desktop()), columns=80, environ=environ)
    assert not re.search(r"\x1b\[[0-9;]*3[0-9]m", ran.out)


def words_in(text: str) -> set[str]:
    return set(text.split())


@pytest.mark.parametrize("columns", [80, 100, 200])
@pytest.mark.parametrize("made", [desktop(), server(), homelab()], ids=["desk", "server", "home"])
def test_on_a_terminal_lines_fit_and_names_and_paths_stay_whole(
    made: Snapshot, columns: int
) -> None:
    recorded, offered = to_json(made), inventory(made).offered
    for command in ("inventory", "explain"):
        shown = STYLES.sub("", typed(command, "--snapshot=-", stdin=recorded, columns=columns).out)
        assert max(cell_len(line) for line in shown.splitlines()) <= columns
        assert {device.name for device in offered} <= words_in(shown)
        if command == "inventory":
            assert {device.nodes[0].path for device in offered} <= words_in(shown)


def test_on_a_terminal_a_device_is_described_below_its_name() -> None:
    shown = STYLES.sub("", typed("inventory", "--snapshot=-", stdin=to_json(desktop()),
                                 columns=80).out)  # fmt: skip
    lines = [line.rstrip() for line in shown.splitlines()]
    place = next(n for n, line in enumerate(lines) if line.startswith("usb-1-1-2-1-0 "))
    assert lines[place : place + 3] == [
        "usb-1-1-2-1-0                    tty             no      /dev/bus/usb/001/004",
        "  ITead Sonoff Zigbee 3.0 USB                            /dev/ttyUSB0",
        "  Dongle Plus",
    ]


@pytest.mark.parametrize(("count", "shown"), [(3, 4), (4, 3), (9, 3)])
def test_on_a_terminal_many_nodes_are_counted(count: int, shown: int) -> None:
    stick = replace(STICK, nodes=tuple(tty(f"ttyUSB{n}", n) for n in range(count)))
    recorded = to_json(machine([stick]))
    out = STYLES.sub("", typed("inventory", "--snapshot=-", stdin=recorded, columns=80).out)
    nodes = count + 1  # with the usbfs node
    assert out.count("/dev/") == shown
    assert (f"and {nodes - shown} more" in out) == (nodes > shown)


def test_in_a_pipe_nothing_is_cut_or_wrapped_or_filled() -> None:
    many = [tty(f"ttyUSB{n}", n) for n in range(1000)]
    stick = replace(STICK, nodes=tuple(many), maker="a" * 60)
    recorded = to_json(machine([stick]))
    _, line, _ = typed("inventory", "--snapshot=-", stdin=recorded).out.splitlines()
    assert {node.path for node in many} <= words_in(line)
    assert "a" * 60 in line
    assert line == line.rstrip()


def test_in_a_pipe_columns_are_aligned() -> None:
    heading, *lines, _ = typed("inventory", "--snapshot=-", stdin=to_json(server())).out.split(
        "\n"
    )[:-1]
    for name in ("KIND", "SHARED", "WHAT IT IS", "NODES"):
        place = heading.index(name)
        assert all(line[place - 2 : place] == "  " and line[place] != " " for line in lines)


def published(name: str = "usb-1-1-1-0", nodes: Iterable[Node] = ()) -> PublishedDevice:
    return PublishedDevice(name=name, key=STICK.key, nodes=tuple(nodes))


def judged(device: Device, withheld: Withheld | None = None) -> Judgement:
    return Judgement(device=device, withheld=withheld)


IGNORED = Withheld(reason=Reason.IGNORED, detail="the configuration ignores '*'")


@pytest.mark.parametrize(
    ("offered", "judgements", "text"),
    [
        ([], [], "0 devices offered, 0 withheld, 0 devices seen"),
        ([published()], [judged(STICK)], "1 device offered, 0 withheld, 1 device seen"),
        ([], [judged(STICK, IGNORED)] * 2, "0 devices offered, 2 withheld, 2 devices seen"),
    ],
)
def test_one_line_counts(
    offered: list[PublishedDevice], judgements: list[Judgement], text: str
) -> None:
    found = Inventory(offered=tuple(offered), judgements=tuple(judgements))
    assert tables.summary(found) == text


def printed(found: Inventory, capsys: pytest.CaptureFixture[str]) -> list[str]:
    tables.overview(found, tables.console())
    return [line for line in capsys.readouterr().out.splitlines() if line]


def test_the_overview_has_a_part_for_what_is_offered_and_one_for_what_is_not(
    capsys: pytest.CaptureFixture[str],
) -> None:
    offer = Inventory(offered=(published(nodes=STICK.nodes),), judgements=(judged(STICK),))
    held = Inventory(judgements=(judged(STICK, IGNORED),))
    assert printed(offer, capsys)[1:] == [
        "Offered",
        "NAME         KIND  SHARED  WHAT IT IS  NODES",
        "usb-1-1-1-0  -     no      -           /dev/ttyUSB0",
    ]
    assert printed(held, capsys)[1:] == [
        "Withheld",
        "DEVICE       DRIVER  REASON   WHY",
        "usb 1-1:1.0  cp210x  ignored  the configuration ignores '*'",
    ]
    assert printed(Inventory(), capsys) == ["0 devices offered, 0 withheld, 0 devices seen"]


STICKS = published(nodes=[tty("ttyUSB0", 0), tty("ttyUSB1", 1)])


@pytest.mark.parametrize(
    ("change", "line"),
    [
        (
            Change(kind="added", device=STICKS),
            "+ usb-1-1-1-0  /dev/ttyUSB0 /dev/ttyUSB1",
        ),
        (
            Change(kind="changed", device=STICKS, details=("nodes",),
                   cause="bind 1-1:1.0", seconds=0.2554),
            "~ usb-1-1-1-0  /dev/ttyUSB0 /dev/ttyUSB1  changed: nodes  [bind 1-1:1.0, 255 ms]",
        ),
        (
            Change(kind="removed", device=STICKS, details=("gone",), cause="remove 1-1:1.0"),
            "- usb-1-1-1-0  gone  [remove 1-1:1.0]",
        ),
    ],
)  # fmt: skip
def test_a_change_is_one_line(
    change: Change, line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    tables.changed(change, tables.console(), "12:00:00  ")
    assert capsys.readouterr().out == f"12:00:00  {line}\n"


def test_a_change_that_a_terminal_is_too_narrow_for_goes_on_below_as_far_to_the_right(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    many = published(nodes=[tty(f"ttyUSB{n}", n) for n in range(4)])
    with Screen(40) as screen:
        with open(screen.descriptor, "w", encoding="utf-8", closefd=False) as terminal:
            monkeypatch.setattr("sys.stdout", terminal)
            tables.changed(Change(kind="added", device=many), tables.console(), "12:00:00  ")
        screen.finish()
        lines = [line.rstrip() for line in screen.plain.splitlines()]
    assert lines == [
        "12:00:00  + usb-1-1-1-0  /dev/ttyUSB0",
        "          /dev/ttyUSB1 /dev/ttyUSB2",
        "          /dev/ttyUSB3",
    ]


@pytest.mark.parametrize("text", HOSTILE)
def test_a_change_has_no_text_that_is_more_than_text(
    text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    device = published(name=text, nodes=[Node(path=text)])
    for kind in ("added", "changed", "removed"):
        change = Change(kind=kind, device=device, details=(text,), cause=text, seconds=1)
        tables.changed(change, tables.console())
        out = capsys.readouterr().out
        assert out.endswith("\n")
        assert out[:-1].isprintable()
