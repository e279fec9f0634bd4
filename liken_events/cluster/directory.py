"""Slices as files: a machine with no cluster, and the default where there is none.

`DIR/resourceslices/<name>.yaml` is exactly the object that would be sent to an API server. People
read it, tools on the same machine watch it, and podman is served from the same state. Claims are
files beside them.

This file writes such files whole, under a temporary name that is then renamed, so that a reader
never sees half of one and a full disk leaves the old one as it was. It follows the directory by
inotify, so that a file that somebody removes or edits is put right at once. What to write is
decided in `core.plan.slices`; claims are read by `cluster.claim_files`.
"""

import contextlib
import os
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import replace

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

log = structlog.get_logger()


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
        self._known: dict[str, ObservedSlice] = {}
        self._complained: dict[str, str] = {}
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
        self._known.pop(change.name, None)

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
        found = []
        for file in self._files():
            stored = self._stored(file.removesuffix(ENDING))
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
        """What a file holds, read again only if it is another file than before; None if it holds
        no slice."""
        path = self._path(name)
        try:
            with open(path, encoding="utf-8", errors="replace") as file:
                version = _version(os.fstat(file.fileno()))
                known = self._known.get(name)
                if known is not None and known.version == version:
                    return known
                text = file.read()
        except OSError:
            self._known.pop(name, None)
            return None
        body = load_slice(text)
        if body is None or ObservedSlice.from_body(body).name != name:
            if self._complained.get(name) != version:  # once, however often others change
                log.warning("directory.not_a_slice", path=path)
            self._complained[name] = version
            self._known.pop(name, None)
            return None
        return self._remember(name, body, version)

    def _write(self, name: str, body: Mapping[str, Json]) -> ObservedSlice:
        """Replaces a file in one step. It is not flushed to the disk first: after a power cut an
        older file, or an empty one, is found and written anew at the next start, and flushing
        would cost more than all the rest."""
        path = self._path(name)
        temporary = os.path.join(self._slices, f".{name}.{os.getpid()}.tmp")
        plain = _without_version(body)
        try:
            try:
                with open(temporary, "w", encoding="utf-8") as file:
                    file.write(self._emitters[name].dump(plain))
                    file.flush()
                    version = _version(os.fstat(file.fileno()))
                os.replace(temporary, path)
            except BaseException:
                _unlink_if_there(temporary)
                raise
        except FileNotFoundError:
            os.makedirs(self._slices, mode=0o755, exist_ok=True)
            raise Conflict(f"{self._slices} was removed, and is there again") from None
        except OSError as error:
            raise Unavailable(f"cannot write {path}: {error.strerror}") from None
        return self._remember(name, plain, version)

    def _remember(self, name: str, body: Mapping[str, Json], version: str) -> ObservedSlice:
        metadata = body["metadata"] if isinstance(body["metadata"], dict) else {}
        known = ObservedSlice.from_body(
            {**body, "metadata": {**metadata, "resourceVersion": version}}
        )
        self._known[name] = known
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


def _version(status: os.stat_result) -> str:
    """What tells one state of a file from another: a rename makes a new inode, an edit a new
    time."""
    return f"{status.st_ino}-{status.st_mtime_ns}-{status.st_size}"


def _unlink_if_there(path: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)
