"""Whether a spec named a node while that was another device's: a pure comparison of two histories.

The kernel gives the lowest free number to whatever comes next, so nodes go from one device to
another all the time. Whose each was when is the kernel's own word; when each version of a spec was
in force is known by its file. Histories are judged at quiet points and then forgotten, so a long
soak costs no more for each round than a short one.
"""

import re
from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

LATE_SECONDS = 1.0
"""A spec may be wrong for so long after the kernel told that a node is another device's now. It is
0.5 s in the test of replugs; here floods of events, other actions and starting programs share two
emulated processors with the agent."""

EARLY_SECONDS = 0.1
"""A node counts as free so long before the kernel's word of it was heard: the one who hears and
the one who sees the file are two programs."""

Numbers = tuple[int, int]

_ADDRESS = re.compile(r"usb-(\d+-\d+)-\d+-\d+$")


@dataclass(slots=True, kw_only=True)
class Held:
    """A node that was a device's.

    Attributes:
        owner: address of the USB device, or the kernel's path of another one.
        since, until: on the guest's monotonic clock.
    """

    owner: str
    since: float
    until: float = float("inf")


@dataclass(slots=True, kw_only=True)
class Version:
    """A version of a claim's spec; `nodes` are paths, with the numbers that are given."""

    owner: str
    nodes: tuple[tuple[str, Numbers | None], ...]
    since: float
    until: float = float("inf")


@dataclass(slots=True)
class Ownership:
    """Both histories since the last judgement.

    Attributes:
        down: when no agent was at work, from and until.
        worst: the longest that a spec was wrong, in seconds after the kernel's word.
    """

    down: list[tuple[float, float]] = field(default_factory=list)
    worst: float = 0.0
    _held: defaultdict[str, list[Held]] = field(default_factory=lambda: defaultdict(list))
    _versions: defaultdict[str, list[Version]] = field(default_factory=lambda: defaultdict(list))
    _own: defaultdict[str, set[tuple[str, Numbers]]] = field(
        default_factory=lambda: defaultdict(set)
    )

    def came(self, path: str, numbers: Numbers, owner: str, at: float) -> None:
        """The kernel told of a node that is a device's now."""
        self.went(path, at)
        self._held[path].append(Held(owner=owner, since=at))
        self._own[owner].add((path, numbers))

    def went(self, path: str, at: float) -> None:
        """The kernel told that a node is gone."""
        held = self._held.get(path)
        if held and held[-1].until == float("inf"):
            held[-1].until = at

    def wrote(self, uid: str, device: str, nodes: list[dict[str, Any]], at: float) -> None:
        """A spec was written, with these nodes of a published device."""
        self.removed(uid, at)
        found = tuple((str(node["path"]), _numbers(node)) for node in nodes)
        self._versions[uid].append(Version(owner=address(device), nodes=found, since=at))

    def removed(self, uid: str, at: float) -> None:
        """A spec was removed."""
        versions = self._versions.get(uid)
        if versions and versions[-1].until == float("inf"):
            versions[-1].until = at

    def judge(self, now: float) -> list[str]:
        """What was wrong since the last time, as sentences; then forgets what is over."""
        found = [
            sentence
            for versions in self._versions.values()
            for version in versions
            for sentence in self._about(version, now)
        ]
        for held in self._held.values():
            held[:] = [item for item in held if item.until == float("inf")]
        for versions in self._versions.values():
            versions[:] = [item for item in versions if item.until == float("inf")]
        self.down.clear()
        return found

    def _about(self, version: Version, now: float) -> list[str]:
        found = []
        for path, numbers in version.nodes:
            if numbers is not None and (path, numbers) not in self._own[version.owner]:
                found.append(f"{path} {numbers} was never {version.owner}'s, and is in its spec")
            for held in self._held.get(path, ()):
                if held.owner == version.owner:
                    continue
                end = min(now, version.until, held.until - EARLY_SECONDS)
                late = end - max(version.since, self._noticed(held.since))
                self.worst = max(self.worst, late)
                if late > LATE_SECONDS:
                    found.append(
                        f"{path} is {held.owner}'s since {held.since:.3f}, and in the spec of "
                        f"{version.owner} of {version.since:.3f} for {late:.3f} s"
                    )
        return found

    def _noticed(self, moment: float) -> float:
        """The first moment at which an agent was at work that could notice something."""
        for start, end in self.down:
            if start - LATE_SECONDS <= moment < end:
                return end
        return moment


def address(device: str) -> str:
    """The address of the USB device, on a root hub's port, that a published device is part of:
    `1-2` for `usb-1-2-1-0`."""
    match = _ADDRESS.match(device)
    assert match, device
    return match[1]


def _numbers(node: dict[str, Any]) -> Numbers | None:
    if "major" not in node:
        return None
    return node["major"], node["minor"]
