"""Run inside a private network namespace: sends uevents and tells what libudev and a plain socket
received.

Reads uevents as JSON from standard input (`[[action, devpath, [[name, value], …]], …]`) and writes
the properties that a pyudev monitor of the kernel's group received, one object for each, to
standard output.
"""

import json
import sys
from collections.abc import Iterable
from typing import Any

import pyudev

from liken_events.simulate.namespace import inside, is_inside
from liken_events.simulate.uevents import Uevent, UeventSender

TIMEOUT = 5.0
"""Seconds to wait for an event that was sent already."""


def to_json(uevents: Iterable[Uevent]) -> str:
    """What this program reads."""
    return json.dumps([[item.action, item.devpath, item.properties] for item in uevents])


def command() -> list[str]:
    """The command line that runs this program in a namespace of its own."""
    return inside([sys.executable, "-m", __spec__.name])


def main() -> None:
    if not is_inside():
        raise SystemExit("not in a private network namespace")
    uevents = [
        Uevent(action=action, devpath=devpath, properties=tuple(map(tuple, properties)))
        for action, devpath, properties in json.load(sys.stdin)
    ]
    monitor = pyudev.Monitor.from_netlink(pyudev.Context(), "kernel")
    monitor.start()
    received: list[dict[str, Any]] = []
    with UeventSender() as sender:
        for uevent in uevents:
            sender.send([uevent])
            device = monitor.poll(TIMEOUT)
            if device is None:
                raise SystemExit(f"nothing arrived after {len(received)} events")
            received.append(dict(device.properties))
    json.dump(received, sys.stdout)


if __name__ == "__main__":
    main()
