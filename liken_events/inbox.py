"""Where triggers wait: they merge, and marking never blocks.

The reader of a kernel socket must never be held up, or the kernel throws events away. So the inbox
has no limit that could make it wait, and yet it stays small: a second event about the same path
and action only moves the time.

This file holds the pending triggers. Waiting for quiet is the business of `core.timing`, looking
that of `reconcile`.
"""

from dataclasses import dataclass

import trio

from liken_events.core.events import DeviceChanged, Resync, Trigger

MOST_PATHS = 4096
"""Different device paths that are kept. More than the devices of a large machine; beyond it,
reading everything once is cheaper than reading them one by one, and memory stays flat in a
storm."""


@dataclass(frozen=True, slots=True)
class Marked:
    """A trigger, and when it came in seconds of the monotonic clock (of its last repetition)."""

    trigger: Trigger
    at: float


class Inbox:
    """The pending triggers of all sources. All methods run on the trio thread."""

    def __init__(self) -> None:
        self._pending: dict[Trigger, float] = {}
        self._something = trio.Event()

    def mark(self, trigger: Trigger) -> None:
        """Notes that something may be stale. Equal triggers merge; never blocks."""
        self._pending.pop(trigger, None)  # the order is that of the last arrival
        if len(self._pending) >= MOST_PATHS and not isinstance(trigger, Resync):
            self._pending = {
                kept: at
                for kept, at in self._pending.items()
                if not isinstance(kept, DeviceChanged)
            }
            trigger = Resync(source="inbox", reason=f"events for over {MOST_PATHS} paths at once")
        self._pending[trigger] = trio.current_time()
        self._something.set()

    def wake(self) -> None:
        """Ends a wait with nothing pending: something else is to be done."""
        self._something.set()

    async def wait(self) -> None:
        """Waits until something is pending, or `wake` was called."""
        await self._something.wait()

    def take(self) -> list[Marked]:
        """All that is pending, oldest first, and an empty inbox."""
        taken = [Marked(trigger, at) for trigger, at in self._pending.items()]
        self._pending = {}
        self._something = trio.Event()
        return taken
