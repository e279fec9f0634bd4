"""What must hold when all is quiet: what the agent says, against what is there.

What is there is read from the kernel's own files, without the agent, except for the inventory:
that is a fresh look with the agent's eyes, which has none of a running agent's history.
"""

import json
from dataclasses import dataclass
from typing import Any

from tests.vm.desk import CDI, Devices
from tests.vm.machine import Machine
from tests.vm.soak.actions import Hands
from tests.vm.soak.invariants import Broken, Watcher
from tests.vm.soak.programs import RECORDS, RESOURCE, Programs

QUIET_SECONDS = 120.0
"""How long it may take until all is as it has to be after the last action. Ten seconds is the
longest that a device settles, 30 the longest pause of anything that is tried again; an emulated
processor that udevd and a starting agent share takes three times as long."""

SILENCE_SECONDS = 2.0
"""No news for so long is quiet: eight times as long as a device has to be to be looked at."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """What the agent takes at a quiet point.

    Attributes:
        agent: its pid.
        is_bare: whether nothing is plugged in and nothing claimed.
        rss: anonymous resident memory in kB.
        descriptors: what each open one is.
    """

    agent: int
    is_bare: bool
    rss: int
    descriptors: tuple[str, ...]


class QuietPoint:
    """The checks.

    Args:
        machine: the guest.
        programs: what runs in it.
        watcher: what they said.
        hands: what was plugged in and claimed.

    Attributes:
        fresh: what a fresh look gave at the last one: name to attributes.
        points: how many were reached.
    """

    def __init__(
        self, machine: Machine, programs: Programs, watcher: Watcher, hands: Hands
    ) -> None:
        self._control = machine.control
        self._programs = programs
        self._watcher = watcher
        self._hands = hands
        self.fresh: Devices = {}
        self.points = 0

    def reach(self, *, is_bare: bool) -> Sample:
        """Waits until all is quiet and as it has to be.

        Raises:
            Broken: it does not come to be so.
        """
        self._programs.until_floods_ended()
        self._programs.until_published()
        self._control.run("udevadm", "settle", "--timeout=240", seconds=250)
        deadline = self._now() + QUIET_SECONDS
        wrong = ["it is never quiet"]
        sample: Sample | None = None
        while sample is None or wrong:
            is_late = self._now() > deadline
            if self._programs.is_quiet(SILENCE_SECONDS):
                wrong, sample = self._look(is_bare=is_bare)
            if wrong and is_late:
                raise Broken("\n".join(wrong))
        self._watcher.judge_generation()
        if late := self._watcher.ownership.judge(self._now()):
            raise Broken("\n".join(late))
        self.points += 1
        return sample

    def _now(self) -> float:
        """The guest's monotonic clock."""
        moment: float = self._control.do("read", path="/proc/uptime")["time"]
        return moment

    def _look(self, *, is_bare: bool) -> tuple[list[str], Sample]:
        """All that is not as it has to be."""
        seen = self._programs.look(
            pid=self._programs.agent,
            addresses=sorted(self._hands.addresses.values()),
            directories=[CDI, RECORDS],
            paths=sorted({path for nodes in self._specs().values() for path, *_ in nodes}),
        )
        self.fresh = {item["name"]: item["attributes"] for item in seen["inventory"]}
        wrong = [
            *self._wrong_slice(self.fresh),
            *self._wrong_claims(seen),
            *self._wrong_files(seen),
            *self._wrong_kubelet(),
        ]
        process = seen["process"]
        sample = Sample(
            agent=self._programs.agent,
            is_bare=is_bare,
            rss=process["rss"],
            descriptors=tuple(process["descriptors"]),
        )
        return wrong, sample

    def _specs(self) -> dict[str, list[tuple[Any, ...]]]:
        """The nodes of each claim's spec: path, and type, major and minor if they are given."""
        keys = ("path", "type", "major", "minor")
        found = {}
        for name, text in self._watcher.specs.items():
            (device,) = json.loads(text)["devices"]
            found[name.removeprefix("liken.sh-").removesuffix(".json")] = [
                tuple(node[key] for key in keys if key in node)
                for node in device["containerEdits"]["deviceNodes"]
            ]
        return found

    def _wrong_slice(self, fresh: Devices) -> list[str]:
        offered = self._watcher.offered
        return [
            f"{name} is published as {offered.get(name)}, and a fresh look gives {fresh.get(name)}"
            for name in sorted(offered.keys() | fresh.keys())
            if offered.get(name) != fresh.get(name)
        ]

    def _wrong_claims(self, seen: dict[str, Any]) -> list[str]:
        specs, existing = self._specs(), set(seen["existing"])
        addresses = {
            self._hands.published_name(name): it for name, it in self._hands.addresses.items()
        }
        wrong = []
        for uid, claim in self._hands.claims.items():
            nodes = specs.pop(uid, None)
            there = seen["interfaces"][addresses[claim.device]]
            if nodes is None:
                # A claim waits for what is not there or has no driver.
                if claim.device in self._watcher.offered:
                    wrong.append(f"the claim of {claim.device} waits, and that is published")
            elif there is None:
                wrong += [f"{claim.device} is away: {it}" for it in _not_away(nodes, existing)]
            else:
                usbfs = [it for it in there["nodes"] if it[0].startswith("/dev/bus/usb/")]
                wanted = [tuple(it) for it in (there["nodes"] if there["driven"] else usbfs)]
                if nodes != wanted:
                    wrong.append(f"the spec of {claim.device} says {nodes}, there is {wanted}")
        return [*wrong, *(f"a spec of no claim: {uid}" for uid in specs)]

    def _wrong_files(self, seen: dict[str, Any]) -> list[str]:
        """What is in the directories must be what was seen to be written, and nothing else."""
        specs = sorted(self._watcher.specs)
        uids = [name.removeprefix("liken.sh-") for name in specs]
        wanted = {CDI: specs, RECORDS: uids}
        return [
            f"in {path} there is {found}, not {wanted[path]}"
            for path, found in seen["directories"].items()
            if found != wanted[path]
        ]

    def _wrong_kubelet(self) -> list[str]:
        said = self._programs.ask_kubelet()
        plugin, kills = "liken.sh-reg.sock", self._programs.kills
        wrong = []
        if said["plugins"] != [plugin]:
            wrong.append(f"the kubelet has the plugins {said['plugins']}")
        if said["resources"] != {RESOURCE: ["Healthy"]}:
            wrong.append(f"the kubelet has the resources {said['resources']}")
        if said["refusals"]:
            wrong.append(f"the kubelet refused {said['refusals']}")
        for key, name in (("plugin_registrations", plugin), ("resource_registrations", RESOURCE)):
            times = said[key]
            assert isinstance(times, list)
            # Each agent registers once; one that was killed may not have come to it.
            if set(times) != {name} or len(times) > 1 + kills:
                wrong.append(f"{key} in this life of the kubelet, with {kills} kills: {times}")
        return wrong


def _not_away(nodes: list[tuple[Any, ...]], existing: set[str]) -> list[str]:
    """What is wrong about the nodes of a device that is away: none may be one that is there."""
    return [
        f"{path} {numbers} is in its spec{', and is there' if path in existing else ''}"
        for path, *numbers in nodes
        if numbers or path in existing
    ]
