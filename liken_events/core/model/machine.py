"""A machine that is read piece by piece.

An event about one device must not cost a look at a thousand. So what was read is kept, one record
for each device, and an event replaces the record that it is about.

This file holds the records and their judgements and answers with the whole inventory. It always
equals the inventory of a fresh snapshot with the same records: a test holds it to that. Reading is
left to `sources.sysfs`, the question when to `core.timing`.
"""

from collections.abc import Container, Mapping

from liken_events.core.model.device import Cause, Inventory, Judgement
from liken_events.core.model.offer import Offer
from liken_events.core.model.publish import Policy, judge
from liken_events.core.model.snapshot import (
    Device,
    Key,
    Snapshot,
    Storage,
    sort_devices,
)
from liken_events.core.model.storage import Dependence, dependence, has_disks

MOST_CAUSES = 1024
"""Devices whose last event is remembered for the log, the ones that left included."""


class Machine:
    """The records of one machine. Not frozen, but pure: every method only changes or reads
    memory."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self._storage = Storage()
        self._depends = Dependence()
        self._offer = Offer(policy)
        self._inventory: Inventory | None = None  # until something changes
        self._paths: dict[str, Key] = {}
        self._interfaces: dict[str, set[Key]] = {}
        self._causes: dict[Key, Cause] = {}  # the newest last; a plain one, as it is copied often

    @property
    def paths(self) -> Mapping[str, Key]:
        """Kernel path of each known device, to its key."""
        return self._paths

    @property
    def storage(self) -> Storage:
        """What was last read of mounts, swap areas and block devices."""
        return self._storage

    def interfaces(self, path: str) -> frozenset[Key]:
        """The known devices right below a USB device's path."""
        return frozenset(self._interfaces.get(path, ()))

    def replace(self, snapshot: Snapshot, unsettled: Container[Key] = ()) -> set[Key]:
        """Takes a full look at the machine, and returns the devices that are judged otherwise than
        before.

        Devices that are `unsettled` are left as they were, unless they are gone: their own look is
            still to come.
        """
        self._set_storage(snapshot.storage)
        found = {device.key: device for device in snapshot.devices}
        changed = self._offer.judged.keys() - found.keys()
        for key in changed:
            self._forget(key)
        for key, device in found.items():
            old = self._offer.judged.get(key)
            if old is None and key in unsettled:
                continue
            kept = old.device if old is not None and key in unsettled else device
            new = self._judge(kept)
            if new != old:
                self._take(new)
                changed.add(key)
        return changed

    def put(self, key: Key, device: Device | None) -> None:
        """Takes a look at one device; None if it is gone."""
        old = self._offer.judged.get(key)
        if device is None:
            self._forget(key)
        elif old is None or old.device != device:
            self._take(self._judge(device))

    def put_storage(self, storage: Storage) -> set[Key]:
        """Takes a look at mounts, swap areas and block devices; returns the devices that are
        judged otherwise."""
        if storage == self._storage:
            return set()
        before = self._depends
        self._set_storage(storage)
        if self._depends == before:
            return set()
        changed = set()
        for key, old in list(self._offer.judged.items()):
            if has_disks(old.device):
                new = self._judge(old.device)
                if new != old:
                    self._take(new)
                    changed.add(key)
        return changed

    def note(self, key: Key, cause: Cause) -> None:
        """Remembers why a device was looked at."""
        self._inventory = None
        self._causes.pop(key, None)
        self._causes[key] = cause
        while len(self._causes) > MOST_CAUSES:
            del self._causes[next(iter(self._causes))]

    def inventory(self) -> Inventory:
        """All that the machine offers and holds back now."""
        if self._inventory is None:
            self._inventory = self._offer.inventory(self._causes)
        return self._inventory

    def snapshot(self) -> Snapshot:
        """The records as one value."""
        return Snapshot(
            devices=sort_devices(judgement.device for judgement in self._offer.judged.values()),
            storage=self._storage,
        )

    def _set_storage(self, storage: Storage) -> None:
        self._storage = storage
        self._depends = dependence(storage)

    def _judge(self, device: Device) -> Judgement:
        return judge(device, self._depends, self._policy)

    def _take(self, judgement: Judgement) -> None:
        self._inventory = None
        device = judgement.device
        self._unlist(device.key)
        self._offer.put(judgement)
        self._paths[device.path] = device.key
        self._interfaces.setdefault(device.path.rpartition("/")[0], set()).add(device.key)

    def _forget(self, key: Key) -> None:
        self._inventory = None
        self._unlist(key)
        self._offer.remove(key)

    def _unlist(self, key: Key) -> None:
        """Takes a device's path out, where it is known."""
        judgement = self._offer.judged.get(key)
        if judgement is None:
            return
        path = judgement.device.path
        self._paths.pop(path, None)
        above = path.rpartition("/")[0]
        siblings = self._interfaces.get(above, set())
        siblings.discard(key)
        if not siblings:
            self._interfaces.pop(above, None)
