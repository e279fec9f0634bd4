"""Makes the fixtures of the fast tests from recordings:
`python -m tests.vm.fixtures RECORDINGS tests/data/hotplug`.

A recording has all that a guest told during a test. Of that a replay needs the devices that the
test is about, and those that are published: this file leaves out the rest of the machine, and
writes what remains so that it can be read.

What the lines of a fixture mean is said in `tests/data/hotplug/README.md`.
"""

import base64
import json
import os
import re
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from liken_events.cluster.slice_file import load_slice
from tests.fakes.agents import SLICE, devices
from tests.fakes.replay import is_part, nodes_in
from tests.vm.claims import FOLDER
from tests.vm.desk import CDI, SLICES
from tests.vm.hardware import GPU, SOUND
from tests.vm.inside.followed import WORDS
from tests.vm.inside.recorders import UDEV_MAGIC, UDEV_OFFSET

Record = dict[str, Any]

SPEC = re.compile(r"liken\.sh-(.*)\.json")
BYSTANDERS = {GPU, SOUND}
"""What stays of that which is published all the time: two devices with several nodes each."""

NO_DISK = "0:"
"""Begins the numbers of filesystems that are on no disk."""


def main(source: Path, target: Path) -> None:
    """Makes the fixtures of all that was recorded; others stay. A test in which nothing happened
    to a device becomes none."""
    target.mkdir(exist_ok=True)
    for path in sorted(source.glob("*.jsonl")):
        start, *records = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
        records.sort(key=lambda record: record["time"])
        lines = list(fixture(start, records))
        if any("kernel" in line for line in lines):
            text = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)
            (target / f"{short(path.stem)}.jsonl").write_text(text, "utf-8")


def short(name: str) -> str:
    """A file name of a test's: `test_odd[long letters]` becomes `odd_long_letters`."""
    return re.sub(r"\W+", "_", name.removeprefix("test_")).strip("_")


def fixture(start: Record, records: list[Record]) -> Iterator[Record]:
    """The lines of one fixture."""
    events = {
        int(item["properties"]["SEQNUM"]): item
        for item in records
        if item["kind"] == "uevent" and item["group"] == "kernel"
    }
    known = {name: it for name, it in start["base"].items() if it["address"] in BYSTANDERS}
    yield {
        "kernel_release": start["kernel"],
        "late": round(max(lateness(records, events), default=0.0), 4),
        "published": known,
    }
    for path in kept(start, events.values()):
        yield {"there": path, "files": start["sysfs"][path]}
    tables = {path: table(text) for path, text in start["tables"].items()}
    for path, lines in tables.items():
        yield {"table": path, "lines": lines}
    first = min((item["time"] for item in events.values()), default=0.0)
    changed = gathered(records)
    others = start["base"].keys() - known.keys()
    for item in records:
        line: Record = {}
        match item["kind"]:
            case "uevent":
                line = message(item)
                if item["group"] == "kernel":
                    line |= changed.get(int(item["properties"]["SEQNUM"]), {})
            case "table" if table(item["text"]) != tables[item["path"]]:
                tables[item["path"]] = table(item["text"])
                line = {"table": item["path"], "lines": tables[item["path"]]}
            case "file" if item["directory"] == FOLDER and not item["name"].endswith(".draft"):
                line = {"claim": item["name"], "text": item["text"]}
            case "file" if is_slice(item):
                new = without(published(item["text"]), others)
                line, known = difference(known, new), new
            case "file" if item["directory"] == CDI and (match := SPEC.fullmatch(item["name"])):
                nodes = None if item["text"] is None else nodes_in(item["text"])
                line = {"spec": match[1], "nodes": nodes}
            case "line" if item["text"].startswith("{"):
                line = said_of_device(json.loads(item["text"]))
        if line:
            yield {"at": round(item["time"] - first, 4), **line}


def lateness(records: Iterable[Record], events: Mapping[int, Record]) -> Iterator[float]:
    """How much later than its event each device was looked at that was published at some time."""
    slices = [item["text"] for item in records if is_slice(item)]
    addresses = {it["address"] for text in slices for it in published(text).values()}
    for item in records:
        if item["kind"] == "sysfs" and item["event"] in events and not item["words"]:
            event = events[item["event"]]
            if any(is_part(event["properties"]["DEVPATH"], address) for address in addresses):
                yield item["time"] - event["time"]


def is_slice(item: Record) -> bool:
    """Whether it is a version of the slice."""
    of_slices = item["kind"] == "file" and item["directory"] == SLICES
    return bool(of_slices and item["name"] == f"{SLICE}.yaml")


def gathered(records: Iterable[Record]) -> dict[int, Record]:
    """What each event changed, by its number, if anything. Words that could be read later only are
    put where they belong: into every look at the device since it came."""
    found: dict[int, Record] = {}
    since: dict[str, list[Record]] = {}
    for item in records:
        if item["kind"] != "sysfs":
            continue
        if item["words"]:
            for path, files in item["changed"].items():
                words = {name: files[name] for name in WORDS if name in files}
                for look in since.get(path, []):
                    look.update(words)
            continue
        if item["changed"]:
            found[item["event"]] = {"changed": item["changed"]}
        for path, files in item["changed"].items():
            if files is None:
                since.pop(path, None)
            else:
                since.setdefault(path, []).append(files)
    return found


def kept(start: Record, events: Iterable[Record]) -> list[str]:
    """The directories that a replay needs from its start: those of bystanders, those that an event
    is about, and all that they lie in."""
    sysfs: dict[str, Any] = start["sysfs"]
    touched = {item["properties"]["DEVPATH"] for item in events}
    touched |= {path for path in sysfs if not BYSTANDERS.isdisjoint(path.split("/"))}
    return sorted({it for path in touched for it in (path, *above(path))} & sysfs.keys())


def above(path: str) -> Iterator[str]:
    """The directories that a path lies in."""
    while (path := os.path.dirname(path)) != "/":
        yield path


def table(text: str) -> list[str]:
    """The lines of a table; of mounts, those on a disk."""
    lines = text.splitlines()
    if text.startswith("Filename"):
        return lines
    return [line for line in lines if not line.split()[2].startswith(NO_DISK)]


def message(item: Record) -> Record:
    """An event's bytes: of the kernel's all are texts, udevd's have a header of numbers before."""
    raw = base64.b64decode(item["raw"])
    start = UDEV_OFFSET.unpack_from(raw, 16)[0] if raw.startswith(UDEV_MAGIC) else 0
    texts = raw[start:].decode("utf-8", "surrogateescape").removesuffix("\0").split("\0")
    header = {"header": raw[:start].hex()} if start else {}
    return {item["group"]: texts, **header}


def published(text: str | None) -> Record:
    """The devices of a slice file."""
    body = None if text is None else load_slice(text)
    return {} if body is None else devices(body)


def without(found: Record, names: Collection[str]) -> Record:
    """The devices that have none of these names."""
    return {name: it for name, it in found.items() if name not in names}


def difference(old: Record, new: Record) -> Record:
    """The line of a new version of a slice; none if nothing is different."""
    names = sorted(old.keys() | new.keys())
    differing = {name: new.get(name) for name in names if new.get(name) != old.get(name)}
    return {"published": differing} if differing else {}


def said_of_device(said: Record) -> Record:
    """A line of the agent's log, if it is about a device."""
    if not said.get("event", "").startswith("device."):
        return {}
    details = {"details": said["details"]} if "details" in said else {}
    return {"told": said["event"], "device": said["device"], "nodes": said["nodes"], **details}


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
