"""A machine that is read piece by piece.

An event about one device must not cost a look at a thousand. So what was read is kept, one record
for each device, and an event replaces the record that it is about.

This file holds the records and their judgements and answers with the whole inventory. It always
equals the inventory of a fresh snapshot with the same records: a test holds it to that. Reading is
left to `sources.sysfs`, the question when to `core.timing`.
"""

from collections import OrderedDict
from collections.abc import Container, Mapping

from liken_events.core.model.device import Cause, Inventory, Judgement
from liken_events.core.model.publish import Policy, assemble, judge
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
        self._judgements: dict[Key, Judgement] = {}
        self._paths: dict[str, Key] = {}
        self._interfaces: dict[str, set[Key]] = {}
        self._causes: OrderedDict[Key, Cause] = OrderedDict()

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
        before = self._judgements
        self._judgements, self._paths, self._interfaces = {}, {}, {}
        self._set_storage(snapshot.storage)
        for device in snapshot.devices:
            if device.key not in unsettled:
                self._put(device)
            elif device.key in before:
                self._put(before[device.key].device)
        after = self._judgements
        return {key for key in before.keys() | after.keys() if before.get(key) != after.get(key)}

    def put(self, key: Key, device: Device | None) -> None:
        """Takes a look at one device; None if it is gone."""
        self._forget(key)
        if device is not None:
            self._put(device)

    def put_storage(self, storage: Storage) -> set[Key]:
        """Takes a look at mounts, swap areas and block devices; returns the devices that are
        judged otherwise."""
        if storage == self._storage:
            return set()
        self._set_storage(storage)
        changed = set()
        for key, old in list(self._judgements.items()):
            if has_disks(old.device):
                new = judge(old.device, self._depends, self._policy)
                if new != old:
                    self._judgements[key] = new
                    changed.add(key)
        return changed

    def note(self, key: Key, cause: Cause) -> None:
        """Remembers why a device was looked at."""
        self._causes[key] = cause
        self._causes.move_to_end(key)
        while len(self._causes) > MOST_CAUSES:
            self._causes.popitem(last=False)

    def inventory(self) -> Inventory:
        """All that the machine offers and holds back now."""
        return assemble(self._judgements.values(), self._policy, self._causes)

    def snapshot(self) -> Snapshot:
        """The records as one value."""
        return Snapshot(
            devices=sort_devices(judgement.device for judgement in self._judgements.values()),
            storage=self._storage,
        )

    def _set_storage(self, storage: Storage) -> None:
        self._storage = storage
        self._depends = dependence(storage)

    def _put(self, device: Device) -> None:
        self._judgements[device.key] = judge(device, self._depends, self._policy)
        self._paths[device.path] = device.key
        self._interfaces.setdefault(device.path.rpartition("/")[0], set()).add(device.key)

    def _forget(self, key: Key) -> None:
        judgement = self._judgements.pop(key, None)
        if judgement is None:
            return
        path = judgement.device.path
        self._paths.pop(path, None)
        above = path.rpartition("/")[0]
        siblings = self._interfaces.get(above, set())
        siblings.discard(key)
        if not siblings:
            self._interfaces.pop(above, None)
