"""`python -m bench`: measures, prints a table, writes JSON, and fails if a promise is not kept.

Made-up events must reach nobody else, so the whole program starts itself again in a network
namespace of its own. There the loopback device is down at first.

exit status: 0 if every promise that was measured is kept, 1 if not, 2 for wrong usage, 3 if this
machine does not let us measure.
"""

import argparse
import fcntl
import json
import os
import signal
import socket
import struct
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NoReturn

from rich.console import Console
from rich.table import Table

from bench import (
    claims,
    cluster,
    deviceplugin,
    idle,
    kernel,
    latency,
    machine,
    noise,
    polling,
    scale,
    scan,
    storm,
)
from bench.effort import FULL, NORMAL, QUICK, Effort
from bench.measurement import Measurement
from bench.trees import Trees
from liken_events.core.model.json import Json
from liken_events.simulate import namespace
from tests.vm.machine import what_is_missing

GROUPS: dict[str, Callable[[Trees, Effort], Iterator[Measurement]]] = {
    "noise": noise.measure,
    "scale": scale.measure,
    "scan": scan.measure,
    "latency": latency.measure,
    "storm": storm.measure,
    "claims": claims.measure,
    "deviceplugin": deviceplugin.measure,
    "idle": idle.measure,
    "polling": polling.measure,
    "kernel": kernel.measure,
    "cluster": cluster.measure,
}

WHAT_IS_MISSING = {kernel.GROUP: what_is_missing, cluster.GROUP: cluster.what_is_missing}
"""Of groups that need more than Python: what says what."""

RESULTS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "results", "latest.json")

EXIT_MISSED, EXIT_IMPOSSIBLE = 1, 3

_SIOCGIFFLAGS, _SIOCSIFFLAGS, _IFF_UP = 0x8913, 0x8914, 1
_IFREQ = struct.Struct("16sh22x")
"""`struct ifreq` with flags."""


def main() -> int:
    """Measures what was asked for."""
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument(
        "groups",
        nargs="*",
        metavar="NAME",
        help=f"of {', '.join(GROUPS)}; all that can be measured without any",
    )
    parser.add_argument("--json", metavar="FILE", default=RESULTS, help="where results go")
    parser.add_argument("--quick", action="store_true", help="to see that everything runs")
    parser.add_argument(
        "--full", action="store_true", help="ten minutes are waited for: takes some forty"
    )
    arguments = parser.parse_args()
    unknown = [name for name in arguments.groups if name not in GROUPS]
    if unknown:
        parser.error(f"there is no group {', '.join(unknown)}")
    missing = {name: what for name, ask in WHAT_IS_MISSING.items() if (what := ask()) is not None}
    for name in [name for name in missing if name in arguments.groups]:
        sys.stderr.write(f"bench: the group {name} cannot be measured here. {missing[name]}\n")
        return EXIT_IMPOSSIBLE
    try:
        os.makedirs(os.path.dirname(os.path.abspath(arguments.json)), exist_ok=True)
        open(arguments.json, "a", encoding="utf-8").close()
    except OSError as error:
        parser.error(f"--json: {arguments.json} cannot be written: {error.strerror}")
    if not namespace.is_inside():
        try:
            _start_inside()
        except namespace.NoNamespace as reason:
            sys.stderr.write(f"bench: no network namespace can be had here: {reason}\n")
            return EXIT_IMPOSSIBLE
    # Told to end, agents and trees go too: both are left by leaving the blocks that made them.
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    _bring_loopback_up()
    effort = QUICK if arguments.quick else FULL if arguments.full else NORMAL
    left_out = {} if arguments.groups else missing
    groups = arguments.groups or [name for name in GROUPS if name not in left_out]
    return _run(groups, effort, arguments.json, left_out)


def _start_inside() -> NoReturn:
    """Replaces this process with the same program in a network namespace of its own.

    Raises:
        NoNamespace: none can be had; the message says why.
    """
    line = namespace.inside([sys.executable, "-m", "bench", *sys.argv[1:]])
    os.execvp(line[0], line)


def _bring_loopback_up() -> None:
    """For the API server that is one of our threads."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        name, flags = _IFREQ.unpack(fcntl.ioctl(sock, _SIOCGIFFLAGS, _IFREQ.pack(b"lo", 0)))
        fcntl.ioctl(sock, _SIOCSIFFLAGS, _IFREQ.pack(name, flags | _IFF_UP))


def _run(groups: Sequence[str], effort: Effort, path: str, left_out: Mapping[str, str]) -> int:
    described = machine.describe()
    found: list[Measurement] = []
    with Trees() as trees:
        for name in groups:
            began = time.monotonic()
            found += GROUPS[name](trees, effort)
            sys.stderr.write(f"{name}: measured in {time.monotonic() - began:.0f} s\n")
    _show(described, found)
    _write(path, described, found, left_out)
    for name, reason in left_out.items():
        sys.stderr.write(f"bench: the group {name} was left out. {reason}\n")
    return 0 if all(item.passed for item in found) else EXIT_MISSED


def _show(described: dict[str, Json], found: Sequence[Measurement]) -> None:
    out = Console(width=None if sys.stdout.isatty() else 150)
    out.print(" · ".join(f"{name} {value}" for name, value in described.items()), style="bold")
    for other in dict.fromkeys(item.machine for item in found if item.machine is not None):
        out.print(other, style="bold")
    table = Table(box=None, pad_edge=False)
    table.add_column("")
    table.add_column("")
    for title in ("median", "lowest", "highest", "bound", ""):
        table.add_column(title, justify="right")
    group = ""
    for item in found:
        table.add_row(
            item.group if item.group != group else "",
            item.what,
            f"{_number(item.median)} {item.unit}",
            _number(min(item.samples)),
            _number(max(item.samples)),
            "" if item.bound is None else _number(item.bound),
            "" if item.bound is None else "ok" if item.passed else "MISSED",
            style="" if item.passed else "bold red",
        )
        group = item.group
    out.print(table)


def _number(value: float) -> str:
    """Three significant digits, and no more than the number has."""
    if value == 0 or abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def _write(
    path: str,
    described: dict[str, Json],
    found: Sequence[Measurement],
    left_out: Mapping[str, str],
) -> None:
    measurements: list[Json] = [item.to_json() for item in found]
    body: dict[str, Json] = {
        "machine": described,
        "time": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        "measurements": measurements,
        "left_out": dict(left_out),
        "passed": all(item.passed for item in found),
    }
    with open(path, "w", encoding="utf-8") as file:
        json.dump(body, file, indent=2, ensure_ascii=False)
        file.write("\n")


if __name__ == "__main__":
    sys.exit(main())
