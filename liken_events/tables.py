"""What a person sees: tables and lines.

Text that comes from hardware is shown on a terminal here, so everything passes through `printable`
and none of it is taken for markup. Colours and box lines appear on a terminal alone; in a pipe a
table is aligned text.

This file makes the views. What is in them is decided by `core.model` and `report`.
"""

import sys
from collections.abc import Iterable, Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from liken_events.core.model.device import Inventory, Judgement, PublishedDevice
from liken_events.core.model.names import printable
from liken_events.report import Change

PIPE_WIDTH = 4096
"""Columns of a line that goes to no terminal: wide enough never to cut or wrap."""

NODES_SHOWN = 3
"""Nodes listed in the table on a terminal; a sound card has twenty."""

_STYLES = {"added": "green", "changed": "yellow", "removed": "red"}
_SIGNS = {"added": "+", "changed": "~", "removed": "-"}


def console() -> Console:
    """Standard output, as a terminal or as a pipe."""
    terminal = sys.stdout.isatty()
    return Console(
        file=sys.stdout,
        width=None if terminal else PIPE_WIDTH,
        highlight=False,
        markup=False,
        emoji=False,
        soft_wrap=not terminal,
    )


def offered(devices: Sequence[PublishedDevice], out: Console) -> None:
    """The table of what is offered."""
    table = _table("NAME", "KIND", "SHARED", "NODES", "WHAT IT IS")
    for device in devices:
        attributes = dict(device.attributes)
        kind = attributes.get("subsystem") or attributes.get("class") or "-"
        table.add_row(
            _cell(device.name, "bold"),
            _cell(str(kind)),
            _cell("yes" if device.shareable else "no"),
            _cell(_nodes([node.path for node in device.nodes], out)),
            _cell(str(attributes.get("name", "-"))),
        )
    out.print(table)


def withheld(judgements: Iterable[Judgement], out: Console) -> None:
    """The table of what is held back, and why."""
    table = _table("DEVICE", "DRIVER", "REASON", "WHY")
    for judgement in judgements:
        if judgement.withheld is not None:
            key = judgement.device.key
            table.add_row(
                _cell(f"{key.bus} {key.address}", "bold"),
                _cell(judgement.device.driver or "-"),
                _cell(judgement.withheld.reason),
                _cell(judgement.withheld.detail),
            )
    out.print(table)


def explained(judgements: Iterable[Judgement], out: Console) -> None:
    """The table of every device and what became of it."""
    table = _table("BUS", "ADDRESS", "DRIVER", "PUBLISHED AS", "WITHHELD", "WHY")
    for judgement in judgements:
        reason = judgement.withheld
        table.add_row(
            _cell(judgement.device.key.bus),
            _cell(judgement.device.key.address, "bold"),
            _cell(judgement.device.driver or "-"),
            _cell(", ".join(device.name for device in judgement.published) or "-"),
            _cell(reason.reason if reason else "-"),
            _cell(reason.detail if reason else "-"),
        )
    out.print(table)


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


def change_line(change: Change, clock: str = "") -> Text:
    """One change as one line, with the time of day in front if there is one."""
    line = Text(f"{clock}  " if clock else "")
    style = _STYLES[change.kind]
    line.append(f"{_SIGNS[change.kind]} {printable(change.device.name)}", style=f"bold {style}")
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


def _table(*headings: str) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim", padding=(0, 2, 0, 0))
    for heading in headings:
        table.add_column(heading, overflow="fold")
    return table


def _cell(text: str, style: str = "") -> Text:
    return Text(printable(text), style=style)


def _nodes(paths: list[str], out: Console) -> str:
    if not out.is_terminal or len(paths) <= NODES_SHOWN + 1:
        return " ".join(paths)
    return f"{' '.join(paths[:NODES_SHOWN])} and {len(paths) - NODES_SHOWN} more"
