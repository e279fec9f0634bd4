"""A kubelet as far as a driver sees it, over real unix sockets.

It follows `plugins_registry` by inotify, asks each socket that appears there who it is, judges the
answer, tells what became of it, and tries again with growing pauses if nothing did. What it does
with a plugin that it took is in `kubelet_plugin`. Times are those of the real one, except for the
pauses after a failure, which are a hundred times shorter.
"""

import os
import shutil
import stat
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal

import grpc
import trio

from liken_events._generated import pluginregistration_pb2 as registration
from liken_events.inotify import DirectoryWatch
from tests.fakes.grpc_calls import Threads, dial
from tests.fakes.kubelet_plugin import Plugin
from tests.fakes.waiting import until

INFO_SECONDS = 1.0
NOTIFY_SECONDS = 5.0
FIRST_PAUSE = 0.005
LONGEST_PAUSE = 1.22

BOTH = ("v1.DRAPlugin", "v1beta1.DRAPlugin")

Identity = tuple[int, int]


@dataclass(frozen=True, kw_only=True)
class Release:
    """What a kubelet knows.

    Attributes:
        versions: the services that it can call; it takes the first of the plugin's list.
        has_dra: whether dynamic resource allocation is on.
        health: `1.36` asks for v1alpha1, whatever was said; `1.37` for what was said; or `off`.
    """

    versions: tuple[str, ...] = BOTH
    has_dra: bool = True
    health: Literal["1.36", "1.37", "off"] = "1.37"


class Refusal(Exception):
    """What a plugin is told when it is not taken."""


class Kubelet:
    """The kubelet. Start `run` in a nursery.

    Attributes:
        plugins: those that are registered, by the path of their socket.
        infos: all answers to GetInfo so far.
        refusals: what plugins were told that were not taken.
        events: `registered` and `deregistered`, in order, with the name of the socket.
        starts: how often it started.
    """

    def __init__(self, root: Path, release: Release | None = None) -> None:
        self.root = root
        self.release = release or Release()
        self.plugins: dict[str, Plugin] = {}
        self.infos: list[registration.PluginInfo] = []
        self.refusals: list[str] = []
        self.events: list[tuple[str, str]] = []
        self.starts = 0
        self._known: dict[str, tuple[Identity, trio.CancelScope]] = {}
        self._life = trio.CancelScope()
        self._goes_on = False
        self._between: Callable[[], None] = lambda: None

    @property
    def registry(self) -> Path:
        return self.root / "plugins_registry"

    @property
    def registration_socket(self) -> Path:
        return self.registry / "liken.sh-reg.sock"

    @property
    def service_socket(self) -> Path:
        return self.root / "plugins" / "liken.sh" / "dra.sock"

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Lives until it is cancelled; a restart begins anew."""
        started: Callable[[], None] = task_status.started
        while True:
            self._goes_on = False
            with trio.CancelScope() as self._life:
                await self._live(started)
            if not self._goes_on:
                return
            self._between()
            started = _nothing

    async def restart(self, *, wipe: bool = False) -> None:
        """Ends and starts again.

        Args:
            wipe: whether all directories of plugins are deleted in between.
        """
        starts = self.starts
        self._goes_on = True
        self._between = self.wipe if wipe else _nothing
        self._life.cancel()
        await until(lambda: self.starts > starts)

    def wipe(self) -> None:
        """Deletes all directories of plugins."""
        for directory in (self.registry, self.root / "plugins"):
            shutil.rmtree(directory, ignore_errors=True)

    def make_directories(self) -> None:
        """As the kubelet does at its start."""
        for directory in (self.registry, self.root / "plugins"):
            directory.mkdir(mode=0o750, parents=True, exist_ok=True)

    async def plugin(self, instance: str = "") -> Plugin:
        """Our driver, or this instance of it, once it is registered and connected."""
        name = f"liken.sh-{instance}-reg.sock" if instance else "liken.sh-reg.sock"
        path = str(self.registry / name)
        await until(lambda: path in self.plugins and self.plugins[path].is_connected)
        return self.plugins[path]

    def called(self) -> Plugin:
        """The one of all registered instances that is called now: the newest that is connected;
        none if there is no plugin."""
        every = list(self.plugins.values())
        return [*every[-1:], *(plugin for plugin in every if plugin.is_connected)][-1]

    async def _live(self, started: Callable[[], None]) -> None:
        self.make_directories()
        self._known.clear()
        threads = Threads()
        with DirectoryWatch(str(self.registry)) as watch:
            async with trio.open_nursery() as nursery:
                self.starts += 1
                started()
                while True:
                    self._look(nursery, threads)
                    await watch.changed()

    def _look(self, nursery: trio.Nursery, threads: Threads) -> None:
        """What vanished or is another one is deregistered, then what is new is registered."""
        sockets = dict(self._sockets())
        for path, (identity, scope) in list(self._known.items()):
            if sockets.get(path) != identity:
                scope.cancel()
                del self._known[path]
        for path, identity in sockets.items():
            if path not in self._known:
                scope = trio.CancelScope()
                self._known[path] = identity, scope
                nursery.start_soon(self._keep, path, scope, threads)

    def _sockets(self) -> list[tuple[str, Identity]]:
        found = []
        for name in os.listdir(self.registry) if self.registry.is_dir() else ():
            path = str(self.registry / name)
            try:
                status = os.stat(path)
            except FileNotFoundError:
                continue
            if stat.S_ISSOCK(status.st_mode) and not name.startswith("."):
                # An inode's number is used again at once, so its time counts, too.
                found.append((path, (status.st_ino, status.st_ctime_ns)))
        return found

    async def _keep(self, path: str, scope: trio.CancelScope, threads: Threads) -> None:
        pause = FIRST_PAUSE
        with scope:
            while True:
                try:
                    await self._register(path, threads)
                except (grpc.RpcError, Refusal):
                    await trio.sleep(pause)
                    pause = min(2 * pause, LONGEST_PAUSE)

    async def _register(self, path: str, threads: Threads) -> None:
        """Registers a plugin, and stays with it until it is deregistered."""
        # The authority of these calls is the path itself, percent-encoded.
        with dial(path, authority=path.replace("/", "%2F")) as channel:
            ask = channel.unary_unary(
                "/pluginregistration.Registration/GetInfo",
                registration.InfoRequest.SerializeToString,
                registration.PluginInfo.FromString,
            )
            tell = partial(
                threads.run_unary,
                channel.unary_unary(
                    "/pluginregistration.Registration/NotifyRegistrationStatus",
                    registration.RegistrationStatus.SerializeToString,
                    registration.RegistrationStatusResponse.FromString,
                ),
                timeout=NOTIFY_SECONDS,
            )
            info = await threads.run_unary(ask, registration.InfoRequest(), timeout=INFO_SECONDS)
            self.infos.append(info)
            try:
                version = self._judge(info)
            except Refusal as refusal:
                self.refusals.append(str(refusal))
                await tell(registration.RegistrationStatus(error=str(refusal)))
                raise
            await self._use(path, Plugin(info, version, self.release.health, threads), tell)

    async def _use(
        self,
        path: str,
        plugin: Plugin,
        tell: Callable[[registration.RegistrationStatus], Awaitable[object]],
    ) -> None:
        name = os.path.basename(path)
        with plugin:
            self.plugins[path] = plugin
            self.events.append(("registered", name))
            try:
                await tell(registration.RegistrationStatus(plugin_registered=True))
                await plugin.run()
            finally:
                del self.plugins[path]
                self.events.append(("deregistered", name))

    def _judge(self, info: registration.PluginInfo) -> str:
        """The service to call."""
        if info.type != "DRAPlugin" or not self.release.has_dra:
            raise Refusal(f"no handler registered for plugin type: {info.type}")
        if any(plugin.info.endpoint == info.endpoint for plugin in self.plugins.values()):
            raise Refusal(f"the endpoint {info.endpoint} is already registered")
        for version in info.supported_versions:
            if version in self.release.versions:
                return version
        raise Refusal(f"no supported version among {list(info.supported_versions)}")


def _nothing() -> None:
    pass
