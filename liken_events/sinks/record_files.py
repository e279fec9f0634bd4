"""Records of prepared claims: the files in which several instances agree.

While the agent is updated an old and a new one run side by side, and the kubelet calls either:
what one prepared the other may be asked to end. So what is prepared stands in files, and memory is
a copy of it. Between a look at it and the write that follows from it nobody else may write.

This file locks the directory itself for that, so that nothing has to be made for it. It reads and
writes records (`<uid>.json`), and tells what others changed since it looked last. What is in a
record is decided in `core.model.claim_record`; the specs that go with them are in
`sinks.spec_files`.
"""

import errno
import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from liken_events.core.model import claim_record
from liken_events.core.model.prepared import Prepared
from liken_events.core.model.reading import ReadingError
from liken_events.sinks.instance_lock import try_lock
from liken_events.sinks.whole_files import (
    PRIVATE_MODE,
    Signature,
    draft_name,
    make_directory,
    names,
    raise_if_passing,
    read,
    remove,
    replace,
    signature,
)

ENDING = ".json"

RECORD_MODE = 0o600

LOCK_SECONDS = 8.0
"""How long to wait for another instance. It writes for milliseconds, and waits for devices that
hang: 5 s, and 0.2 s for each after the first (`sources.looks`). With the 5 s for the last
inventory it is less than the 15 s that an agent is given to stop."""

STEP_SECONDS = 0.005
"""How often it is tried: the kernel knows no wait for a lock with a bound."""


class RecordFiles:
    """The records of all prepared claims of this machine. Methods block.

    Args:
        directory: where they are.
        boot: id of this boot.
    """

    def __init__(self, directory: str, boot: str) -> None:
        self.directory = directory
        self._boot = boot
        self._seen: dict[str, Signature | None] = {}

    @contextmanager
    def alone(self, *, make: bool = False) -> Iterator[None]:
        """No other instance is inside meanwhile. Where there is no directory nothing is prepared,
        and nothing is locked.

        Args:
            make: makes the directory if there is none, as it has to be before a record is written.

        Raises:
            OSError: another one is inside for longer than `LOCK_SECONDS`, or the directory cannot
                be opened or made.
        """
        if make:
            make_directory(self.directory, PRIVATE_MODE)
        lock = self._lock()
        try:
            yield
        finally:
            if lock is not None:
                os.close(lock)

    def _lock(self) -> int | None:
        """The open directory, which is locked until it is closed; None if there is none."""
        until = time.monotonic() + LOCK_SECONDS
        while True:
            try:
                lock = try_lock(self.directory, os.O_RDONLY | os.O_DIRECTORY)
            except (FileNotFoundError, NotADirectoryError):
                return None
            if lock is not None:
                return lock
            if time.monotonic() >= until:
                reason = f"another instance has had it for {LOCK_SECONDS:g} s"
                raise TimeoutError(errno.ETIMEDOUT, reason, self.directory)
            time.sleep(STEP_SECONDS)

    def take_over(
        self, known: Mapping[str, Prepared], has_spec: Callable[[str], bool]
    ) -> tuple[Mapping[str, Prepared], list[tuple[str, str]]]:
        """What is prepared, if others changed anything of it. A record that cannot be read, which
        a newer version may have written, is left alone and changes nothing.

        Args:
            known: what was prepared, by uid.
            has_spec: whether a claim has a spec. A claim is ended by removing that first, so one
                that has a spec is prepared even if somebody removed its record.

        Returns:
            What is prepared now, which is `known` itself if nothing changed; and the records that
            are newly found to be unreadable, each with why.

        Raises:
            OSError: the directory cannot be read.
        """
        there = self._signatures()
        if there == self._seen and known.keys() <= there.keys():
            return known, []
        found = {uid: item for uid, item in known.items() if uid in there or has_spec(uid)}
        broken = []
        for uid, written in there.items():
            if written == self._seen.get(uid):
                continue
            try:
                claim, is_current = self.read(uid)
            except (OSError, ValueError) as error:
                raise_if_passing(error)
                broken.append((self.path(uid), str(error)))
                continue
            if is_current:
                found[uid] = claim
        self._seen = there
        return found, broken

    def uids(self) -> list[str]:
        """Whose records there are, sorted. Raises OSError if the directory cannot be read."""
        return [name.removesuffix(ENDING) for name in names(self.directory, "", ENDING)]

    def has(self, uid: str) -> bool:
        """Whether a claim had a record at the last look."""
        return uid in self._seen

    def path(self, uid: str) -> str:
        """Where a claim's record is."""
        return os.path.join(self.directory, uid + ENDING)

    def read(self, uid: str) -> tuple[Prepared, bool]:
        """A claim, and whether it was prepared in this boot.

        Raises:
            OSError: the record cannot be read.
            ValueError: it is none, or not this claim's.
        """
        claim, boot = claim_record.from_json(read(self.path(uid)))
        if claim.reference.uid != uid:
            raise ReadingError("it is the record of another claim")
        if not claim.devices:
            raise ReadingError("it holds no device")
        return claim, boot == self._boot

    def write(self, prepared: Prepared) -> None:
        """Writes a claim's record.

        Raises:
            OSError: it could not be written; what was there is still there.
        """
        uid = prepared.reference.uid
        text = claim_record.to_json(prepared, self._boot)
        draft = draft_name(uid)
        replace(self.path(uid), draft, text, mode=RECORD_MODE, directory_mode=PRIVATE_MODE)
        self._seen[uid] = signature(self.path(uid))

    def remove(self, uid: str) -> None:
        """Removes a claim's record. Raises OSError."""
        remove(self.path(uid))
        self._seen.pop(uid, None)

    def _signatures(self) -> dict[str, Signature | None]:
        return {uid: signature(self.path(uid)) for uid in self.uids()}
