"""Being known to the kubelet: two sockets that are always there.

The kubelet watches its directory `plugins_registry`. Of each socket that appears there it asks who
it is (within 1 s) and where its service is, and tells what became of it. From then on it keeps a
connection to the service, and makes it anew by itself whenever it breaks. 30 s without one, it
deletes the node's slices. The socket for registration says by its presence that the driver is
there: a removed one is a driver that left, a new one is asked anew.

Several instances of one driver may be announced, each by sockets of its own (from 1.33 on). Calls
go to the newest that is connected, so while one is updated there is always one that answers.

This file keeps both sockets for ever, the service first, so that it answers before it is
announced. What is removed, by whomever and with however much of the directories, is put back on
the event. What dead instances left is removed: a kubelet would try it again and again. Directories
of the kubelet are waited for. A kubelet that refuses us is logged, with what to do, and is no
reason to end. What is answered on the sockets is left to `dra` and `health`, how a socket is held
to `socket_life`.
"""

import glob
import hashlib
import os
from contextlib import suppress
from dataclasses import dataclass
from typing import Self

import structlog
import trio

from liken_events._generated import pluginregistration_pb2 as messages
from liken_events.core.model.claims import DeviceHealth
from liken_events.core.model.names import printable
from liken_events.core.plan.slice_body import DRIVER
from liken_events.latest import Latest
from liken_events.rpc import Constant, Server, Service, Unary
from liken_events.servers import Claims
from liken_events.servers.dra import dra_services
from liken_events.servers.health import health_services
from liken_events.servers.socket_life import SEEN_SECONDS, SocketLife
from liken_events.unix_socket import CannotServe, PathTooLong, check_path, remove_stale

DIGEST_LENGTH = 12
"""Characters of a digest that stands for an instance's name. On one node there are two of them."""

VERSIONS = (
    "v1.DRAPlugin",
    "v1beta1.DRAPlugin",
    "v1.DRAResourceHealth",
    "v1alpha1.DRAResourceHealth",
)
"""What we serve, the preferred first. The kubelet takes the first of `DRAPlugin` that it knows;
the names are the services', with the last part of their package."""

log = structlog.get_logger()


@dataclass(frozen=True, slots=True, kw_only=True)
class KubeletPaths:
    """Where things are below the kubelet's directory, `/var/lib/kubelet` unless it was told
    otherwise.

    Attributes:
        root: that directory, as an absolute path: the kubelet is told a path below it.
        instance: what sets the sockets of this instance apart; `""` for the only one.
    """

    root: str
    instance: str = ""

    @classmethod
    def below(cls, kubelet_dir: str, instance: str = "") -> Self:
        """The paths below a directory that may be relative to the current one. Where a name would
        make a path too long, a digest stands for it.

        Raises:
            PathTooLong: they are too long all the same; see `check`.
        """
        root = os.path.abspath(kubelet_dir)
        paths = cls(root=root, instance=instance)
        try:
            paths.check()
        except PathTooLong:
            digest = hashlib.sha256(instance.encode()).hexdigest()[:DIGEST_LENGTH]
            paths = cls(root=root, instance=min(instance, digest, key=len))
            paths.check()
        return paths

    def check(self) -> None:
        """Raises PathTooLong if a socket's path would be too long; the text says what to
        change."""
        for path in (self.service, self.registration):
            try:
                check_path(path)
            except PathTooLong as error:
                raise PathTooLong(f"--kubelet-dir: {error}; name a shorter directory") from None

    @property
    def plugins(self) -> str:
        """Directory of the plugins' own directories."""
        return os.path.join(self.root, "plugins")

    @property
    def ours(self) -> str:
        """Our own directory there."""
        return os.path.join(self.plugins, DRIVER)

    @property
    def service(self) -> str:
        """The socket that is called to prepare claims."""
        name = f"dra-{self.instance}.sock" if self.instance else "dra.sock"
        return os.path.join(self.ours, name)

    @property
    def registry(self) -> str:
        """The directory in which the kubelet looks for plugins."""
        return os.path.join(self.root, "plugins_registry")

    @property
    def registration(self) -> str:
        """The socket that is asked who we are."""
        name = f"{DRIVER}-{self.instance}-reg.sock" if self.instance else f"{DRIVER}-reg.sock"
        return os.path.join(self.registry, name)

    @property
    def of_any_instance(self) -> list[str]:
        """All sockets of ours that there are, whichever instance made them."""
        return [
            *glob.glob(os.path.join(glob.escape(self.registry), f"{DRIVER}-*reg.sock")),
            *glob.glob(os.path.join(glob.escape(self.ours), "dra*.sock")),
        ]


async def serve(
    *,
    paths: KubeletPaths,
    node: str,
    claims: Claims,
    health: Latest[tuple[DeviceHealth, ...]],
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Keeps the driver registered with the kubelet until it is cancelled. Then both sockets go,
    that of the service first.

    Args:
        paths: where the sockets are; the kubelet's directory may come to be later.
        node: name of the node, which is the devices' pool.
        claims: who prepares and ends claims.
        health: how prepared devices fare; closing it ends the streams.
        task_status: `started()` once the directories are watched, before there is a socket:
            without a kubelet the agent must come up, too.
    """
    registry = _Registry(paths)
    services = (*dra_services(claims), *health_services(health, node))
    async with trio.open_nursery() as nursery:
        for directory, names in registry.watched():
            await nursery.start(registry.life.watch, directory, names)
        announcing: trio.CancelScope = await nursery.start(registry.keep_registration)
        task_status.started()
        try:
            await registry.keep_service(services)
        finally:
            announcing.cancel()


class _Registry:
    """The two sockets, and what happened to them."""

    def __init__(self, paths: KubeletPaths) -> None:
        self._paths = paths
        self.life = SocketLife()
        self._service: Server | None = None
        self._missing = ""
        self._refusal = ""

    def watched(self) -> tuple[tuple[str, tuple[str, ...]], ...]:
        """Directories, and the names in them that matter. A directory that is renamed takes the
        watches below it along, so each level is watched by itself."""
        paths = self._paths
        return (
            (paths.root, ("plugins", "plugins_registry")),
            (paths.plugins, (os.path.basename(paths.ours),)),
            (paths.ours, (os.path.basename(paths.service),)),
            (paths.registry, (os.path.basename(paths.registration),)),
        )

    async def keep_service(self, services: tuple[Service, ...]) -> None:
        """Keeps the service's socket. A kubelet that knows it finds it again by itself."""
        path = self._paths.service
        while True:
            await self.life.wait_until(self._has_root)
            self._service = Server(path, services)
            await self.life.hold(self._service, path, prepare=self._make_room)

    async def keep_registration(self, *, task_status: trio.TaskStatus[trio.CancelScope]) -> None:
        """Keeps the registration's socket, and gives the scope that ends it: it has to outlast the
        service's."""
        path = self._paths.registration
        with trio.CancelScope(shield=True) as scope:
            task_status.started(scope)
            while True:
                await self.life.wait_until(self._is_ready_to_register)
                await self.life.hold(Server(path, (self._registration(),)), path)
                await trio.sleep(SEEN_SECONDS)

    def _has_root(self) -> bool:
        return self._exists(self._paths.root)

    def _is_ready_to_register(self) -> bool:
        """Whether the service answers, and the kubelet would see us."""
        is_serving = self._service is not None and self._service.is_there()
        return is_serving and self._exists(self._paths.registry)

    def _exists(self, directory: str) -> bool:
        """Whether a directory of the kubelet's exists. Says once that it is waited for."""
        if os.path.isdir(directory):
            if self._missing == directory:
                self._missing = ""
            return True
        if self._missing != directory:
            log.info("kubelet.waiting", missing=directory)
        self._missing = directory
        return False

    def _make_room(self) -> None:
        """Makes the directories of plugins that the kubelet did not make, as it would, and removes
        what dead instances left."""
        for directory in (self._paths.plugins, self._paths.ours):
            try:
                with suppress(FileExistsError):
                    os.mkdir(directory, mode=0o750)
            except OSError as error:
                raise CannotServe(f"cannot make {directory}: {error.strerror}") from None
        for path in self._paths.of_any_instance:
            with suppress(CannotServe):  # somebody serves there, or it is in nobody's way
                remove_stale(path)

    def _registration(self) -> Service:
        info = messages.PluginInfo(
            type="DRAPlugin",
            name=DRIVER,
            endpoint=self._paths.service,
            supported_versions=VERSIONS,
        )
        return Service(
            name="pluginregistration.Registration",
            methods=(
                # The kubelet waits for 1 s, also while the trio thread has much to do.
                Constant(name="GetInfo", request=messages.InfoRequest, answer=info),
                Unary(
                    name="NotifyRegistrationStatus",
                    request=messages.RegistrationStatus,
                    answer=self._note_status,
                ),
            ),
        )

    async def _note_status(
        self, status: messages.RegistrationStatus
    ) -> messages.RegistrationStatusResponse:
        """Logs what became of the registration. The kubelet tries again by itself, with pauses
        that grow to 2 minutes, so the same refusal is said once."""
        error = printable(status.error)
        if status.plugin_registered:
            self._refusal = ""
            log.info("kubelet.registered", driver=DRIVER)
        else:
            write = log.debug if error and error == self._refusal else log.warning
            write("kubelet.registration_failed", error=error, hint=_hint(error))
            self._refusal = error
        return messages.RegistrationStatusResponse()


def _hint(error: str) -> str:
    """What to do about a refusal, as far as the kubelet's text tells."""
    if any(word in error for word in ("handler", "support", "version")):
        return (
            "dynamic resource allocation is off in this kubelet, or it is older than 1.34; "
            "the agent goes on, and claims cannot be prepared until the kubelet takes it"
        )
    return "the kubelet tries again by itself, within 2 minutes; its log may say more"
