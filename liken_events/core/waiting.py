"""Which devices an event puts off, and which it ends.

What the kernel tells of a device, of something below it, or of the USB device that it is part of,
means another time for the next look at it. And as long as udevd is behind the kernel with a
device, what can be read of it is half of what it is about to be.

This file sorts events to devices, and joins `timing`, which says when, with `backlog`, which says
not yet. Time comes in as a number of seconds. Looks are made by `reconcile`.
"""

from collections.abc import Callable, Iterable

from liken_events.core.backlog import Backlog
from liken_events.core.events import DeviceChanged
from liken_events.core.model.address import Below, Own, Subject, UsbDevice, subject
from liken_events.core.model.machine import Machine
from liken_events.core.model.snapshot import Key
from liken_events.core.timing import Burst, Settling, Timing


class Waiting:
    """The devices that wait to be looked at.

    Args:
        machine: what is known, which tells whose a path is.
        present: whether a device is on the machine at this moment.
        backlog: the events that udevd has not told of yet.
    """

    def __init__(
        self, timing: Timing, machine: Machine, present: Callable[[Key], bool], backlog: Backlog
    ) -> None:
        self._timing = timing
        self._machine = machine
        self._present = present
        self._backlog = backlog
        self._settling: Settling[Key] = Settling(timing)

    def __contains__(self, key: Key) -> bool:
        return key in self._settling

    def keys(self, now: float) -> set[Key]:
        """The devices that wait, for quiet or for udevd."""
        return {*self._settling.keys(), *self._behind(now)}

    def deadline(self) -> float | None:
        """When the next device is quiet; None if none waits for that."""
        return self._settling.deadline()

    def note(self, trigger: DeviceChanged, found: Subject | None, at: float) -> list[Key]:
        """Takes one event into account.

        Args:
            found: whose the event's path is.
            at: when it came.

        Returns:
            The devices that are gone, which wait no more.
        """
        keys = self._keys(found)
        if trigger.action == "remove" and not isinstance(found, Below):
            return [key for key in keys if self._is_gone(key, trigger, at)]
        for key in keys:
            if isinstance(found, UsbDevice):
                self._settling.note(key, at, trigger.cause)
            else:
                self._let_settle(key, trigger, at, itself=isinstance(found, Own))
        return []

    def note_behind(self, now: float, text: str) -> None:
        """A full look was made: has those looked at anew with which udevd is behind."""
        for key in self._behind(now):
            self._settling.note(key, now, text)

    def take_due(self, now: float, busy: Iterable[Key]) -> dict[Key, Burst]:
        """The devices that are to be looked at now. Those that are due too but must not be looked
        at yet go on waiting.

        Args:
            busy: those of which a look is under way, which began too early.
        """
        due = self._settling.take_due(now)
        early = {*busy, *self._behind(now)} & due.keys() if due else set()
        for key in early:
            self._settling.put_off(key, now, due.pop(key))
        return due

    def _behind(self, now: float) -> set[Key]:
        """The devices of which udevd has not told yet what the kernel has."""
        keys: set[Key] = set()
        for path in self._backlog.paths(now):
            keys.update(self._keys(subject(path, self._machine.paths)))
        return keys

    def _keys(self, found: Subject | None) -> Iterable[Key]:
        match found:
            case Own(key) | Below(key):
                return (key,)
            case UsbDevice(path):
                return self._machine.interfaces(path)
            case None:
                return ()

    def _is_gone(self, key: Key, trigger: DeviceChanged, at: float) -> bool:
        if self._present(key):
            # The event is about a device that was here before the one that is here now.
            self._settling.note_bound(key, at, trigger.cause)
            return False
        self._settling.take(key)
        return True

    def _let_settle(self, key: Key, trigger: DeviceChanged, at: float, *, itself: bool) -> None:
        """Puts the look at a device off, for an event of its own or of what is below it."""
        path, cause = trigger.path, trigger.cause
        if trigger.awaits_driver:
            probing = self._timing.probing_disk
            self._settling.note_added(key, at, cause, path=path, probing=probing)
        elif itself and trigger.action == "add" and not trigger.synthetic:
            timing = self._timing
            probing = timing.probing_pci if key.bus == "pci" else timing.probing_usb
            self._settling.note_added(key, at, cause, path=path, probing=probing)
        elif (itself and trigger.action in {"bind", "unbind"}) or (
            trigger.action in {"bind", "remove"} and self._settling.awaits(key, path)
        ):
            self._settling.note_bound(key, at, cause, path=path)
        else:
            self._settling.note(key, at, cause)
