"""The words of the command line, and the help that teaches them.

This file makes the parsers. Options that are settings come from the table in `options`; here are
only the commands' own. What a command does is in `commands`.
"""

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NoReturn

from liken_events import __version__
from liken_events.config import Config
from liken_events.core.model.names import printable
from liken_events.options import OPTIONS, Option, Raw

EXIT_USAGE = 2

_ABOUT = """\
A node agent that reacts: this machine's PCI and USB devices become a Kubernetes
ResourceSlice (driver liken.sh) that follows the hardware by event. Without a
cluster the slice is a file in a directory.

Try it:
  liken-events inventory               what would be published now
  liken-events explain                 every device, and why it is or is not
  liken-events run                     publish, and follow every change
  liken-events claim usb-1-2-1-0       take a device for a container
  liken-events run --simulate desk     the same on a made-up, changing machine
"""

_EXITS = """\
exit status:
  0    done; 'run' was stopped by SIGTERM or Ctrl-C
  1    the command failed: a file cannot be read, a device is not there
  2    wrong usage or configuration; the message names flag, variable or file
  130  another command was stopped by Ctrl-C

Settings are taken from --config FILE, then from LIKEN_EVENTS_... variables,
then from flags; later beats earlier. --settle-quiet 1 is the same as
LIKEN_EVENTS_SETTLE_QUIET=1, and as settle_quiet = 1 in the file (or quiet = 1
under [settle]).
"""

_RUN = """\
Publishes what this machine offers and follows every change, until SIGTERM.

  liken-events run
  liken-events run --cluster directory --cluster-dir /tmp/slices
  liken-events run --config /etc/liken-events.toml --log-format json
  liken-events run --simulate desk
"""

_WATCH = """\
Follows every change as 'run' does, and publishes nothing: each change of what
would be offered is one line. The first lines are what is offered now.

  liken-events watch
  liken-events watch -o json | jq -r .device
"""

_INVENTORY = """\
What would be published now.

  liken-events inventory
  liken-events inventory -o json | jq -r '.[].name'
  liken-events inventory -o slice --node-name worker-1
  liken-events inventory --snapshot bug-report.json
"""

_EXPLAIN = """\
Every PCI and USB device, with what it publishes or why it is withheld. DEVICE
is an address (1-2:1.0), a name (usb-1-2-1-0) or the name of a part
(pci-0000-00-02-0-display).

  liken-events explain
  liken-events explain 0000:00:1f.2
  liken-events explain -o json --snapshot bug-report.json

reasons:
  no-driver        no kernel driver is bound to it
  bus-structure    a hub or bridge: peripherals attach to it
  no-nodes         its driver registers no device node
  in-use           a mounted filesystem or active swap lies on it
  storage-unknown  the mounts cannot be read, so no disk is offered
  ignored          the configuration says so
  same-name        another device has this name already
  over-limit       the slice holds no more devices
"""

_SNAPSHOT = """\
Writes this machine down as JSON: for bug reports, tests, and to look at it
elsewhere. Serial numbers are replaced by stand-ins; mount points and names of
devices are not.

  liken-events snapshot -o my-machine.json
  liken-events explain --snapshot my-machine.json
"""

_CLAIM = """\
Claims devices of this machine, where there is no cluster that would: writes the
claim, waits until the agent ('liken-events run') has prepared it, and prints an
id for each device that a container runtime takes. DEVICE is a published name,
or an address that stands for one device.

  liken-events claim usb-1-2-1-0
  liken-events claim usb-1-2-1-0 pci-0000-00-02-0 --name cam
  podman run --device $(liken-events claim usb-1-2-1-0) IMAGE

Exit status 1 if the claim waits: it stays, and is prepared when it can be.
"""

_CLAIMS = """\
All claims on this machine: the nodes that each device has now, how it fares, or
why the claim waits.

  liken-events claims
  liken-events claims -o json | jq -r '.[].devices[].cdi'

states:
  prepared   its devices are there; the CDI spec has their nodes
  unhealthy  a device is away, or came back under other numbers
  waiting    not prepared yet, and why
  broken     its file cannot be understood
"""

_RELEASE = """\
Ends a claim: its devices can be claimed by others, and a USB device that a
program took from its driver is given back to it.

  liken-events release usb-1-2-1-0
  liken-events release default/cam
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Arguments:
    """What was typed.

    Attributes:
        command: one of the commands.
        config: path of the configuration file, or None.
        flags: option key to value, None where it was not given.
        output: form of the output (`-o`), where the command has several.
        device: the device that `explain` is asked about.
        devices: the devices to `claim`.
        name: name of the claim to make or to release, or None.
        snapshot: a recorded machine to look at instead of this one.
        file: where `snapshot` writes to; None for standard output.
        with_serials: keep serial numbers.
        simulate, simulate_if_empty: a recorded machine's name or file.
        keep: go on after the simulation's script.
        words: all words as they were typed.
    """

    command: str
    words: tuple[str, ...] = ()
    config: str | None = None
    flags: dict[str, Raw | None] = field(default_factory=dict)
    output: str = "table"
    device: str | None = None
    devices: tuple[str, ...] = ()
    name: str | None = None
    snapshot: str | None = None
    file: str | None = None
    with_serials: bool = False
    simulate: str | None = None
    simulate_if_empty: str | None = None
    keep: bool = False


def parse(words: Sequence[str] | None = None) -> Arguments:
    """Parses the words, or prints help or a usage error and exits (status 0 or 2)."""
    raw = sys.argv[1:] if words is None else list(words)
    typed = vars(_parser().parse_args(raw))
    flags: dict[str, Raw | None] = {option.key: typed.pop(option.key) for option in OPTIONS}
    typed["devices"] = tuple(typed.get("devices", ()))
    return Arguments(flags=flags, words=tuple(raw), **typed)


def _parser() -> argparse.ArgumentParser:
    top = _Parser(
        prog="liken-events",
        description=_ABOUT,
        epilog=_EXITS,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    top.add_argument("-V", "--version", action="version", version=f"liken-events {__version__}")
    commands = top.add_subparsers(
        title="commands",
        dest="command",
        metavar="COMMAND",
        required=True,
        parser_class=_Parser,
    )

    run = _command(commands, "run", _RUN, "publish, and follow every change")
    run.add_argument(
        "--simulate",
        metavar="MACHINE",
        help="run on a recorded machine ('desk' or a snapshot file), made up as a temporary tree, "
        "and play a script of plugging and pulling on it",
    )
    run.add_argument(
        "--simulate-if-empty",
        metavar="MACHINE",
        help="the same, but only if nothing on this machine can be claimed",
    )
    run.add_argument(
        "--keep", action="store_true", help="go on after the simulation's script, until Ctrl-C"
    )

    watch = _command(commands, "watch", _WATCH, "print each change, publish nothing")
    _output(watch, "table", "json", help_text="lines for people, or one JSON object a line")

    inventory = _command(commands, "inventory", _INVENTORY, "what would be published now")
    _output(inventory, "table", "json", "slice")
    _recorded(inventory)

    explain = _command(
        commands, "explain", _EXPLAIN, "why each device is published or not", "[options] [DEVICE]"
    )
    explain.add_argument("device", nargs="?", metavar="DEVICE", help="address or name of one")
    _output(explain, "table", "json")
    _recorded(explain)

    snapshot = _command(commands, "snapshot", _SNAPSHOT, "write this machine down as JSON")
    snapshot.add_argument(
        "-o", dest="file", type=_path, metavar="FILE", help="file to write, not standard output"
    )
    snapshot.add_argument("--with-serials", action="store_true", help="keep serial numbers")

    claim = _command(
        commands, "claim", _CLAIM, "take devices for a container", "[options] DEVICE..."
    )
    claim.add_argument("devices", nargs="+", metavar="DEVICE", help="published name or address")
    claim.add_argument(
        "--name", metavar="NAME", help="name of the claim (default: the first device's)"
    )

    claims = _command(commands, "claims", _CLAIMS, "list claims, their nodes and health")
    _output(claims, "table", "json")

    release = _command(commands, "release", _RELEASE, "end a claim", "[options] NAME")
    release.add_argument("name", metavar="NAME", help="name of the claim, or NAMESPACE/NAME")
    return top


class _Parser(argparse.ArgumentParser):
    """A parser whose complaint is one sentence: the full usage would hide it."""

    def error(self, message: str) -> NoReturn:
        text = printable(message)
        self.exit(EXIT_USAGE, f"{self.prog}: {text}; '{self.prog} --help' explains\n")


def _command(
    commands: "argparse._SubParsersAction[_Parser]",
    name: str,
    about: str,
    short: str,
    takes: str = "[options]",
) -> argparse.ArgumentParser:
    command = commands.add_parser(
        name,
        help=short,
        usage=f"liken-events {name} {takes}",
        description=about,
        epilog=_EXITS,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    settings = command.add_argument_group("settings")
    settings.add_argument(
        "--config",
        type=_path,
        metavar="FILE",
        help="TOML file with settings (default: $LIKEN_EVENTS_CONFIG)",
    )
    defaults = Config()
    for option in OPTIONS:
        _add(settings, option, getattr(defaults, option.key))
    return command


def _add(group: "argparse._ArgumentGroup", option: Option, default: object) -> None:
    is_told = default in ("", (), False)
    shown = ", ".join(map(str, default)) if isinstance(default, tuple) else default
    text = option.help if is_told else f"{option.help} (default: {shown})"
    text = text.replace("%", "%%")
    match option.kind:
        case "switch":
            group.add_argument(
                option.flag,
                dest=option.key,
                action=argparse.BooleanOptionalAction,
                default=None,
                help=text,
            )
        case "list" | "tables":
            group.add_argument(
                option.flag,
                dest=option.key,
                action="append",
                metavar=option.metavar,
                help=text,
            )
        case "choice":
            among = "{" + ",".join(option.choices) + "}"
            group.add_argument(option.flag, dest=option.key, metavar=among, help=text)
        case _:
            group.add_argument(option.flag, dest=option.key, metavar=option.metavar, help=text)


def _output(command: argparse.ArgumentParser, *forms: str, help_text: str = "") -> None:
    command.add_argument(
        "-o", "--output", choices=forms, default=forms[0], help=help_text or "form of the output"
    )


def _recorded(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--snapshot",
        type=_path,
        metavar="FILE",
        help="look at this recorded machine ('-' for standard input) instead of this one",
    )


def _path(text: str) -> str:
    """A path that names something: an unset variable of a script does not."""
    if not text:
        raise argparse.ArgumentTypeError("expected a path, found ''")
    return text
