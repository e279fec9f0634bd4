"""The life of sockets that are to be there always, in directories that are somebody else's.

The kubelet makes and empties the directories in which plugins serve, and so may an administrator;
a directory that is renamed takes its watches along. A socket that is lost has to be made anew, and
one that cannot be had now may be had in a while.

This file watches directories, wakes whoever waits for something in them, and holds one socket
until it is lost. Which sockets there are and what is said on them is left to whoever uses it.
"""

from collections.abc import Awaitable, Callable, Sequence

import structlog
import trio

from liken_events.inotify import DirectoryWatch
from liken_events.latest import Latest
from liken_events.rpc import Server
from liken_events.unix_socket import CannotServe, remove_stale

SEEN_SECONDS = 0.1
"""How long a socket is away before it is there anew. The kubelet hears both by inotify; when it
looks between the two there has to be nothing."""

RETRY_SECONDS = 5.0
"""How long to wait after a socket could not be had. What ends the trouble may make no event: a
process that dies, a disk with room again. As `inotify.FALLBACK_SECONDS`."""

log = structlog.get_logger()


class SocketLife:
    """What happened to some sockets and their directories.

    Attributes:
        changes: set at each change; nothing is in it.
    """

    def __init__(self) -> None:
        self.changes: Latest[None] = Latest()
        self._complaints: dict[str, str] = {}

    async def watch(
        self, directory: str, names: Sequence[str], *, task_status: trio.TaskStatus[None]
    ) -> None:
        """Tells `changes` when something happened to one of the names, for ever. A name that is
        added counts after the next event in the directory, as when its socket is made."""
        with DirectoryWatch(directory) as watch:
            task_status.started()
            while True:
                if await watch.changed(*names):
                    self.changes.set(None)

    async def wait_until(self, holds: Callable[[], bool]) -> None:
        """Returns once the condition holds. It is looked at again after each change."""
        while True:
            seen = self.changes.number
            if holds():
                return
            await self.changes.wait_newer(seen)

    async def hold(
        self,
        server: Server,
        path: str,
        *,
        prepare: Callable[[], None] = lambda: None,
        inside: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        """Serves at a path until the socket is lost, or until it is time to try again.

        Args:
            server: a fresh one for that path.
            path: of the socket.
            prepare: makes what is needed for it; raises CannotServe.
            inside: what is done while it serves, instead of waiting for the loss of the socket.
        """
        try:
            prepare()
            if remove_stale(path):
                await trio.sleep(SEEN_SECONDS)
            async with server.serving():
                self._complaints.pop(path, None)
                log.info("kubelet.listening", socket=path)
                self.changes.set(None)
                if inside is None:
                    await self.wait_until(lambda: not server.is_there())
                else:
                    await inside()
                if not server.is_there():
                    log.warning("kubelet.socket_lost", socket=path)
        except CannotServe as error:
            self._complain(path, str(error))
            seen = self.changes.number
            await trio.sleep(SEEN_SECONDS)  # what was tried may have made events, too
            with trio.move_on_after(RETRY_SECONDS):
                await self.changes.wait_newer(seen)

    def _complain(self, path: str, reason: str) -> None:
        """Says what is in the way, once for each reason."""
        if self._complaints.get(path) != reason:
            log.warning(
                "kubelet.cannot_serve",
                socket=path,
                reason=reason,
                retrying_every_seconds=RETRY_SECONDS,
            )
        self._complaints[path] = reason
