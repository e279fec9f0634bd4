"""When to look: settling, per device.

Plugging in one USB stick is a burst of about eleven uevents over a tenth of a second, or over half
a second if modules are loaded first. In between the device has other nodes than at the end. A GPU
that is still probing can look like a card with no render node, which would be another device under
the same name. Removing is the opposite: nothing that comes later makes a device that is gone less
gone.

This file decides when each device is looked at, as data: after a quiet time, not before the end of
probing, never later than a ceiling, and at once when it was removed. Time comes in as a number of
seconds; only differences matter.

What a look finds is decided elsewhere: `reconcile` reads the device and judges it.
"""

from collections.abc import Hashable
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)

MOST_STRAIN = 16
"""Doublings of the ceiling that are counted; it reaches any sensible `longest` before."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """The settle times, in seconds.

    Attributes:
        quiet: without an event of the device before it is looked at. The longest gap between two
            events that belong together, seen after the driver was bound: 72 ms (keyboard, modules
            not yet loaded, emulated CPU) and 197 ms (USB sound card, its last `change`). 0.25 s
            covers both.
        ceiling: after the first event, whatever else comes.
        longest: what the ceiling doubles up to, while a device is not quiet even once. A broken
            card reader sends tens of `change` events a second for hours; each look at it may be a
            write to the API server.
        probing_usb, probing_pci: after an `add` with no `bind` yet. The driver's link exists from
            before its probe to after it, and only the `bind` event tells that the probe returned.
            A USB driver's probe is over within tenths of a second; those of large GPU drivers load
            firmware and take some seconds.
        probing_disk: the same for a disk, tape or drive that a device found at its other end: one
            behind a USB bridge has its `sg` node 2 s before its block node when `sd_mod` is loaded
            first (emulated CPU), and a disk that has to spin up takes some seconds.
    """

    quiet: float = 0.25
    ceiling: float = 2.0
    longest: float = 10.0
    probing_usb: float = 2.0
    probing_pci: float = 8.0
    probing_disk: float = 8.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Burst:
    """The events of one device that belong together.

    Attributes:
        first, last: when they came, or a look was put off.
        awaited: paths of what was added and has no `bind` yet: the device, or parts of it.
        probing: how long to wait for those; 0 if there are none.
        text: the event that says most about why: the last `add` or `bind`, else the first of all.
        heard: when the last event came; a look that was put off is none.
    """

    first: float
    last: float
    heard: float
    awaited: frozenset[str] = frozenset()
    probing: float = 0.0
    text: str = ""

    def due(self, timing: Timing, strain: int = 0) -> float:
        """When the device is to be looked at; `strain` counts its bursts that did not end by quiet
        until now."""
        if self.awaited:
            return self.first + self.probing
        ceiling = min(timing.ceiling * 2.0**strain, max(timing.ceiling, timing.longest))
        return min(self.last + timing.quiet, self.first + ceiling)


class Settling(Generic[K]):
    """Which devices wait to be looked at. Keeps state, but no clock."""

    def __init__(self, timing: Timing) -> None:
        self._timing = timing
        self._bursts: dict[K, Burst] = {}
        self._strain: dict[K, int] = {}

    def __len__(self) -> int:
        return len(self._bursts)

    def __contains__(self, key: K) -> bool:
        return key in self._bursts

    def note(self, key: K, now: float, text: str) -> None:
        """An event about something below the device, or about it that tells nothing of its
        driver."""
        old = self._bursts.get(key)
        if old is None:
            self._bursts[key] = _begun(now, text)
        else:
            self._bursts[key] = replace(old, last=max(now, old.last), heard=max(now, old.heard))

    def put_off(self, key: K, now: float, burst: Burst) -> None:
        """The look at a burst that was due cannot be made yet: it is due again after a quiet
        time."""
        begun = Burst(first=now, last=now, heard=burst.heard, text=burst.text)
        later = self._bursts.get(key, begun)
        self._bursts[key] = replace(later, last=max(now, later.last))

    def note_added(self, key: K, now: float, text: str, *, path: str, probing: float) -> None:
        """The device appeared, or a part of it that a driver is about to take: until the `bind` of
        this path, and for `probing` seconds at most, it may look like another device.

        Only an earlier `add` counts. What else came before is about the device that was there
        then, and must not end this one's probing.
        """
        old = self._bursts.get(key, _begun(now))
        self._bursts[key] = Burst(
            first=old.first if old.awaited else now,
            last=now,
            heard=now,
            awaited=old.awaited | {path},
            probing=max(old.probing, probing),
            text=text,
        )

    def awaits(self, key: K, path: str) -> bool:
        """Whether the `bind` of this path is waited for."""
        return key in self._bursts and path in self._bursts[key].awaited

    def note_bound(self, key: K, now: float, text: str, *, path: str | None = None) -> None:
        """A probe is over, or a driver left. What follows the last of them are the last children:
        the ceiling counts from here.

        Args:
            path: of what is no longer waited for; None for all.
        """
        old = self._bursts.get(key, _begun(now))
        left = old.awaited - {path} if path is not None else frozenset()
        if left:
            self._bursts[key] = replace(old, last=now, heard=now, awaited=left, text=text)
        else:
            first = now if old.awaited else old.first
            self._bursts[key] = Burst(first=first, last=now, heard=now, text=text)

    def keys(self) -> AbstractSet[K]:
        """The devices that wait."""
        return self._bursts.keys()

    def take(self, key: K) -> Burst | None:
        """Ends the wait of one device, because it was looked at or is gone."""
        self._strain.pop(key, None)
        return self._bursts.pop(key, None)

    def take_due(self, now: float) -> dict[K, Burst]:
        """Ends the wait of all devices whose time has come."""
        due = {key: burst for key, burst in self._bursts.items() if self._due(key, burst) <= now}
        for key, burst in due.items():
            del self._bursts[key]
            if burst.awaited or burst.last + self._timing.quiet <= now:
                self._strain.pop(key, None)
            else:
                self._strain[key] = min(self._strain.get(key, 0) + 1, MOST_STRAIN)
        return due

    def deadline(self) -> float | None:
        """When the next device is due; None if none waits."""
        return min((self._due(key, burst) for key, burst in self._bursts.items()), default=None)

    def _due(self, key: K, burst: Burst) -> float:
        return burst.due(self._timing, self._strain.get(key, 0))


def _begun(now: float, text: str = "") -> Burst:
    return Burst(first=now, last=now, heard=now, text=text)
