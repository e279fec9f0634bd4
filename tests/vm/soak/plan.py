"""What a soak does, in order: a pure function of its seed and its length.

Nothing here knows how long an action takes, or whether it could be done: so the same seed gives
the same actions however fast the machine is; a slower one gets less far. A round is a burst of
actions that do not wait for each other; after it there is a quiet point. Every second round ends
with nothing plugged in and nothing claimed, so that memory can be compared.

Carrying actions out is for `actions`.
"""

import random
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

Kind = Literal[
    "plug",
    "pull",
    "replug",
    "unbind",
    "bind",
    "mount",
    "unmount",
    "claim",
    "release",
    "flood",
    "clock",
    "node away",
    "node back",
    "kubelet restart",
    "kubelet wipe",
    "kubelet kill",
    "agent kill",
]

DEVICES = ("serial", "other serial", "keyboard", "disk", "audio", "modem", "keys")
"""All devices; each has a port of its own."""

UNBOUND = ("serial", "other serial", "keyboard", "disk", "modem")
"""Those whose driver is taken from them: of a sound card it is one of several interfaces'."""

CLAIMED = ("serial", "other serial", "keyboard", "audio", "modem", "keys")
"""Those that are claimed: a disk that is mounted may not be."""

LONGEST_ROUND = 18.0
"""Seconds of pauses in a round: with the time that actions take there is a quiet point about every
20 s of them."""

LONGEST_PAUSE = 3.0
LEAST_FLOOD, MOST_FLOOD = 1000, 1500
"""Uevents at once. About 500 fill the agent's buffer. udevd works on each: it needs 50 s for
1500 on emulated processors that others use, too."""

SECONDS_A_KILL_ROUND = 180.0
"""A round with its quiet point takes a minute on an emulated processor: with one round of kills
for each three minutes the kills are over in the first third."""

WEIGHTS: dict[Kind, int] = {
    "plug": 10,
    "pull": 7,
    "replug": 6,
    "unbind": 4,
    "bind": 4,
    "mount": 3,
    "unmount": 3,
    "claim": 9,
    "release": 2,
    "flood": 3,
    "clock": 2,
    "node away": 2,
    "node back": 2,
    "kubelet restart": 2,
    "kubelet wipe": 1,
    "kubelet kill": 1,
    "agent kill": 3,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Action:
    """One thing that is done.

    Attributes:
        kind: what.
        device: to which device, if to one.
        uid: of the claim, if it is about one.
        amount: uevents of a flood, seconds of a clock's jump, seconds that a device is away.
        pause: seconds until the next action begins.
    """

    kind: Kind
    device: str = ""
    uid: str = ""
    amount: float = 0.0
    pause: float = 0.0

    def __str__(self) -> str:
        amount = f"{self.amount:g}" if self.amount else ""
        return " ".join(filter(None, (self.kind, self.device, amount)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """Actions between two quiet points.

    Attributes:
        actions: in order.
        is_bare: whether nothing is plugged in or claimed at the end.
    """

    actions: tuple[Action, ...]
    is_bare: bool


def first_round() -> Round:
    """Everything is plugged in, so that it is seen whole, and each driver is loaded late."""
    return Round(
        actions=tuple(Action(kind="plug", device=name) for name in DEVICES), is_bare=False
    )


def rounds(seed: int, seconds: float) -> Iterator[Round]:
    """All rounds after the first, without end; agents are killed in the first of them alone.

    Args:
        seed: whatever it is, the actions follow from it.
        seconds: how long the soak is to be.
    """
    plan = _Plan(random.Random(seed))
    killing = max(1, int(seconds / SECONDS_A_KILL_ROUND))
    number = 0
    while True:
        number += 1
        yield plan.round(kills=number <= killing, is_bare=number % 2 == 0)


class _Plan:
    """What is plugged in and claimed if each action did what it was to do."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self._plugged = set(DEVICES)
        self._unbound: set[str] = set()
        self._claims: dict[str, str] = {}
        self._mounted = False
        self._node_is_there = True

    def round(self, *, kills: bool, is_bare: bool) -> Round:
        actions = []
        left = LONGEST_ROUND
        while left > 0:
            kind = self._choose(kills=kills)
            action = self._action(kind, min(left, self._chance.uniform(0, LONGEST_PAUSE)))
            actions.append(action)
            left -= action.pause + (action.amount if kind == "replug" else 0.0)
            left -= 0.1  # no round is endless, whatever the pauses are
        if not self._node_is_there:
            actions.append(self._action("node back", 0.0))
        if is_bare:
            actions += self._closing()
        elif self._plugged & self._claims.keys():  # its spec is looked at while it is away
            actions.append(self._action("pull", 0.0, sorted(self._plugged & self._claims.keys())))
        return Round(actions=tuple(actions), is_bare=is_bare)

    def _closing(self) -> Iterator[Action]:
        if self._mounted:
            yield self._action("unmount", 0.0)
        while self._claims:
            yield self._action("release", 0.0)
        while self._plugged:
            yield self._action("pull", 0.0)

    def _choose(self, *, kills: bool) -> Kind:
        possible = [kind for kind in WEIGHTS if self._is_possible(kind, kills=kills)]
        return self._chance.choices(possible, [WEIGHTS[kind] for kind in possible])[0]

    def _is_possible(self, kind: Kind, *, kills: bool) -> bool:
        match kind:
            case "agent kill":
                return kills
            case "mount":
                return "disk" in self._plugged and not self._mounted
            case "unmount":
                return self._mounted
            case "node away":
                return self._node_is_there
            case "node back":
                return not self._node_is_there
        return kind not in _CHOOSING or bool(self._choices(kind))

    def _choices(self, kind: Kind) -> list[str]:
        """The devices that this can be done to, in a fixed order."""
        match kind:
            case "plug":
                found = set(DEVICES) - self._plugged
            case "pull":
                found = self._plugged
            case "replug":  # a claimed one, if there is any
                found = (self._plugged & self._claims.keys()) or self._plugged
            case "unbind":
                found = self._plugged & set(UNBOUND) - self._unbound
            case "bind":
                found = self._plugged & self._unbound
            case "claim":
                found = set(CLAIMED) - self._claims.keys()
            case _:
                found = set(self._claims)
        return sorted(found)

    def _action(self, kind: Kind, pause: float, choices: Sequence[str] = ()) -> Action:
        device, uid, amount = "", "", 0.0
        if kind in _CHOOSING:
            device = self._chance.choice(choices or self._choices(kind))
        match kind:
            case "plug":
                self._plugged.add(device)
            case "pull":
                self._plugged.discard(device)
                self._unbound.discard(device)
            case "replug":
                amount = round(self._chance.uniform(0, LONGEST_PAUSE), 3)
                self._unbound.discard(device)
            case "unbind":
                self._unbound.add(device)
            case "bind":
                self._unbound.discard(device)
            case "mount" | "unmount":
                self._mounted = kind == "mount"
            case "claim":
                uid = str(uuid.UUID(int=self._chance.getrandbits(128), version=4))
                self._claims[device] = uid
            case "release":
                uid = self._claims.pop(device)
            case "flood":
                amount = self._chance.randint(LEAST_FLOOD, MOST_FLOOD)
            case "clock":
                amount = self._chance.choice((-1, 1)) * self._chance.randint(1800, 6 * 3600)
            case "node away" | "node back":
                self._node_is_there = kind == "node back"
        return Action(kind=kind, device=device, uid=uid, amount=amount, pause=round(pause, 3))


_CHOOSING: frozenset[Kind] = frozenset(
    ("plug", "pull", "replug", "unbind", "bind", "claim", "release")
)
"""What is done to one of several devices."""
