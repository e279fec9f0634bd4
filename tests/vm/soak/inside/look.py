"""What is there now, read without the agent: `python -m tests.vm.soak.inside.look FIFO`.

Each line of the FIFO is a question in JSON: `pid` of the agent, `addresses` of USB interfaces,
`directories` to list, `paths` of which it is asked whether they exist. The answer is a line, too;
with it comes what the command `liken-events inventory -o json` prints at that moment.

It stays there between the questions: to start a Python takes an emulated processor half a minute.
"""

import contextlib
import io
import json
import os
import re
import sys
from typing import Any

from liken_events.cli import main as run_command

DEVICES = "/sys/bus/usb/devices"


def interface(address: str) -> dict[str, Any] | None:
    """Whether a USB interface has a driver, and all nodes that are below it and that of usbfs,
    each as path, type, major and minor, in the order of paths; None if it is not there."""
    folder = os.path.realpath(f"{DEVICES}/{address}")
    if not os.path.isdir(folder):
        return None
    found = [node(f"{DEVICES}/{address.partition(':')[0]}", "c")]
    for place, _, files in os.walk(folder):
        if "dev" in files:
            kind = os.path.basename(os.path.realpath(f"{place}/subsystem"))
            found.append(node(place, "b" if kind == "block" else "c"))
    return {"driven": os.path.exists(f"{folder}/driver"), "nodes": sorted(found)}


def node(place: str, kind: str) -> list[Any]:
    """The node of a device of the kernel's."""
    numbers = text(f"{place}/dev").split(":")
    lines = text(f"{place}/uevent").splitlines()
    (name,) = [line.removeprefix("DEVNAME=") for line in lines if line.startswith("DEVNAME=")]
    return [f"/dev/{name}", kind, *map(int, numbers)]


def text(path: str) -> str:
    with open(path, encoding="utf-8") as file:
        return file.read().strip()


def process(pid: int) -> dict[str, Any]:
    """A process's own resident memory in kB, and what its descriptors are: sockets and pipes
    without their numbers. Resident pages of files are not its own: the kernel drops them and reads
    them again as it likes."""
    status = dict(line.split(":", 1) for line in text(f"/proc/{pid}/status").splitlines())
    kinds = []
    for name in os.listdir(f"/proc/{pid}/fd"):
        with contextlib.suppress(FileNotFoundError):  # it was closed just now
            kinds.append(os.readlink(f"/proc/{pid}/fd/{name}"))
    return {
        "rss": int(status["RssAnon"].split()[0]),
        "descriptors": sorted(re.sub(r":\[\d+\]$", "", kind) for kind in kinds),
    }


def inventory() -> list[dict[str, Any]]:
    """A fresh look with the agent's eyes."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        status = run_command(["inventory", "-o", "json"])
    assert status == 0, out.getvalue()
    found: list[dict[str, Any]] = json.loads(out.getvalue())
    return found


def answer(question: dict[str, Any]) -> dict[str, Any]:
    """Looks at all that is asked for."""
    return {
        "inventory": inventory(),
        "process": process(question["pid"]),
        "interfaces": {address: interface(address) for address in question["addresses"]},
        "directories": {
            path: sorted(os.listdir(path)) if os.path.isdir(path) else []
            for path in question["directories"]
        },
        "existing": [path for path in question["paths"] if os.path.exists(path)],
    }


def main(fifo: str) -> None:
    """Answers until it is ended."""
    os.mkfifo(fifo)
    sys.stdout.write("{}\n")
    while True:
        sys.stdout.flush()
        with open(fifo, encoding="utf-8") as questions:  # until who asked closes it
            for line in questions:
                sys.stdout.write(json.dumps(answer(json.loads(line))) + "\n")


main(sys.argv[1])
