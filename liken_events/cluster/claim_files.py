"""Claims as files: what a machine without a cluster has for ResourceClaims.

`DIR/resourceclaims/<namespace>/<name>.yaml` is exactly the object that an API server would hold,
with what was allocated in its status. The `claim` command writes such files, people edit, move and
remove them, and the agent prepares what they say.

This file finds and reads them, and writes and removes whole ones. A file that cannot be understood
for now keeps its place and what was last good in it. What a good file is, and when a claim has
ended, is said in `cluster.claim_file`; the tree is followed by `cluster.claim_watch`; telling
people of problems is left to whoever asked.
"""

import os
import stat
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, suppress
from dataclasses import replace

import trio

from liken_events.cluster import Conflict, Rejected, Unavailable
from liken_events.cluster.claim_file import MOST_BYTES, ClaimFile, load_claim
from liken_events.cluster.claim_names import check_names, is_claim_name, is_namespace
from liken_events.cluster.claim_watch import Following, Look
from liken_events.cluster.lock_file import locked
from liken_events.cluster.plain_yaml import emit
from liken_events.core.model.json import Json
from liken_events.core.model.names import printable
from liken_events.latest import Latest

CLAIMS = "resourceclaims"
ENDING = ".yaml"

LOCK_SECONDS = 5.0
"""How long to wait for another `claim` command. It has the lock while it chooses devices and
writes a file, which takes milliseconds."""

_UNSETTLED_NS = 2_000_000_000
"""A file that changed as lately may change again without another time: the kernel's clock for
files is up to 10 ms coarse, and some filesystems count in steps of 2 s. Until it is older, it is
read at each look."""

_GONE = (FileNotFoundError, NotADirectoryError)


class ClaimFiles:
    """The claims in a cluster directory. All methods but `watch` block, most of them shortly."""

    def __init__(self, directory: str) -> None:
        """Reads nothing yet; `directory` is the one that stands for an API server."""
        self._top = os.path.join(directory, CLAIMS)
        self._known: dict[tuple[str, str], ClaimFile] = {}
        self._versions: dict[tuple[str, str], tuple[int, ...]] = {}
        self._is_whole = True

    def path(self, namespace: str, name: str) -> str:
        """Where a claim's file is. Raises BadName."""
        check_names(namespace, name)
        return self._path(namespace, name + ENDING)

    def read(self, namespace: str, name: str) -> Mapping[str, Json] | None:
        """The ResourceClaim object in a file as it is now; None if there is no file.

        Raises:
            BadName: no claim can be called so.
            Unavailable: there is a file, and it is not good for now.
        """
        check_names(namespace, name)
        file = self._file(namespace, name)
        if file is not None and file.problem:
            raise Unavailable(file.problem)
        return None if file is None else file.body

    def list(self) -> tuple[ClaimFile, ...]:
        """All of them, by namespace and name, also what is not good. Never raises."""
        return self._look().files

    async def watch(
        self,
        claims: Latest[tuple[ClaimFile, ...]],
        *,
        task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        """Follows the files for ever: sets `claims` to what `list` says, at first and whenever
        that is another. `started()` after the first look."""
        await Following(self._top, self._look, claims).run(task_status)

    def write(self, body: Mapping[str, Json]) -> ClaimFile:
        """Writes the file of a new claim, whole or not at all.

        Raises:
            BadName: the object's name or namespace.
            Rejected: the object is no claim that could be read again.
            Conflict: there is a file of that name.
            Unavailable: it cannot be written.
        """
        metadata = body.get("metadata")
        names = metadata if isinstance(metadata, dict) else {}
        namespace, name = (str(names.get(key) or "") for key in ("namespace", "name"))
        path = self.path(namespace, name)
        data = emit(dict(body)).encode()
        try:
            uid, stored = load_claim(data, namespace, name)
            _write_new(path, data)
        except Rejected as error:
            raise Rejected(f"{printable(path)} would be no use: it {error.reason}") from None
        except FileExistsError:
            raise Conflict(f"{printable(path)} exists already: take another name") from None
        except OSError as error:
            raise Unavailable(f"cannot write {printable(path)}: {error.strerror}") from None
        return ClaimFile(path=path, namespace=namespace, name=name, uid=uid, body=stored)

    def remove(self, namespace: str, name: str) -> bool:
        """Removes a claim's file, whatever is in it, and so ends the claim.

        Returns:
            Whether there was one.

        Raises:
            BadName: no claim can be called so.
            Unavailable: it cannot be removed.
        """
        path = self.path(namespace, name)
        try:
            os.unlink(path)
        except _GONE:
            return False
        except OSError as error:
            raise Unavailable(f"cannot remove {printable(path)}: {error.strerror}") from None
        return True

    def locked(self) -> AbstractContextManager[None]:
        """Keeps out other processes that do so too: whoever chooses devices reads all claims, and
        nobody else may choose before the new one is written.

        Raises:
            Unavailable: on entering; another one has it for too long, or it cannot be had.
        """
        return locked(self._path(".lock"), LOCK_SECONDS)

    def _path(self, *parts: str) -> str:
        return os.path.join(self._top, *parts)

    def _look(self) -> Look:
        """Reads what changed, and forgets what is gone."""
        self._is_whole = True
        namespaces: set[str] = set()
        files = tuple(self._everything(namespaces))
        there = {(file.namespace, file.name) for file in files}
        for key in self._known.keys() - there:
            self._forget(key)
        return Look(
            files=tuple(sorted(files, key=lambda file: (file.namespace, file.name))),
            namespaces=frozenset(namespaces),
            is_whole=self._is_whole,
        )

    def _everything(self, namespaces: set[str]) -> Iterator[ClaimFile]:
        """All files; adds the namespaces' directories."""
        try:
            entries = _entries(self._top)
        except OSError as error:
            namespaces |= {namespace for namespace, _ in self._known}
            yield from self._unread("", error)
            return
        for entry in entries:
            if not _is_directory(entry):
                if entry.name.endswith(ENDING):
                    yield _problem(entry, ("", entry.name), "is in no namespace: move it into one")
            elif is_namespace(entry.name):
                namespaces.add(entry.name)
                yield from self._in_namespace(entry.name)
            else:
                yield _problem(entry, (entry.name, ""), "cannot be a namespace: rename it")

    def _in_namespace(self, namespace: str) -> Iterator[ClaimFile]:
        try:
            entries = _entries(self._path(namespace))
        except OSError as error:
            yield from self._unread(namespace, error)
            return
        for entry in entries:
            if not entry.name.endswith(ENDING):
                continue
            name = entry.name.removesuffix(ENDING)
            if is_claim_name(name):
                file = self._file(namespace, name)
                if file is not None:
                    yield file
            else:
                yield _problem(entry, (namespace, entry.name), "cannot be a claim: rename it")

    def _unread(self, namespace: str, error: OSError) -> Iterator[ClaimFile]:
        """For a directory that cannot be read: itself, and what was in it."""
        self._is_whole = False
        path = self._path(namespace) if namespace else self._top
        problem = _cannot_be_read(path, error)
        yield ClaimFile(path=path, namespace=namespace, name="", body={}, problem=problem)
        for file in self._known.values():
            if namespace in ("", file.namespace):
                yield replace(file, problem=problem)

    def _file(self, namespace: str, name: str) -> ClaimFile | None:
        """One file, read again only if it is another than before; None if there is none."""
        key = namespace, name
        path = self._path(namespace, name + ENDING)
        old = self._known.get(key)
        if old is None:
            old = ClaimFile(path=path, namespace=namespace, name=name, body={})
        version = None
        try:
            status = os.stat(path)
            if self._versions.get(key) == _version(status):
                return old
            if time.time_ns() - status.st_ctime_ns > _UNSETTLED_NS:
                version = _version(status)
            uid, body = load_claim(_bytes(path, status), namespace, name)
            new = replace(old, uid=uid, body=body, problem="")
        except Rejected as error:
            new = replace(old, problem=f"{printable(path)} {error.reason}")
        except OSError as error:
            if isinstance(error, _GONE) and not os.path.lexists(path):
                self._forget(key)
                return None
            self._is_whole = False
            new = replace(old, problem=_cannot_be_read(path, error))
        self._known[key] = new
        self._versions.pop(key, None)
        if version is not None:
            self._versions[key] = version
        return new

    def _forget(self, key: tuple[str, str]) -> None:
        self._known.pop(key, None)
        self._versions.pop(key, None)


def _entries(directory: str) -> list[os.DirEntry[str]]:
    """What is in a directory and not hidden; nothing if it is not there. Raises OSError."""
    try:
        with os.scandir(directory) as entries:
            return [entry for entry in entries if not entry.name.startswith(".")]
    except _GONE:
        return []


def _is_directory(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:
        return True  # reading it says why it is none


def _bytes(path: str, status: os.stat_result) -> bytes:
    """The start of a file. Raises OSError, and Rejected for what is none: opening a pipe or a
    device may wait, or do something."""
    if not stat.S_ISREG(status.st_mode):
        raise Rejected("is no file: remove it")
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    with open(descriptor, "rb") as file:
        return file.read(MOST_BYTES + 1) or b""


def _version(status: os.stat_result) -> tuple[int, ...]:
    """What tells one state of a file from another. The time is the one that nobody can set."""
    return status.st_dev, status.st_ino, status.st_ctime_ns, status.st_size


def _problem(entry: os.DirEntry[str], names: tuple[str, str], what: str) -> ClaimFile:
    return ClaimFile(
        path=entry.path,
        namespace=names[0],
        name=names[1].removesuffix(ENDING),
        body={},
        problem=f"{printable(entry.path)} {what}",
    )


def _cannot_be_read(path: str, error: OSError) -> str:
    return f"{printable(path)} cannot be read ({error.strerror}): make it readable, or remove it"


def _write_new(path: str, data: bytes) -> None:
    """Makes a file whole under a temporary name, and gives it its own if nothing has it. Unlike a
    slice it is flushed: nobody could write it anew after a power cut."""
    directory = os.path.dirname(path)
    os.makedirs(directory, mode=0o755, exist_ok=True)
    descriptor, temporary = tempfile.mkstemp(prefix=".", suffix=".tmp", dir=directory)
    try:
        with open(descriptor, "wb") as file:
            file.write(data)
            os.fchmod(descriptor, 0o644)
            file.flush()
            os.fsync(descriptor)
        os.link(temporary, path)
    finally:
        with suppress(FileNotFoundError):
            os.unlink(temporary)
