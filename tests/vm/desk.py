"""A guest with an agent in it, as one test sees it: what it publishes, says and writes.

All that the guest tells is kept (`control`); a desk is a view of it that begins with the test. It
knows each version of the slice that was ever written, so that a test can say which shapes there
were, in order, and no others. A version that was missed is noticed by the pool's generation.

Devices come from `hardware` and `gadgets`.
"""

import json
import re
from collections.abc import Callable, Iterable
from functools import cache
from typing import Any

from liken_events.cluster.slice_file import load_slice
from tests.fakes.agents import NODE, SLICE, devices
from tests.vm.control import Control, GuestFailed
from tests.vm.machine import Machine

ROOT = "/run/liken"
CLUSTER = f"{ROOT}/cluster"
SLICES = f"{CLUSTER}/resourceslices"
CDI = f"{ROOT}/cdi"

SECONDS = 60.0
"""The longest wait for what takes a second on an idle machine."""

START_SECONDS = 120.0
"""The same for the agent's start, which takes ten."""

Devices = dict[str, dict[str, Any]]
"""Published devices: name to attributes."""

FLAGS = (
    "run",
    f"--node-name={NODE}",
    "--cluster=directory",
    f"--cluster-dir={CLUSTER}",
    f"--cdi-dir={CDI}",
    f"--record-dir={ROOT}/records",
    "--log-format=json",
    "--log-level=debug",
)


class Desk:
    """What happens in a guest from now on.

    Args:
        machine: the guest.
        pid: the agent there.

    Attributes:
        machine, control: the guest, and the program in it.
        pid: the agent.
        start: the number of the first record that counts.
        base: what was published at the start.
        failed: whether the test failed.
    """

    def __init__(self, machine: Machine, pid: int) -> None:
        self.machine = machine
        self.control: Control = machine.control
        self.pid = pid
        self.start = len(self.control.records)
        self.base = self.offered
        self.failed = False
        self._about: set[str] = set()

    def records(self, kind: str) -> list[dict[str, Any]]:
        """The records of a kind since the start."""
        return [item for item in self.control.records[self.start :] if item["kind"] == kind]

    @property
    def uevents(self) -> list[tuple[str, str, str]]:
        """Group, action and path of each uevent."""
        return [
            (item["group"], item["properties"]["ACTION"], item["properties"]["DEVPATH"])
            for item in self.records("uevent")
        ]

    @property
    def log(self) -> list[dict[str, Any]]:
        """The agent's log lines; one that is no JSON fails the test."""
        return [json.loads(i["text"]) for i in self.records("line") if i["pid"] == self.pid]

    def logged(self, event: str, **facts: Any) -> list[dict[str, Any]]:
        """The lines of this event that have these facts."""
        return [
            line for line in self.log if line["event"] == event and facts.items() <= line.items()
        ]

    def log_above_info(self) -> list[dict[str, Any]]:
        """The warnings and errors."""
        return [line for line in self.log if line["level"] not in {"debug", "info"}]

    @property
    def offered(self) -> Devices:
        """The newest version of the slice; none before the first and after a deletion."""
        for item in reversed(self.control.records):
            if _is_slice(item):
                return {} if item["text"] is None else devices(_parsed(item["text"]))
        return {}

    @property
    def versions(self) -> list[Devices]:
        """What was published at the start, and each version since then."""
        texts = [item["text"] for item in self.records("file") if _is_slice(item)]
        bodies = [_parsed(text) for text in texts]
        generations = sorted({body["spec"]["pool"]["generation"] for body in bodies})
        if generations:
            assert len(generations) == generations[-1] - generations[0] + 1, "one was missed"
        return [self.base, *map(devices, bodies)]

    def states(self, *prefixes: str) -> list[Devices]:
        """The states that the devices of these names went through, without repetitions.

        All others must stay as they are: that is checked at the test's end.
        """
        self._about.update(prefixes)
        found: list[Devices] = []
        for version in self.versions:
            state = {name: it for name, it in version.items() if name.startswith(prefixes)}
            if not found or found[-1] != state:
                found.append(state)
        return found

    def assert_bystanders_stayed(self) -> None:
        """Nothing that no test asked for with `states` has changed, in any version."""
        about = tuple(self._about)
        for version in self.versions:
            rest = {name: it for name, it in version.items() if not name.startswith(about)}
            assert rest == {
                name: it for name, it in self.base.items() if not name.startswith(about)
            }

    def nodes(self, device: str) -> list[list[str]]:
        """The nodes of a device at each change of it since the start."""
        return [
            line["nodes"]
            for line in self.log
            if line["event"] in {"device.added", "device.changed"} and line["device"] == device
        ]

    def why(self, device: str) -> list[str]:
        """What was said of each withdrawal of a device since the start."""
        return [line["details"][0] for line in self.logged("device.removed", device=device)]

    def until(self, condition: Callable[[], object], what: str, seconds: float = SECONDS) -> None:
        """Waits until a condition holds that a record makes true."""
        self.control.wait(lambda: condition() or self.ended, seconds, what)
        if not condition():
            raise GuestFailed(f"the agent ended while it was waited for {what}")

    def until_offered(self, *present: str) -> None:
        """Waits until all of these are published, and the log says so."""
        self.until(
            lambda: (
                set(present) <= self.offered.keys()
                and all(self._is_told_of(name) for name in present)
            ),
            f"{present} to be published",
        )

    def until_gone(self, *absent: str) -> None:
        """Waits until none of these is published, and the log says so."""
        self.until(
            lambda: (
                not set(absent) & self.offered.keys()
                and all(self._told(name) in {None, "device.removed"} for name in absent)
            ),
            f"{absent} to be withdrawn",
        )

    def until_as_before(self) -> None:
        """Waits until all is as it was at the start."""
        self.until(lambda: self.offered == self.base, "all to be as it was")
        self.until_gone(*{name for version in self.versions for name in version} - set(self.base))

    def until_logged(self, event: str, **facts: Any) -> None:
        """Waits for a line of the log."""
        self.until(lambda: self.logged(event, **facts), f"{event} {facts}")

    def _is_told_of(self, device: str) -> bool:
        """Whether the log says that a device is there; of those at the agent's start it says
        nothing."""
        told = self._told(device)
        return told in {"device.added", "device.changed"} or (told is None and device in self.base)

    def _told(self, device: str) -> str | None:
        """What the log said last of a device: `device.added` and so on."""
        for item in reversed(self.control.records):
            if (
                item["kind"] == "line"
                and item["pid"] == self.pid
                and f'"{device}"' in item["text"]
            ):
                line = json.loads(item["text"])
                if line.get("device") == device and line["event"].startswith("device."):
                    event: str = line["event"]
                    return event
        return None

    @property
    def ended(self) -> bool:
        """Whether the agent is no more."""
        return any(item["pid"] == self.pid for item in self.records("ended"))

    def delivered(self, address: str) -> list[str]:
        """The nodes that a device has now, `1-2:1.0` or `0000:01:00.0`, in the order of paths:
        found by looking at the kernel's own files with other means than the agent's."""
        bus = "usb" if address.endswith(":1.0") or ":1." in address else "pci"
        script = (
            f"cd -P /sys/bus/{bus}/devices/{address}; find . -name uevent | xargs grep -h NAME="
        )
        found = [
            f"/dev/{line.removeprefix('DEVNAME=')}"
            for line in self.control.shell(script).splitlines()
            if line.startswith("DEVNAME=")
        ]
        return sorted([*found, *([self.usb_node(address.split(":")[0])] if bus == "usb" else [])])

    def numbered(self, address: str) -> dict[str, tuple[int, int]]:
        """The same nodes, each with its major and minor number."""
        found = {}
        for path in self.delivered(address):
            major, minor = self.control.run("stat", "-c", "%t %T", path).split()
            found[path] = int(major, 16), int(minor, 16)
        return found

    def usb_node(self, address: str) -> str:
        """The usbfs node of a USB device (`1-2`) as it is now."""
        folder = f"/sys/bus/usb/devices/{address}"
        bus, number = (int(self.control.read(f"{folder}/{name}")) for name in ("busnum", "devnum"))
        return f"/dev/bus/usb/{bus:03}/{number:03}"

    def fresh(self) -> set[str]:
        """The names that a fresh look at the machine gives."""
        text = self.control.shell(f"{self.machine.python} -m liken_events inventory -o json")
        return {item["name"] for item in json.loads(text)}


def start_agent(machine: Machine) -> int:
    """Starts the agent in the guest, waits until it has published, and returns its number."""
    for directory in (SLICES, CDI):
        machine.control.do("follow", directory=directory)
    argv = [machine.python, "-m", "liken_events", *FLAGS]
    pid: int = machine.control.do("start", argv=argv)["pid"]
    desk = Desk(machine, pid)
    try:
        desk.until(lambda: desk.logged("offer.published"), "the agent's start", START_SECONDS)
        desk.until(lambda: desk.offered, "the first slice")
    except (GuestFailed, ValueError) as error:  # it did not start, or said what is no log
        said = [item["text"] for item in desk.records("line")]
        raise GuestFailed("\n".join([f"{error}; it said:", *said, machine.console()])) from error
    return pid


def kinds(paths: Iterable[str]) -> list[str]:
    """The same paths without their numbers: `/dev/ttyUSB#`."""
    return [re.sub(r"\d+", "#", path) for path in paths]


def _is_slice(record: dict[str, Any]) -> bool:
    of_slices = record["kind"] == "file" and record["directory"] == SLICES
    return bool(of_slices and record["name"] == f"{SLICE}.yaml")


@cache
def _parsed(text: str) -> dict[str, Any]:
    body = load_slice(text)
    assert body is not None, text
    return body
