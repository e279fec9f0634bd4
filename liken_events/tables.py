"""What a person sees: tables and lines.

Text that comes from hardware is shown on a terminal here, so everything passes through `printable`
and none of it is taken for markup. A terminal gets colours, and as many lines for a device as its
width takes; a pipe gets aligned text, one line for each device and nothing left out.

This file makes the views. What is in them is decided by `core.model` and `report`.
"""

import sys
from collections.abc import Iterable, Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from liken_events.claim_states import ClaimState
from liken_events.core.model.device import Inventory, Judgement, PublishedDevice
from liken_events.core.model.names import printable
from liken_events.report import Change

PIPE_WIDTH = 1_000_000
"""Columns of a line that goes to no terminal: wide enough never to cut or wrap. A controller with
a hundred disks has some thousand nodes."""

NAME_WIDTH = 31
"""Columns of the longest usual name, `pci-0000-00-02-0-drm-dp-aux-dev`: on a terminal, a device is
described below its name. With the other columns it makes 80."""

NODES_SHOWN = 3
"""Nodes listed in the table on a terminal; a sound card has twenty."""

_STYLES = {"added": "green", "changed": "yellow", "removed": "red"}
_STATE_STYLES = {"prepared": "green", "unhealthy": "red", "broken": "red"}
_SIGNS = {"added": "+", "changed": "~", "removed": "-"}


class _Output(Console):
    """A console that leaves it to the caller what to do when the reader is gone. rich itself
    would exit."""

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError


def console() -> Console:
    """Standard output, as a terminal or as a pipe."""
    terminal = sys.stdout.isatty()
    return _Output(
        file=sys.stdout,
        width=None if terminal else PIPE_WIDTH,
        highlight=False,
        markup=False,
        emoji=False,
    )


def offered(devices: Sequence[PublishedDevice], out: Console) -> None:
    """The table of what is offered."""
    terminal = out.is_terminal
    table = _table("NAME", "KIND", "SHARED", *([] if terminal else ["WHAT IT IS"]), "NODES")
    for device in devices:
        attributes = dict(device.attributes)
        name, words = _cell(device.name, "bold"), _cell(str(attributes.get("name", "")))
        kind = _cell(str(attributes.get("subsystem") or attributes.get("class") or "-"))
        shared = _cell("yes" if device.shareable else "no")
        nodes = [node.path for node in device.nodes]
        if terminal:
            below = words.wrap(out, NAME_WIDTH - 2) if words else ()
            table.add_row(Text("\n  ").join([name, *below]), kind, shared, _few(nodes))
        else:
            table.add_row(name, kind, shared, words or _cell("-"), _cell(" ".join(nodes)))
    _show(table, out)


def withheld(judgements: Iterable[Judgement], out: Console) -> None:
    """The table of what is held back, and why."""
    table = _table("DEVICE", "DRIVER", "REASON", "WHY")
    for judgement in judgements:
        if judgement.withheld is not None:
            table.add_row(
                _device(judgement),
                _cell(judgement.device.driver or "-"),
                _cell(judgement.withheld.reason),
                _cell(judgement.withheld.detail),
            )
    _show(table, out)


def explained(judgements: Iterable[Judgement], out: Console) -> None:
    """The table of every device and what became of it."""
    table = _table("DEVICE", "DRIVER", "PUBLISHED AS, OR WHY NOT")
    separator = "\n" if out.is_terminal else ", "
    for judgement in judgements:
        outcome = [device.name for device in judgement.published]
        cell = Text(separator).join(_cell(name, "green") for name in outcome)
        if judgement.withheld is not None:
            if outcome:
                cell.append(separator)
            cell.append(judgement.withheld.reason, style="yellow")
            cell.append(f": {printable(judgement.withheld.detail)}")
        table.add_row(
            _device(judgement),
            _cell(judgement.device.driver or "-"),
            cell,
        )
    _show(table, out)


def claims(states: Iterable[ClaimState], out: Console) -> None:
    """The table of claims: each with its devices, their nodes, and what is wrong."""
    table = _table("CLAIM", "STATE", "DEVICE", "NODES, OR WHY NOT")
    for state in states:
        name = _cell(state.claim, "bold")
        word = _cell(state.state, _STATE_STYLES.get(state.state, "yellow"))
        if state.reason or not state.devices:
            devices = " ".join(device.name for device in state.devices)
            table.add_row(name, word, _cell(devices or "-"), _cell(state.reason or "-"))
            continue
        for device in state.devices:
            says = device.trouble or " ".join(device.nodes)
            table.add_row(name, word, _cell(device.name), _cell(says))
            name = word = Text("") if out.is_terminal else name  # a pipe gets whole lines
    _show(table, out)


def overview(inventory: Inventory, out: Console) -> None:
    """Both tables, of what is offered and of what is withheld, under one line that counts."""
    out.print(summary(inventory), style="bold")
    if inventory.offered:
        out.print("\nOffered", style="bold")
        offered(inventory.offered, out)
    if any(judgement.withheld is not None for judgement in inventory.judgements):
        out.print("\nWithheld", style="bold")
        withheld(inventory.judgements, out)
    out.print()


def summary(inventory: Inventory) -> str:
    """One line: how much is offered, and how much is held back."""
    held = sum(judgement.withheld is not None for judgement in inventory.judgements)
    shown = _count(len(inventory.offered), "device")
    return f"{shown} offered, {held} withheld, {_count(len(inventory.judgements), 'device')} seen"


def changed(change: Change, out: Console, lead: str = "") -> None:
    """One change as one line, with the time of day or an indent in front. A terminal that is too
    narrow gets the rest below, as far to the right."""
    table = Table.grid()
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    table.add_row(Text(lead), _change_line(change))
    _show(table, out)


def _change_line(change: Change) -> Text:
    style = _STYLES[change.kind]
    line = Text.assemble(
        (f"{_SIGNS[change.kind]} {printable(change.device.name)}", f"bold {style}")
    )
    if change.kind == "removed":
        line.append(f"  {printable(', '.join(change.details))}")
    else:
        line.append(f"  {' '.join(printable(path) for path in change.nodes)}")
        if change.details:
            line.append(f"  changed: {printable(', '.join(change.details))}")
    if change.cause:
        line.append(f"  [{printable(change.cause)}")
        line.append("" if change.seconds is None else f", {change.seconds * 1000:.0f} ms")
        line.append("]")
    return line


def _count(number: int, thing: str) -> str:
    return f"{number} {thing}{'' if number == 1 else 's'}"


def _show(table: Table, out: Console) -> None:
    """Prints a table; to a pipe without the blanks that fill its last column."""
    if out.is_terminal:
        out.print(table)
        return
    with out.capture() as captured:
        out.print(table)
    for line in captured.get().splitlines():
        out.print(line.rstrip())


def _table(*headings: str) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim", padding=(0, 2, 0, 0))
    for index, heading in enumerate(headings):
        table.add_column(heading, overflow="fold", no_wrap=index == 0)
    return table


def _device(judgement: Judgement) -> Text:
    key = judgement.device.key
    return _cell(f"{key.bus} {key.address}", "bold")


def _cell(text: str, style: str = "") -> Text:
    return Text(printable(text), style=style)


def _few(paths: list[str]) -> Text:
    """The first of these, one below the other, and how many more there are."""
    if len(paths) > NODES_SHOWN + 1:
        paths = [*paths[:NODES_SHOWN], f"and {len(paths) - NODES_SHOWN} more"]
    return Text("\n").join(_cell(path) for path in paths)
