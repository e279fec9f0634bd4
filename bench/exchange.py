"""Plugs devices in and pulls them out, and waits until an agent's files say so.

With a claim for a device, its CDI spec is waited for too. A spec is back when it names as many
nodes as at first, each with its numbers, and waits when it names none with numbers.

How long it took is worked out in `changes`, when all is over.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from bench.changes import Change
from bench.guest import SECONDS, SLICE_FILE, Guest
from bench.plugs import REST_SECONDS, Kind
from bench.slice_file import has, lacks
from tests.vm.claims import Claims
from tests.vm.desk import Desk

PLUG, PULL = "plug to slice", "unplug to slice"
REPLUG, AWAY = "replug to CDI spec", "unplug to CDI spec"


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """A claim for a device.

    Attributes:
        uid: the claim's.
        count: how many nodes it gives.
    """

    uid: str
    count: int

    @property
    def file(self) -> str:
        """Its spec."""
        return f"liken.sh-{self.uid}.json"

    def is_back(self, text: str | None) -> bool:
        """Whether a spec has all nodes."""
        return text is not None and [True] * self.count == _numbered(text)

    def is_away(self, text: str | None) -> bool:
        """Whether a spec has none."""
        return text is not None and not any(_numbered(text))


def _numbered(text: str) -> list[bool]:
    """Which nodes of a spec's one device have numbers."""
    (device,) = json.loads(text)["devices"]
    nodes: list[dict[str, Any]] = device["containerEdits"]["deviceNodes"]
    return ["major" in node for node in nodes]


def hold(desk: Desk, claims: Claims, kind: Kind) -> Held:
    """Claims the first device of a kind, which is there, and waits until its spec says what the
    kernel's own files say."""
    device = kind.published[0]
    uid = claims.claim(device)
    wanted = [(path, *numbers) for path, _, *numbers in claims.now(kind.keys[0].address)]

    def is_right() -> bool:
        return [(path, *rest[1:]) for path, *rest in claims.versions(uid, device)[-1]] == wanted

    desk.until(is_right, f"the spec of {device} to be right", SECONDS)
    return Held(uid=uid, count=len(wanted))


def exchange(
    guest: Guest, desk: Desk, kind: Kind, held: Held | None, *, is_plug: bool
) -> list[Change]:
    """Plugs a device in, or pulls it out, and waits until all is quiet again.

    Args:
        guest, desk: where, and the agent there.
        kind: the device.
        held: a claim for it.
        is_plug: in, and not out.

    Returns:
        A change of the slice, and one of the spec if it is claimed.
    """
    began, since = guest.now(), len(guest.control.records)
    (kind.plug if is_plug else kind.pull)()
    wanted = {(PLUG if is_plug else PULL, SLICE_FILE): _slice_with(kind, is_plug)}
    if held is not None:
        condition = held.is_back if is_plug else held.is_away
        wanted[REPLUG if is_plug else AWAY, held.file] = condition
    seen = {
        of: guest.until_seen(desk, of[1], condition, since) for of, condition in wanted.items()
    }
    guest.rest(kind.rest if is_plug else REST_SECONDS)
    ended = guest.now()
    return [
        Change(
            kind=kind,
            what=what,
            is_plug=is_plug,
            file=file,
            began=began,
            ended=ended,
            seen=moment,
        )
        for (what, file), moment in seen.items()
    ]


def _slice_with(kind: Kind, is_plug: bool) -> Callable[[str | None], bool]:
    """Whether a slice has all devices of a kind, or none."""
    tests = [has(name) if is_plug else lacks(name) for name in kind.published]
    return lambda text: text is not None and all(test(text) for test in tests)
