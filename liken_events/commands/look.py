"""The commands that look once: `inventory`, `explain`, `snapshot`.

They need no privilege, change nothing and start nothing. With `--snapshot` they look at a recorded
machine instead of this one, so a bug report can be explained where it is read.

This file reads, asks the core, and prints. The tables are in `tables`.
"""

import os
import sys
from dataclasses import replace

from liken_events import tables
from liken_events.agent import policy_of, roots_of
from liken_events.arguments import Arguments
from liken_events.cluster.slice_file import dump_slice
from liken_events.commands import CommandError
from liken_events.config import Config, check_roots
from liken_events.core.model import publish, reading, recording
from liken_events.core.model.device import Inventory, Judgement, PublishedDevice
from liken_events.core.model.json import Json, dump
from liken_events.core.model.names import device_name
from liken_events.core.model.snapshot import Snapshot, Use, sort_uses
from liken_events.core.model.storage import PROTECTED
from liken_events.core.plan.slices import CreateSlice, Observed, plan
from liken_events.sources.sysfs import Scanner


def inventory(config: Config, arguments: Arguments) -> int:
    """Prints what would be published now."""
    found = _inventory(config, arguments)
    match arguments.output:
        case "json":
            _print_json([_offer(device) for device in found.offered])
        case "slice":
            _print_slices(config, found)
        case _:
            out = tables.console()
            if found.offered:
                tables.offered(found.offered, out)
            out.print(tables.summary(found), style="dim")
            if not found.offered:
                out.print("'liken-events explain' says why", style="dim")
    return 0


def explain(config: Config, arguments: Arguments) -> int:
    """Prints what became of every device, or of one."""
    found = _inventory(config, arguments).judgements
    if arguments.device is not None:
        found = tuple(item for item in found if _is_meant(item, arguments.device))
        if not found:
            raise CommandError(
                f"no PCI or USB device is called '{arguments.device}'; "
                "'liken-events explain' lists all of them"
            )
    if arguments.output == "json":
        _print_json([_explanation(judgement) for judgement in found])
    else:
        tables.explained(found, tables.console())
    return 0


def snapshot(config: Config, arguments: Arguments) -> int:
    """Writes this machine down as JSON."""
    machine = _look(config, arguments)
    text = recording.to_json(machine if arguments.with_serials else machine.without_serials())
    if arguments.file in (None, "-"):
        sys.stdout.write(text)
        return 0
    _write(arguments.file, text)
    sys.stderr.write(f"wrote {len(machine.devices)} devices to {arguments.file}\n")
    return 0


def _look(config: Config, arguments: Arguments) -> Snapshot:
    """The recorded machine that is named, or this one."""
    if arguments.snapshot is None:
        check_roots(config)
        return Scanner(roots_of(config)).scan()
    machine = read_snapshot(arguments.snapshot)
    protected = [Use(what=path, fstype=PROTECTED, source=path) for path in config.protect]
    uses = sort_uses([*machine.storage.uses, *protected])
    return replace(machine, storage=replace(machine.storage, uses=uses))


def read_snapshot(path: str) -> Snapshot:
    """A recorded machine from a file; `-` reads standard input.

    Raises:
        CommandError: it cannot be read, or is no snapshot.
    """
    try:
        if path == "-":
            text = sys.stdin.read()
        else:
            with open(path, encoding="utf-8") as file:
                text = file.read()
        return recording.from_json(text)
    except OSError as error:
        raise CommandError(f"{path}: cannot be read: {error.strerror}") from None
    except (reading.ReadingError, UnicodeDecodeError) as error:
        raise CommandError(f"{path}: is no snapshot: {error}") from None


def _inventory(config: Config, arguments: Arguments) -> Inventory:
    return publish.inventory(_look(config, arguments), policy_of(config))


def _offer(device: PublishedDevice) -> Json:
    return {
        "name": device.name,
        "nodes": [node.path for node in device.nodes],
        "shareable": device.shareable,
        "attributes": dict(device.attributes),
    }


def _explanation(judgement: Judgement) -> Json:
    withheld = judgement.withheld
    return {
        "bus": judgement.device.key.bus,
        "address": judgement.device.key.address,
        "driver": judgement.device.driver,
        "published": [device.name for device in judgement.published],
        "withheld": None
        if withheld is None
        else {"reason": withheld.reason.value, "detail": withheld.detail},
    }


def _is_meant(judgement: Judgement, wanted: str) -> bool:
    """Whether a person means this device: by address, by name, or by the name of one of its
    parts."""
    key = judgement.device.key
    handles = {key.address, f"{key.bus} {key.address}", device_name(key)}
    return wanted in handles | {device.name for device in judgement.published}


def _print_slices(config: Config, found: Inventory) -> None:
    observed = Observed(node=config.node_name, divide=config.divide_pool)
    texts = [
        dump_slice(change.body)
        for change in plan(observed, found.offered)
        if isinstance(change, CreateSlice)
    ]
    sys.stdout.write("---\n".join(texts) or "# nothing is offered, so there is no slice\n")


def _print_json(value: list[Json]) -> None:
    sys.stdout.write(dump(value, indent=2) + "\n")


def _write(path: str, text: str) -> None:
    """Writes a file whole or not at all. What is there and is no file (`/dev/stdout`) is written
    to, not replaced."""
    target = os.path.realpath(path)
    temporary = f"{target}.{os.getpid()}.tmp"
    try:
        if os.path.exists(path) and not os.path.isfile(path):
            with open(path, "w", encoding="utf-8") as file:
                file.write(text)
            return
        try:
            with open(temporary, "w", encoding="utf-8") as file:
                file.write(text)
            os.replace(temporary, target)
        finally:
            if os.path.exists(temporary):
                os.unlink(temporary)
    except OSError as error:
        raise CommandError(f"{path}: cannot be written: {error.strerror}") from None
