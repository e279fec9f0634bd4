"""Looking at held devices and writing what was seen: the half that blocks.

A decision about a spec and the write of it belong together: between them the device may leave, and
the later the look, the smaller that gap.

This file looks at the slots of claims' devices and writes specs and records accordingly. One
method runs at a time, in a worker thread. The claims themselves are kept in `sinks.holdings`, what
is in a spec is decided in `core.plan.cdi`; files are written in `sinks.spec_files`.
"""

import contextlib
import secrets
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol

import structlog

from liken_events.core.model.claims import Allocated, Claim, ClaimReference, Refused
from liken_events.core.model.device import Inventory, Judgement
from liken_events.core.model.names import device_name, printable
from liken_events.core.model.prepared import (
    Aliases,
    Prepared,
    PreparedDevice,
    Presence,
    Sight,
    holder,
    look_at,
    resolve,
)
from liken_events.core.model.snapshot import Key, Node
from liken_events.core.plan.cdi import Owner, allocated_once, refreshed, spec
from liken_events.sinks.spec_files import SpecFiles

log = structlog.get_logger()


class Looks(Protocol):
    """Fresh looks at the machine. Methods block and raise OSError if it cannot be read."""

    def at(self, key: Key) -> Judgement | None:
        """What is in a slot now."""
        ...

    def named(self, name: str) -> Judgement | None:
        """What is in the slot that a published name belongs to."""
        ...

    def owner(self, node: Node, devpath: str | None = None) -> str | None:
        """Who has a node's path now, in a word."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Conflict:
    """A device is prepared for another claim alone."""

    device: str
    other: ClaimReference


@dataclass(frozen=True, slots=True, kw_only=True)
class Rewritten:
    """A claim whose devices were looked at, and whose spec says what was seen.

    Attributes:
        prepared: with the nodes that they deliver.
        sights: how each stands, by name.
        is_written: whether the spec was not so before.
        is_right: whether spec and record say so now; otherwise they could not be written, and a
            spec that says anything else is removed.
    """

    prepared: Prepared
    sights: Mapping[str, Sight]
    is_written: bool
    is_right: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Restored:
    """What became of what an earlier run left.

    Attributes:
        prepared: claims that are taken over.
        dropped: uids of claims that are not: of another boot, or not certain.
        problems: paths of files that could not be read, or not be removed, each with why.
    """

    prepared: tuple[Prepared, ...]
    dropped: tuple[str, ...]
    problems: tuple[tuple[str, str], ...]


class SpecWriter:
    """Writes the specs of one machine. Methods that write block, and run one at a time."""

    def __init__(self, *, files: SpecFiles, looks: Looks, aliases: Aliases) -> None:
        self._files = files
        self._looks = looks
        self._aliases = aliases

    def sight(self, held: PreparedDevice, judgement: Judgement | None) -> Sight:
        """How a held device stands."""
        return look_at(held, judgement, self._aliases)

    def load(self) -> Restored:
        """Takes over what an earlier run left.

        A spec without a record is adopted if it says exactly what its devices are now: then they
        are the ones. Otherwise nobody knows, and it is removed.

        Raises:
            OSError: a directory that is there cannot be read.
        """
        found = self._files.load()
        prepared, dropped = [*found.prepared], [*found.outdated]
        problems = [*found.broken, *found.stuck]
        for uid, names in found.orphans.items():
            try:
                item = self._adopt(uid, names)
                if item is not None:
                    prepared.append(item)
                    self._files.records.write(item)
                else:
                    self._files.remove(uid)
                    dropped.append(uid)
            except OSError as error:
                problems.append((self._files.spec_path(uid), error.strerror or str(error)))
        return Restored(prepared=tuple(prepared), dropped=tuple(dropped), problems=tuple(problems))

    def _adopt(self, uid: str, names: Iterable[str]) -> Prepared | None:
        reference = ClaimReference(namespace="", name="", uid=uid)
        devices, sights = [], {}
        for name in sorted(set(names)):
            allocated = Allocated(request="", pool="", device=name)
            try:
                judgement = self._looks.named(name)
            except OSError:
                return None
            device = resolve(allocated, judgement)
            if isinstance(device, Refused):
                return None
            devices.append(device)
            sights[name] = self.sight(device, judgement)
        item = Prepared(reference=reference, devices=tuple(devices))
        text = spec(item, sights, _nobody)
        return item if text is not None and text == self._files.read_spec(uid) else None

    def hold(
        self, claim: Claim, node: str, known: Mapping[str, Prepared]
    ) -> Rewritten | Refused | Conflict:
        """Writes record and spec of a claim as its devices are now.

        Args:
            claim: with at least one device.
            node: this node's name, which is the pool's.
            known: the prepared claims by uid.

        Raises:
            OSError: something could not be written; what was there before is there again.
        """
        uid = claim.reference.uid
        old = known.get(uid)
        held = {} if old is None else {device.name: device for device in old.devices}
        others = [item for key, item in known.items() if key != uid]
        devices, sights = [], {}
        for item in allocated_once(claim):
            name = printable(item.device)
            if item.pool != node:
                pool = printable(item.pool)
                return Refused(reason=f"{name} is a device of the node {pool}, not of this one")
            mine = held.get(item.device)
            try:
                judgement = (
                    self._looks.named(item.device) if mine is None else self._looks.at(mine.key)
                )
            except OSError as error:
                return Refused(reason=f"{name} cannot be looked at: {error.strerror or error}")
            found = resolve(item, judgement, mine, self._aliases)
            if isinstance(found, Refused):
                return found
            other = holder(found, others)
            if other is not None:
                return Conflict(device=found.name, other=other.reference)
            devices.append(found)
            sights[found.name] = self.sight(found, judgement)
        prepared = Prepared(
            reference=claim.reference, devices=tuple(devices), stamp=secrets.token_hex(8)
        )
        self._files.records.write(prepared)
        try:
            written = self._files.write_spec(uid, spec(prepared, sights, _nobody) or "")
        except OSError:
            with contextlib.suppress(OSError):
                if old is None:
                    self._files.records.remove(uid)
                else:
                    self._files.records.write(old)
            raise
        return Rewritten(prepared=prepared, sights=sights, is_written=written)

    def rewrite(
        self, claims: Iterable[Prepared], inventory: Inventory, announced: Mapping[str, str]
    ) -> dict[str, Rewritten]:
        """Looks at the devices of these claims and writes what changed; claims of which something
        could not be read are left out. One that cannot be written has no spec until it can be.

        A device that is there again counts as away until it has settled, which is when the
        inventory knows it so: half of its nodes would start a container that lacks the others.
        Another instance may know it earlier: what it wrote stays if it is what is seen here.

        Args:
            claims: prepared ones.
            inventory: the newest, which tells whose paths are.
            announced: path of a node, to the kernel path of a device that came with it.
        """
        seen: dict[Key, Judgement | None] = {}
        done: dict[str, Rewritten] = {}
        owner = self._owner(inventory, announced, seen)
        for prepared in claims:
            uid = prepared.reference.uid
            try:
                for device in prepared.devices:
                    if device.key not in seen:
                        seen[device.key] = self._looks.at(device.key)
                fresh = {d.name: self.sight(d, seen[d.key]) for d in prepared.devices}
                sights = {
                    device.name: self._settled(device, fresh[device.name], inventory)
                    for device in prepared.devices
                }
                if sights != fresh and self._files.says_of_another(
                    uid, spec(refreshed(prepared, fresh), fresh, owner)
                ):
                    sights = fresh
            except OSError as error:
                _tell_failure(prepared, error)
                continue
            done[uid] = self._write(prepared, sights, owner)
        return done

    def _write(self, prepared: Prepared, sights: Mapping[str, Sight], owner: Owner) -> Rewritten:
        """Writes what changed of a claim's spec and record."""
        uid = prepared.reference.uid
        new = refreshed(prepared, sights)
        text = spec(new, sights, owner) or ""
        try:
            written = self._files.write_spec(uid, text)
            if new != prepared or not self._files.records.has(uid):
                self._files.records.write(new)
        except OSError as error:
            _tell_failure(prepared, error)
            # By the old spec a container may get what the kernel gave these numbers to since.
            # Without one it fails and says so. A full disk refuses no removal.
            if self._files.read_spec(uid) != text:
                with contextlib.suppress(OSError):
                    self._files.remove_spec(uid)
            return Rewritten(prepared=prepared, sights=sights, is_written=False, is_right=False)
        return Rewritten(prepared=new, sights=sights, is_written=written)

    def _settled(self, device: PreparedDevice, sight: Sight, inventory: Inventory) -> Sight:
        if not sight.is_usable or sight == self.sight(device, inventory.judgement(device.key)):
            return sight
        return Sight(presence=Presence.AWAY, found=sight.found)

    def _owner(
        self,
        inventory: Inventory,
        announced: Mapping[str, str],
        seen: Mapping[Key, Judgement | None],
    ) -> Owner:
        """Tells whose a path is: of a device that is known, of what is in the slot instead, or of
        anything else that has such a node."""
        known: defaultdict[str, set[Key]] = defaultdict(set)

        def owner(node: Node, held: PreparedDevice) -> str | None:
            if not known:
                for judgement in inventory.judgements:
                    for path in _paths(judgement):
                        known[path].add(judgement.device.key)
            here = seen[held.key]
            if here is not None and node.path in _paths(here):
                # What is in its slot is the device itself, about to settle, or not what was held.
                is_it = self.sight(held, here).is_usable
                return None if is_it else device_name(held.key)
            strangers = known[node.path] - {held.key}
            if strangers:
                return device_name(min(strangers))
            return self._looks.owner(node, announced.get(node.path))

        return owner


def _paths(judgement: Judgement) -> Iterator[str]:
    """The paths of all nodes of a device."""
    device = judgement.device
    if device.bus_node is not None:
        yield device.bus_node.path
    for node in device.nodes:
        yield node.path


def _tell_failure(prepared: Prepared, error: OSError) -> None:
    log.warning("claim.refresh_failed", claim=str(prepared.reference), reason=str(error))


def _nobody(node: Node, held: PreparedDevice) -> None:  # noqa: ARG001  # what `Owner` takes
    return None
