"""What was plugged and pulled in a guest, and how long each file took to follow.

A plug-in counts from the last event of the device before the file was there, a removal from the
event that says that the device is gone (of several devices the last one's), both when the kernel
was about to send it. The file counts when the rename had returned that put it in place.

Which version of a file says what is known from whoever read it, a moment after the rename. So its
rename is the last one that had begun when it was read: if two came at once, that is the later one,
and the time is too long and never too short.
"""

import os
from collections.abc import Iterable
from dataclasses import dataclass

from bench.kernel_trace import Notes, Uevent
from bench.plugs import Kind


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A file that followed a device.

    Attributes:
        kind: the device.
        what: what was done, and which file followed.
        is_plug: whether it was plugged in, and not pulled out.
        file: the file's name.
        began, ended: nothing happened before, and nothing after, in seconds of the monotonic
            clock.
        seen: when the first version was read that says so.
    """

    kind: Kind
    what: str
    is_plug: bool
    file: str
    began: float
    ended: float
    seen: float

    def start(self, notes: Notes) -> Uevent:
        """The event from which it counts."""
        events = self._within(notes.uevents)
        if self.is_plug:
            written = self._written(notes)
            found = [item for item in self._of_kind(events) if item.time <= written]
        else:
            found = [item for item in events if self.kind.goes(item)]
        assert found, f"{self.kind.name}: the kernel sent no event"
        return found[-1]

    def latency(self, notes: Notes) -> float:
        """Seconds from there to the file."""
        return self._written(notes) - self.start(notes).time

    def late(self, notes: Notes) -> int:
        """How many events of a device that was plugged in came after the file."""
        written = self._written(notes)
        return sum(item.time > written for item in self._of_kind(notes.uevents))

    def own(self, notes: Notes, told: Iterable[Uevent], quiet: float) -> float:
        """Seconds to a plug-in's file beyond the settle time, from when udevd had passed on the
        last event that the device can have settled after. If that was none, the agent went by what
        the kernel said of a node, and it is from the kernel's last event."""
        settled = self._written(notes) - quiet
        sent = [item.time for item in self._of_kind(notes.uevents) if item.time <= settled]
        passed = [item.time for item in self._of_kind(told) if item.time <= settled]
        return settled - max(passed or sent)

    def _of_kind(self, events: Iterable[Uevent]) -> list[Uevent]:
        return [item for item in self._within(events) if self.kind.owns(item)]

    def _written(self, notes: Notes) -> float:
        return [
            item.ended
            for item in notes.renames
            if os.path.basename(item.to) == self.file and self.began < item.began <= self.seen
        ][-1]

    def _within(self, events: Iterable[Uevent]) -> list[Uevent]:
        return [item for item in events if self.began < item.time < self.ended]
