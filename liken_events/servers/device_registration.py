"""Keeping one resource served and registered, whatever becomes of the kubelet.

At its start the kubelet removes every socket in its directory of device plugins, ours too, and
then makes `kubelet.sock`. It knows nobody then: each plugin has to register again. Within
`Register` it dials the plugin back, and soon after it holds a stream of the units. When that
stream ends it has forgotten the plugin and never comes back by itself. A plugin that registers
while its old stream is still open is forgotten when that one ends.

This file serves each resource on a socket of its own, registers it when there is a kubelet that
does not know it, and looks again after each change of the directory and of the streams; nothing is
polled. What is answered is in `servers.deviceplugin`, how a socket lives in
`servers.socket_life`, and how one kubelet is told from the next in `servers.kubelet_socket`.
"""

import os
import random
import secrets
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial

import structlog
import trio

from liken_events._generated import deviceplugin_pb2 as messages
from liken_events.core.backoff import Backoff
from liken_events.core.model.host_devices import HostDevice, Presence
from liken_events.latest import Latest
from liken_events.rpc import Server
from liken_events.rpc_call import CallFailed, call
from liken_events.servers.deviceplugin import DevicePlugin
from liken_events.servers.kubelet_socket import KubeletSocket
from liken_events.servers.socket_life import SocketLife
from liken_events.unix_socket import PathTooLong, check_path

VERSION = "v1beta1"
REGISTER = "/v1beta1.Registration/Register"
KUBELET_SOCKET = "kubelet.sock"

REGISTER_SECONDS = 30.0
"""For one registration. The kubelet dials back for up to 10 s within it."""

STREAM_SECONDS = 15.0
"""How long a kubelet that took us may leave us without a stream before it is asked again."""

RETRY = Backoff(base=0.05, ceiling=5.0)
"""Before another attempt. At a change of the directory there is one at once, but between the
moment when `kubelet.sock` is made and the one when it is listened to there is none to hear."""

AGAIN_SECONDS = 0.2
"""Between two registrations with one kubelet that ends the stream again and again."""

STUCK = "device plugin already connected"
"""What a kubelet answers (1.37, `devicemanager.PluginConnected`) when it has not seen the end of
the last stream from the same path yet. It forgets whose stream that is by this answer, and gives
the same one for that path as long as it lives."""

WORKERS = 16
"""Threads of a resource's server at most: its streams, and some calls of `Allocate`, which is made
for one container after the other."""

log = structlog.get_logger()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Known:
    """What was true when the kubelet took us: which socket it had, when, and how many streams had
    ended by then."""

    kubelet: int
    at: float
    ended: int


class DeviceRegistration:
    """The life of the resources of one machine.

    Args:
        directory: where the kubelet has the sockets of device plugins; it may come to be later.
    """

    def __init__(self, directory: str) -> None:
        self._directory = directory
        self._kubelet = os.path.join(self._directory, KUBELET_SOCKET)
        self._life = SocketLife()
        self._is_missed = False
        self._sockets: dict[HostDevice, str] = {}
        self._names = [KUBELET_SOCKET]

    async def run(
        self,
        resources: Mapping[HostDevice, Latest[Presence]],
        *,
        task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        """Keeps each resource served and registered while something of it is there, for ever;
        `started()` once the directories are watched. At the end the sockets go.

        Args:
            resources: each with what is there of it.
        """
        for device in resources:
            self._serve_as(device, device.socket)
        above, name = os.path.split(self._directory)
        async with trio.open_nursery() as nursery:
            # A directory that is renamed takes the watch below it along.
            await nursery.start(self._life.watch, above, (name,))
            await nursery.start(self._life.watch, self._directory, self._names)
            for device, presence in resources.items():
                nursery.start_soon(self._tell, presence)
                nursery.start_soon(self._keep, device, presence)
            task_status.started()

    async def _tell(self, presence: Latest[Presence]) -> None:
        number = 0
        while not presence.closed:
            number = await presence.wait_newer(number)
            self._life.changes.set(None)

    async def _keep(self, device: HostDevice, presence: Latest[Presence]) -> None:
        plugin = DevicePlugin(device, presence, lambda: self._life.changes.set(None))
        while True:
            await self._life.wait_until(lambda: self._is_wanted(presence))
            path = os.path.join(self._directory, self._sockets[device])
            server = Server(path, (plugin.service(),), workers=WORKERS)
            await self._life.hold(
                server, path, inside=partial(self._stay_registered, device, plugin, server)
            )

    def _serve_as(self, device: HostDevice, name: str) -> None:
        """Has a resource be served on a socket of this name from the next one on."""
        self._sockets[device] = name
        self._names[:] = KUBELET_SOCKET, *self._sockets.values()

    def _is_wanted(self, presence: Latest[Presence]) -> bool:
        """Whether there is something to offer, and a directory to serve in."""
        if not presence.number or not presence.get().is_offered:
            return False
        exists = os.path.isdir(self._directory)
        if not exists and not self._is_missed:
            log.info("kubelet.waiting", missing=self._directory)
        self._is_missed = not exists
        return exists

    async def _stay_registered(
        self, device: HostDevice, plugin: DevicePlugin, server: Server
    ) -> None:
        """Registers whenever there is a kubelet that does not know us. Returns when the socket is
        lost, or has to be made anew: to end a stream, or because a kubelet is stuck with it."""
        known: _Known | None = None
        failures = 0
        with KubeletSocket(self._kubelet) as kubelet:
            while server.is_there():
                seen = self._life.changes.number
                ended = plugin.ended
                reason: str | None
                try:
                    left = self._time_left(kubelet, known, plugin)
                    if left > 0:
                        with trio.move_on_after(left):
                            await self._life.changes.wait_newer(seen)
                        continue
                    if plugin.is_watched:
                        return  # by a kubelet that is not this one: its end must not hit us later
                    reason = await self._register(device, server, kubelet)
                except OSError as error:
                    reason = error.strerror or str(error)
                if reason is None:
                    failures = 0
                    known = _Known(kubelet=kubelet.number, at=trio.current_time(), ended=ended)
                    log.info("host_device.registered", resource=device.resource)
                    continue
                failures += 1
                self._complain(device, reason, failures)
                delay = RETRY.delay(failures, random.random())  # noqa: S311  # jitter
                with trio.move_on_after(delay):
                    await self._life.wait_until(partial(_is_other, server, kubelet))
                if STUCK in reason:
                    self._serve_as(device, _another_name(device))
                    return

    def _time_left(
        self, kubelet: KubeletSocket, known: _Known | None, plugin: DevicePlugin
    ) -> float:
        """Seconds until it is time to register; for ever while there is no kubelet, or one that
        knows us. Raises OSError if nobody can tell."""
        if not kubelet.look():
            return float("inf")
        if known is None or known.kubelet != kubelet.number:
            return 0.0
        since = trio.current_time() - known.at
        if plugin.ended > known.ended:
            return AGAIN_SECONDS - since
        return float("inf") if plugin.is_watched else STREAM_SECONDS - since

    async def _register(
        self, device: HostDevice, server: Server, kubelet: KubeletSocket
    ) -> str | None:
        """Registers one resource; why it could not, if it could not. A call to a kubelet that is
        no more is given up."""
        question = messages.RegisterRequest(
            version=VERSION, endpoint=self._sockets[device], resource_name=device.resource
        )
        reason: str | None = "the kubelet was started anew meanwhile"
        async with trio.open_nursery() as nursery:

            async def give_up() -> None:
                await self._life.wait_until(partial(_is_other, server, kubelet))
                nursery.cancel_scope.cancel()

            nursery.start_soon(give_up)
            try:
                await call(
                    kubelet.path, REGISTER, question, messages.Empty, seconds=REGISTER_SECONDS
                )
            except CallFailed as error:
                reason = str(error).replace(kubelet.path, self._kubelet)
            else:
                reason = None
            nursery.cancel_scope.cancel()
        return reason

    def _complain(self, device: HostDevice, reason: str, failures: int) -> None:
        """Says that the kubelet did not take us: once loudly, as it may be starting."""
        write = log.warning if failures == 1 else log.debug
        write(
            "host_device.registration_failed",
            resource=device.resource,
            reason=reason,
            failures=failures,
        )


def _another_name(device: HostDevice) -> str:
    """A name for a resource's socket that no kubelet has met, as long as its own: paths have a
    limit."""
    return f"{device.socket.removesuffix('.sock')[:-6]}{secrets.token_hex(3)}.sock"


def _is_other(server: Server, kubelet: KubeletSocket) -> bool:
    """Whether something happened that makes it worth to try at once: another kubelet, or a socket
    of ours that is lost."""
    return not server.is_there() or not kubelet.is_newest()


def check_paths(directory: str, devices: Iterable[HostDevice]) -> None:
    """Raises PathTooLong if a socket's path would be too long; the text says what to change."""
    for device in devices:
        try:
            check_path(os.path.join(directory, device.socket))
        except PathTooLong as error:
            raise PathTooLong(f"--device-plugin-dir: {error}; name a shorter directory") from None
