"""Slices as files: a machine with no cluster, and the default where there is none.

`DIR/resourceslices/<name>.yaml` is exactly the object that would be sent to an API server. People
read it, tools on the same machine watch it, and podman is served from the same state. Claims are
files beside them.

This file writes such files whole, under a temporary name that is then renamed, so that a reader
never sees half of one and a full disk leaves the old one as it was. It follows the directory by
inotify, so that a file that somebody removes or edits is put right at once. Others may put there
what they like: it is never waited for, and not parsed twice. What to write is decided in
`core.plan.slices`; claims are read by `cluster.claim_files`.
"""

import contextlib
import os
import stat
import time
import zlib
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, replace

import structlog
import trio

from liken_events.cluster import Conflict, SliceView, Unavailable
from liken_events.cluster.claim_files import CLAIMS, ClaimFiles
from liken_events.cluster.claim_names import BadName
from liken_events.cluster.slice_file import Emitter, load_slice
from liken_events.core.model.claims import ClaimReference
from liken_events.core.model.json import Json
from liken_events.core.plan.slice_body import DRIVER, slice_name
from liken_events.core.plan.slices import CreateSlice, DeleteSlice, ObservedSlice, PatchSlice
from liken_events.inotify import DirectoryWatch

SLICES = "resourceslices"
ENDING = ".yaml"

MOST_BYTES = 1024 * 1024
"""Bytes of the longest file that is read. A slice of 128 devices takes some 60 KB."""

SETTLED_SECONDS = 2.0
"""How long a file must have been left alone until its time tells whether it is the same: an edit
in place within one tick may leave inode, time and size as they were. The kernel's clock for files
ticks every 1 to 10 ms, and FAT keeps only every second second."""

log = structlog.get_logger()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Seen:
    """A file as it was last read or written.

    Attributes:
        state: what the file system says of it: a rename makes a new inode, an edit a new time.
        version: that, and what its text adds up to.
        is_settled: whether it is told from later ones by its state alone.
        slice: what it holds; None if that is no slice.
    """

    state: str
    version: str
    is_settled: bool
    slice: ObservedSlice | None


class DirectoryCluster:
    """A directory that stands for an API server.

    Attributes:
        claims: the files that are its claims.
        has_nodes: False: nothing owns a slice here.
    """

    has_nodes = False

    def __init__(self, directory: str) -> None:
        self.claims = ClaimFiles(directory)
        self._slices = os.path.join(directory, SLICES)
        self._directory = directory
        self._seen: dict[str, _Seen] = {}
        self._emitters: defaultdict[str, Emitter] = defaultdict(Emitter)

    @property
    def description(self) -> str:
        """See `Cluster.description`."""
        return f"directory {self._directory}"

    def prepare(self) -> None:
        """Makes the directories. The agent calls it once, before anything is read.

        Raises:
            OSError: they cannot be made or written to; the error names the path.
        """
        for name in (self._slices, os.path.join(self._directory, CLAIMS)):
            os.makedirs(name, mode=0o755, exist_ok=True)
        probe = os.path.join(self._slices, f".probe-{os.getpid()}")
        with open(probe, "w", encoding="utf-8"):
            pass
        os.unlink(probe)

    async def node_uid(self, node: str) -> str | None:  # noqa: ARG002  # the protocol's argument
        """There is no Node object without a cluster, so nothing owns the slice."""
        return None

    async def watch_slices(
        self,
        node: str,
        view: SliceView,
        *,
        task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        """See `Cluster.watch_slices`. A directory that is removed is followed to its return."""
        with DirectoryWatch(self._slices) as watch:
            self._look(node, view)
            task_status.started()
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._look_when_doubted, node, view)
                while True:
                    await watch.changed()
                    self._look(node, view)

    async def create_slice(self, change: CreateSlice) -> ObservedSlice:
        """See `Cluster.create_slice`. A file of that name that is no slice is replaced."""
        if self._stored(change.name) is not None:
            raise Conflict(f"{self._path(change.name)} exists already")
        return self._write(change.name, change.body)

    async def patch_slice(self, change: PatchSlice) -> ObservedSlice:
        """See `Cluster.patch_slice`."""
        stored = self._stored(change.name)
        if stored is None or stored.version != change.version:
            raise Conflict(f"{self._path(change.name)} was changed by somebody else")
        return self._write(change.name, change.body)

    async def delete_slice(self, change: DeleteSlice) -> None:
        """See `Cluster.delete_slice`."""
        try:
            os.unlink(self._path(change.name))
        except FileNotFoundError:
            pass
        except OSError as error:
            raise Unavailable(
                f"cannot remove {self._path(change.name)}: {error.strerror}"
            ) from None
        self._seen.pop(change.name, None)

    async def read_claim(self, reference: ClaimReference) -> Mapping[str, Json] | None:
        """See `Cluster.read_claim`. A file that cannot be understood is no answer for now."""
        try:
            return self.claims.read(reference.namespace, reference.name)
        except BadName:
            return None

    def _path(self, name: str) -> str:
        return os.path.join(self._slices, name + ENDING)

    def _look(self, node: str, view: SliceView, *, is_doubted: bool = False) -> None:
        """Reads what changed and tells the view if anything of ours did, or if it is doubted."""
        names = [file.removesuffix(ENDING) for file in self._files()]
        for gone in self._seen.keys() - set(names):
            del self._seen[gone]
        found = []
        for name in names:
            stored = self._stored(name)
            if stored is not None and _is_ours(stored, node):
                found.append(stored)
        if is_doubted or view.latest.number == 0 or tuple(found) != view.latest.get():
            view.replace([item.body for item in found])

    async def _look_when_doubted(self, node: str, view: SliceView) -> None:
        while True:
            await view.wait_doubted()
            self._look(node, view, is_doubted=True)

    def _files(self) -> list[str]:
        try:
            names = os.listdir(self._slices)
        except OSError as error:
            log.warning("directory.unreadable", path=self._slices, reason=error.strerror)
            return []
        return sorted(n for n in names if n.endswith(ENDING) and not n.startswith("."))

    def _stored(self, name: str) -> ObservedSlice | None:
        """What a file holds, read again only if it may be another file than before, and parsed
        again only if it is; None if it holds no slice."""
        path = self._path(name)
        seen = self._seen.get(name)
        try:
            status = os.stat(path)
            if seen is not None and seen.is_settled and seen.state == _state(status):
                return seen.slice
            status, text = _read(path, status)
        except OSError:
            self._seen.pop(name, None)
            return None
        version = _version(status, text)
        if seen is not None and seen.version == version:
            self._seen[name] = _seen_as(status, version, seen.slice)
            return seen.slice
        body = load_slice(text)
        if body is None or ObservedSlice.from_body(body).name != name:
            log.warning("directory.not_a_slice", path=path)  # once, however often others change
            self._seen[name] = _seen_as(status, version, None)
            return None
        return self._remember(name, body, status, version)

    def _write(self, name: str, body: Mapping[str, Json]) -> ObservedSlice:
        """Replaces a file in one step. It is not flushed to the disk first: after a power cut an
        older file, or an empty one, is found and written anew at the next start, and flushing
        would cost more than all the rest."""
        path = self._path(name)
        temporary = os.path.join(self._slices, f".{name}.{os.getpid()}.tmp")
        plain = _without_version(body)
        try:
            try:
                text = self._emitters[name].dump(plain)
                with open(temporary, "w", encoding="utf-8") as file:
                    file.write(text)
                    file.flush()
                    status = os.fstat(file.fileno())
                os.replace(temporary, path)
            except BaseException:
                _unlink_if_there(temporary)
                raise
        except FileNotFoundError:
            self._make_again()
            raise Conflict(f"{self._slices} was removed, and is there again") from None
        except OSError as error:
            raise Unavailable(f"cannot write {path}: {error.strerror}") from None
        return self._remember(name, plain, status, _version(status, text))

    def _make_again(self) -> None:
        try:
            os.makedirs(self._slices, mode=0o755, exist_ok=True)
        except OSError as error:  # as for a symlink that leads nowhere
            raise Unavailable(f"cannot write {self._slices}: {error.strerror}") from None

    def _remember(
        self, name: str, body: Mapping[str, Json], status: os.stat_result, version: str
    ) -> ObservedSlice:
        metadata = body["metadata"] if isinstance(body["metadata"], dict) else {}
        known = ObservedSlice.from_body(
            {**body, "metadata": {**metadata, "resourceVersion": version}}
        )
        self._seen[name] = _seen_as(status, version, known)
        return replace(known)


def _is_ours(stored: ObservedSlice, node: str) -> bool:
    """Whether a slice is this node's, or stands where this node's has to be."""
    if stored.name == slice_name(node):
        return True
    spec = stored.body.get("spec")
    if not isinstance(spec, dict):
        return False
    return spec.get("driver") == DRIVER and spec.get("nodeName") == node


def _without_version(body: Mapping[str, Json]) -> dict[str, Json]:
    """The object as a file holds it: the version is that of the file itself."""
    metadata = body.get("metadata")
    if not isinstance(metadata, dict):
        return dict(body)
    kept = {name: value for name, value in metadata.items() if name != "resourceVersion"}
    return {**body, "metadata": kept}


def _seen_as(status: os.stat_result, version: str, holds: ObservedSlice | None) -> _Seen:
    is_settled = time.time_ns() - status.st_mtime_ns >= SETTLED_SECONDS * 1e9
    return _Seen(state=_state(status), version=version, is_settled=is_settled, slice=holds)


def _state(status: os.stat_result) -> str:
    return f"{status.st_ino}-{status.st_mtime_ns}-{status.st_size}"


def _version(status: os.stat_result, text: str) -> str:
    return f"{_state(status)}-{zlib.crc32(text.encode()):08x}"


def _read(path: str, status: os.stat_result) -> tuple[os.stat_result, str]:
    """State and text of a file; no text if it is too long for a slice, or no regular file. Opening
    a pipe waits for who writes into it, and opening a device may do anything."""
    if not stat.S_ISREG(status.st_mode):
        return status, ""
    with open(path, encoding="utf-8", errors="replace", opener=_open_at_once) as file:
        status = os.fstat(file.fileno())
        is_short = stat.S_ISREG(status.st_mode) and status.st_size <= MOST_BYTES
        return status, file.read(MOST_BYTES) if is_short else ""


def _open_at_once(path: str, flags: int) -> int:
    """Does not wait either if it has become a pipe since it was looked at."""
    return os.open(path, flags | os.O_NONBLOCK | os.O_NOCTTY)


def _unlink_if_there(path: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)
