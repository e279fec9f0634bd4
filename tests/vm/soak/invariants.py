"""What must hold at every moment: each record of the guest is looked at once, as it comes.

Whatever a record breaks is said at once. What needs quiet is for `quiet`; whose a node was when is
for `ownership`.
"""

import json
from collections import Counter, deque
from typing import Any

from liken_events.cluster.slice_file import load_slice
from tests.fakes.agents import SLICE, devices
from tests.vm.control import Control
from tests.vm.desk import CDI, SLICES, Devices
from tests.vm.soak.ownership import Ownership

EXPECTED = {
    "machine.resync": "a flood overran the buffer",
    "kubelet.socket_lost": "a kubelet deleted the plugins' directories",
    "kubelet.registration_failed": "a kubelet ended while it was spoken to",
    "host_device.registration_failed": "the same",
}
"""Warnings that actions lead to, and why. Any other line above info is a fault."""

KEPT = 400
"""Records that are kept for the report of a failure."""


class Broken(AssertionError):
    """An invariant does not hold; the message says which."""


class Watcher:
    """Looks at all that the guest tells.

    Args:
        control: the guest.

    Attributes:
        offered: the devices of the newest slice.
        specs: the texts of the specs that are there, by the name of the file.
        shapes: the attributes that each device has when it is whole, once they are known.
        ownership: whose each node was, and which spec named it.
        published: for each agent, when it had published first.
        ended: how each program ended.
        said: what programs other than agents said last, by pid.
        warnings: how often each expected one came.
        news: how much of all that was about devices, specs and the log.
        last: the newest records.
        counts: versions of slices and specs.
    """

    def __init__(self, control: Control) -> None:
        self.control = control
        self.offered: Devices = {}
        self.specs: dict[str, str] = {}
        self.shapes: Devices = {}
        self.ownership = Ownership()
        self.published: dict[int, float] = {}
        self.ended: dict[int, int] = {}
        self.said: dict[int, dict[str, Any]] = {}
        self.warnings: Counter[str] = Counter()
        self.counts: Counter[str] = Counter()
        self.news = 0
        self.last: deque[dict[str, Any]] = deque(maxlen=KEPT)
        self._agents: set[int] = set()
        self._killed: set[int] = set()
        self._nodes = 0
        self._versions: list[Devices] = []
        self._generation = 0
        self._written = 0
        self._newest: dict[str, Any] = {}

    def is_agent(self, pid: int) -> None:
        """What this program says from now on is the log of an agent."""
        self._agents.add(pid)

    def is_killed(self, pid: int) -> None:
        """This program's end is no fault from now on."""
        self._killed.add(pid)

    def tells_nodes(self, pid: int) -> None:
        """What this program says is whose the nodes are."""
        self._nodes = pid

    def learn(self, shapes: Devices) -> None:
        """What whole devices are. All versions so far are compared with that, too."""
        self.shapes = shapes
        for version in self._versions:
            self._compare(version)
        self._versions.clear()

    def take(self) -> None:
        """Looks at what came, and has the connection forget it.

        Raises:
            Broken: an invariant does not hold.
        """
        with self.control.changed:
            came, self.control.records[:] = list(self.control.records), []
        for record in came:
            self.last.append(record)
            match record["kind"]:
                case "file":
                    self._take_file(record)
                case "line":
                    self._take_line(record)
                case "ended":
                    self.ended[record["pid"]] = record["status"]
                    if record["pid"] not in self._killed:
                        raise Broken(f"a program ended: {record}")

    def judge_generation(self) -> None:
        """At a quiet point: every version was seen, and each is the one after the last.

        While versions follow fast, a file may be read only when the next one is there already: so
        the newest generation may be ahead of the number of versions, but not when all is quiet.
        """
        if self._newest["generation"] != self._generation + self._written:
            raise Broken(
                f"{self._written} versions after generation {self._generation} it is "
                f"{self._newest['generation']}"
            )
        self._generation, self._written = self._newest["generation"], 0

    def _take_file(self, record: dict[str, Any]) -> None:
        name, text = record["name"], record["text"]
        if record["directory"] == SLICES and name == f"{SLICE}.yaml":
            if text is None:
                raise Broken("the slice was deleted, and there are always devices")
            self._take_slice(text)
        elif record["directory"] == CDI and name.startswith("liken.sh-"):
            self._take_spec(name, text, record["time"])
        elif not name.startswith("."):  # drafts that go again are nobody's
            raise Broken(f"a file that nobody asked for: {record}")

    def _take_slice(self, text: str) -> None:
        body = load_slice(text)
        if body is None:
            raise Broken(f"no slice: {text}")
        self.news += 1
        self.counts["slices"] += 1
        generation = _generation(body)
        self.offered = devices(body)
        if not self._newest:
            self._generation, self._written = generation, -1
        self._written += 1
        known = self._newest.get("generation", 0)
        if generation < max(known, self._generation + self._written) or (
            generation == known and text != self._newest["text"]
        ):
            raise Broken(f"generation {generation} after {known}: {text}")
        self._newest = {"generation": generation, "text": text}
        if self.shapes:
            self._compare(self.offered)
        else:
            self._versions.append(self.offered)

    def _compare(self, version: Devices) -> None:
        for name, attributes in version.items():
            if attributes != self.shapes.get(name):
                raise Broken(f"{name} was published as {attributes}, not {self.shapes.get(name)}")

    def _take_spec(self, name: str, text: str | None, at: float) -> None:
        self.news += 1
        uid = name.removeprefix("liken.sh-").removesuffix(".json")
        if text is None:
            self.specs.pop(name, None)
            self.ownership.removed(uid, at)
            return
        self.counts["specs"] += 1
        self.specs[name] = text
        (device,) = json.loads(text)["devices"]
        held = device["name"].removeprefix(f"{uid}-")
        self.ownership.wrote(uid, held, device["containerEdits"]["deviceNodes"], at)

    def _take_line(self, record: dict[str, Any]) -> None:
        pid, text = record["pid"], record["text"]
        try:
            line = json.loads(text)
        except ValueError:
            if pid in self._killed:
                return  # it was killed in the middle of it
            raise Broken(f"a program said what is no JSON: {text}") from None
        if pid in self._agents:
            self._take_log(pid, line, record["time"])
        elif pid == self._nodes:
            self._take_node(line)
        else:
            self.said[pid] = line

    def _take_log(self, pid: int, line: dict[str, Any], at: float) -> None:
        self.news += 1
        event = line["event"]
        if event == "offer.published":
            self.published[pid] = at
        if event == "part.failed" or "exception" in line:
            raise Broken(f"a part failed: {line}")
        if line["level"] not in {"debug", "info"}:
            if event not in EXPECTED or line["level"] != "warning":
                raise Broken(f"the log says {line}")
            self.warnings[event] += 1

    def _take_node(self, line: dict[str, Any]) -> None:
        if "path" not in line:
            self.said[self._nodes] = line
            return
        self.news += 1
        path, at = line["path"], line["time"]
        if line["came"]:
            major, minor = line["numbers"]
            self.ownership.came(path, (major, minor), line["owner"], at)
        else:
            self.ownership.went(path, at)


def _generation(body: dict[str, Any]) -> int:
    found: int = body["spec"]["pool"]["generation"]
    return found
