"""CDI specs and records of prepared claims, as files.

A container runtime reads each `*.json` of the CDI directory whole: one bad byte and the claim's
devices are gone. It notices a file that is written or renamed within the directory, and leaves
other endings alone. At a boot the directory is empty, and the numbers in anything older are
somebody else's.

This file writes specs (`liken.sh-<uid>.json`), each under a name that no reader takes for a spec
until it is whole. It reads them back at a start, with the records, and sets aside what cannot be
read. It touches no file that has another name, or holds a spec of another kind. What is in a spec
is decided in `core.plan.cdi`; records are in `sinks.record_files`; how one file is written is said
in `sinks.whole_files`.
"""

import json
import os
from dataclasses import dataclass, field

from liken_events.core.model.claims import ClaimReference
from liken_events.core.model.prepared import Prepared
from liken_events.core.plan.cdi import KIND, device_names
from liken_events.sinks.record_files import RecordFiles
from liken_events.sinks.whole_files import (
    Signature,
    draft_name,
    names,
    raise_if_passing,
    read,
    remove,
    remove_drafts,
    replace,
    set_aside,
    signature,
)

PREFIX = "liken.sh-"
ENDING = ".json"

SPEC_MODE = 0o644
"""Rootless podman reads specs as the user."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What was there at a start.

    Attributes:
        prepared: claims with a record of this boot.
        orphans: uid of each spec that has none, to the published names in it.
        broken: paths that could not be read, each with why; they were set aside.
        outdated: uids of claims from another boot; they were removed.
        stuck: paths that should have been removed and could not be, each with why.
    """

    prepared: tuple[Prepared, ...] = ()
    orphans: dict[str, tuple[str, ...]] = field(default_factory=dict)
    broken: tuple[tuple[str, str], ...] = ()
    outdated: tuple[str, ...] = ()
    stuck: tuple[tuple[str, str], ...] = ()


class SpecFiles:
    """The files of all prepared claims. Methods block; who writes has to be alone, see
    `RecordFiles.alone`.

    Args:
        cdi: the directory that runtimes read.
        records: the directory of our records.
        boot: id of this boot.

    Attributes:
        records: the records.
    """

    def __init__(self, *, cdi: str, records: str, boot: str) -> None:
        self.records = RecordFiles(records, boot)
        self._cdi = cdi
        self._known: dict[str, tuple[str, Signature]] = {}
        self._written: dict[str, Signature] = {}

    def spec_path(self, uid: str) -> str:
        """Where a claim's spec is."""
        return os.path.join(self._cdi, PREFIX + uid + ENDING)

    def load(self) -> Found:
        """Reads what an earlier run left, and tidies what it left half done. One claim's files
        never keep another claim from being found.

        Raises:
            OSError: a directory that is there cannot be read.
        """
        for directory in (self._cdi, self.records.directory):
            remove_drafts(directory)
        prepared: dict[str, Prepared] = {}
        broken: list[tuple[str, str]] = []
        outdated: list[str] = []
        stuck: dict[str, tuple[str, str]] = {}
        for uid in self.records.uids():
            try:
                claim, is_current = self.records.read(uid)
            except (OSError, ValueError) as error:
                raise_if_passing(error)
                broken.append((set_aside(self.records.path(uid)), str(error)))
                continue
            if is_current:
                prepared[uid] = claim
                continue
            try:
                self.remove(uid)
                outdated.append(uid)
            except OSError as error:
                stuck[uid] = str(error.filename), error.strerror or str(error)
        orphans: dict[str, tuple[str, ...]] = {}
        for name in names(self._cdi, PREFIX, ENDING):
            uid = name.removeprefix(PREFIX).removesuffix(ENDING)
            path = os.path.join(self._cdi, name)
            if not ClaimReference(namespace="", name="", uid=uid).is_valid or uid in stuck:
                continue
            try:
                devices = _devices(read(path))
            except (OSError, ValueError) as error:
                raise_if_passing(error)
                broken.append((set_aside(path), str(error)))
                continue
            if devices is not None and uid not in prepared:
                orphans[uid] = device_names(uid, devices)
        return Found(
            prepared=tuple(prepared.values()),
            orphans=orphans,
            broken=tuple(broken),
            outdated=tuple(outdated),
            stuck=tuple(stuck.values()),
        )

    def peek(self) -> tuple[Prepared, ...]:
        """The claims with a record of this boot, for a look from outside: nothing is tidied, and
        what cannot be read is left out.

        Raises:
            OSError: the records may not be read by this user.
        """
        found = []
        for uid in self.records.uids():
            try:
                claim, is_current = self.records.read(uid)
            except PermissionError:
                raise
            except (OSError, ValueError):
                continue
            if is_current:
                found.append(claim)
        return tuple(found)

    def read_spec(self, uid: str) -> str | None:
        """The text of a claim's spec; None if there is none that can be read."""
        try:
            return read(self.spec_path(uid))
        except (OSError, ValueError):
            return None

    def has_spec(self, uid: str) -> bool:
        """Whether a claim has a spec, whatever it says."""
        return signature(self.spec_path(uid)) is not None

    def is_as_written(self, uid: str) -> bool:
        """Whether a claim's spec is still the very file that was last written or found right."""
        known = self._known.get(uid)
        return known is not None and signature(self.spec_path(uid)) == known[1]

    def says_of_another(self, uid: str, text: str | None) -> bool:
        """Whether a claim's spec says this, and it was not written here."""
        is_ours = signature(self.spec_path(uid)) == self._written.get(uid)
        return not is_ours and self.read_spec(uid) == text

    def write_spec(self, uid: str, text: str) -> bool:
        """Makes a claim's spec say this. A file that says so already is left alone: same inode,
        same time. Returns whether it was written.

        Raises:
            OSError: it could not be; what was there is still there.
        """
        path = self.spec_path(uid)
        known = self._known.get(uid)
        if known is not None and known[0] == text and self.is_as_written(uid):
            return False
        is_written = self.read_spec(uid) != text
        if is_written:
            replace(path, draft_name(uid), text, mode=SPEC_MODE, directory_mode=0o755)
        found = signature(path)
        if found is not None:
            self._known[uid] = text, found
            if is_written:
                self._written[uid] = found
        return is_written

    def remove_spec(self, uid: str) -> None:
        """Removes a claim's spec alone. Raises OSError."""
        remove(self.spec_path(uid))
        self._known.pop(uid, None)
        self._written.pop(uid, None)

    def remove(self, uid: str) -> None:
        """Removes a claim's spec, then its record; what is not there is removed already.

        In this order a crash in between leaves a claim that is still known, and whoever ends it
        asks again.

        Raises:
            OSError: one of them could not be removed.
        """
        self.remove_spec(uid)
        self.records.remove(uid)


def boot_id(proc: str = "/proc") -> str:
    """The kernel's random id of this boot; `""` where there is none, as in a made-up tree.

    Raises:
        OSError: it cannot be read. Without it all claims would be another boot's, and be ended.
    """
    try:
        with open(os.path.join(proc, "sys/kernel/random/boot_id"), encoding="ascii") as file:
            return file.read().strip()
    except (FileNotFoundError, NotADirectoryError, UnicodeDecodeError):
        return ""


def _devices(text: str) -> list[str] | None:
    """The names of the devices in a spec of ours; None for one of another kind, which somebody
    else wrote.

    Raises:
        ValueError: it is no spec.
    """
    try:
        body = json.loads(text)
    except RecursionError:
        raise ValueError("it is nested too deeply to be ours") from None
    fields = body if isinstance(body, dict) else {}
    if fields.get("kind", KIND) != KIND:
        return None
    devices = fields.get("devices")
    if not isinstance(devices, list) or not devices:
        raise ValueError("it is no CDI spec")
    names = [device.get("name") if isinstance(device, dict) else None for device in devices]
    if not all(isinstance(name, str) for name in names):
        raise ValueError("a device in it has no name")
    return [str(name) for name in names]
