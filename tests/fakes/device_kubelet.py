"""A kubelet as far as a device plugin sees it, over real unix sockets. Its server is grpc's own.

At its start it removes every socket that it finds in its directory and makes `kubelet.sock`. It
dials a plugin back inside `Register`, then holds a stream of its devices. When a stream ends it
drops whoever is known for that resource by then, also one that registered meanwhile (kubernetes
issue 121994). It never dials again by itself.

Each start begins a life of its own, in which nothing is known. All of it runs in threads: the
plugin has to answer while the kubelet waits for it. What is done with a plugin that was taken is
in `device_client`.
"""

import os
import stat
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal
from urllib.parse import quote

import grpc
import trio

from liken_events._generated import deviceplugin_pb2 as messages
from liken_events.core.model.host_devices import KVM, HostDevice
from tests.fakes.device_client import DeviceClient
from tests.fakes.registered import leave_stale
from tests.fakes.waiting import until

SERVICE = "v1beta1.Registration"
WORKERS = 8

Way = Literal["bind", "link", "rename", "late"]
"""How `kubelet.sock` comes to be: bound in its place, which goes with the server; or bound beside
the directory and linked or renamed into its place, where it stays when a kubelet is killed;
or seen while it refuses: nothing in
the directory tells when it does no more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Registered:
    """One call of `Register`.

    Attributes:
        request: what was said.
        at: when it came, in seconds of the monotonic clock.
    """

    request: messages.RegisterRequest
    at: float


class Life:
    """One life of a kubelet.

    Attributes:
        registrations: all calls of `Register` so far, also those that were refused.
        clients: the plugins that it knows, by resource.
        created: when `kubelet.sock` came to be, in seconds of the monotonic clock.
    """

    def __init__(self, kubelet: "DeviceKubelet", bound: Path) -> None:
        self.registrations: list[Registered] = []
        self.clients: dict[str, DeviceClient] = {}
        self.created = 0.0
        self._kubelet = kubelet
        self._all: list[DeviceClient] = []
        self._watchers: list[threading.Thread] = []
        self._is_over = threading.Event()
        self._lock = threading.Lock()
        self._pool = ThreadPoolExecutor(WORKERS, thread_name_prefix="kubelet")
        register = grpc.unary_unary_rpc_method_handler(
            self._register,
            messages.RegisterRequest.FromString,
            messages.Empty.SerializeToString,
        )
        handlers = grpc.method_handlers_generic_handler(SERVICE, {"Register": register})
        self._server = grpc.server(self._pool, handlers=[handlers])
        self._server.add_insecure_port("unix:" + quote(str(bound)))
        self._server.start()

    def registered(self, resource: str) -> list[Registered]:
        """The registrations of one resource."""
        return [item for item in self.registrations if item.request.resource_name == resource]

    def drop(self, resource: str) -> None:
        """Cancels the stream of a plugin."""
        self.clients[resource].cancel()

    def end(self) -> None:
        """Ends it: everything is cut."""
        with self._lock:
            self._is_over.set()
        stopped = self._server.stop(None)
        for client in self._all:
            client.cancel()
        for watcher in self._watchers:
            watcher.join(10)
        for client in self._all:
            client.close()
        stopped.wait(10)
        self._pool.shutdown()

    def _register(
        self, request: messages.RegisterRequest, context: grpc.ServicerContext
    ) -> messages.Empty:
        self.registrations.append(Registered(request=request, at=time.monotonic()))
        kubelet = self._kubelet
        if kubelet.hangs:
            self._is_over.wait(60)
        if kubelet.refusal or request.version != "v1beta1":
            context.abort(grpc.StatusCode.UNKNOWN, kubelet.refusal or "unsupported API version")
        if request.endpoint in kubelet.stuck:
            path = kubelet.directory / request.endpoint
            context.abort(grpc.StatusCode.UNKNOWN, f"device plugin already connected: {path}")
        client = DeviceClient(str(kubelet.directory / request.endpoint))
        with self._lock:
            self._all.append(client)
            if self._is_over.is_set():
                context.abort(grpc.StatusCode.UNAVAILABLE, "the kubelet ends")
        try:
            client.ask_options()
        except (grpc.RpcError, ValueError) as error:  # or its channel was closed meanwhile
            context.abort(grpc.StatusCode.UNKNOWN, f"failed to dial device plugin: {error}")
        with self._lock:
            if self._is_over.is_set():
                context.abort(grpc.StatusCode.UNAVAILABLE, "the kubelet ends")
            self.clients[request.resource_name] = client
            follow = partial(self._follow, request.resource_name, client)
            watcher = threading.Thread(target=follow, name="kubelet-stream")
            self._watchers.append(watcher)
            watcher.start()
        return messages.Empty()

    def _follow(self, resource: str, client: DeviceClient) -> None:
        while self._kubelet.delays and not self._is_over.wait(0.005):
            pass
        if not self._is_over.is_set():
            client.watch()
        with self._lock:
            dropped = self.clients.pop(resource, None)
        if dropped is not None:
            dropped.cancel()


class DeviceKubelet:
    """The kubelet, which is started and ended at will. Use `present` around it.

    Args:
        root: the kubelet's root directory.

    Attributes:
        directory: where device plugins serve.
        socket: its own.
        lives: all of its lives so far; the last is the current one.
        refusal: what `Register` is refused with, if anything.
        stuck: names of sockets that it will not take any more, as Kubernetes 1.37 does after a
            registration that came before it saw the end of the last stream.
        hangs: whether a `Register` that comes now is not answered as long as its life lasts.
        delays: whether no stream is opened yet to plugins that were taken.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self.directory = root / "device-plugins"
        self.socket = self.directory / "kubelet.sock"
        self.lives: list[Life] = []
        self.refusal = ""
        self.stuck: set[str] = set()
        self.hangs = False
        self.delays = False
        self._alive: list[Life] = []

    @property
    def life(self) -> Life:
        """The current one."""
        return self.lives[-1]

    async def start(
        self,
        *,
        wipes: bool = True,
        way: Way = "link",
        between: Callable[[], Awaitable[object]] | None = None,
    ) -> Life:
        """Begins a life.

        Args:
            wipes: whether all sockets are removed first, as the real one does.
            way: how `kubelet.sock` comes to be.
            between: what is waited for after the sockets were removed, and with `late` after its
                own is seen.
        """
        self.directory.mkdir(mode=0o750, parents=True, exist_ok=True)
        if wipes:
            self.wipe()
        bound = self.socket if way == "bind" else self.root / f"k{len(self.lives)}.sock"
        if way == "late":
            leave_stale(bound)
            self.socket.symlink_to(bound)
        if between is not None:
            await between()
        if way in ("bind", "link"):
            self.socket.unlink(missing_ok=True)
        created = time.monotonic()
        life = Life(self, bound)
        if way == "link":
            created = time.monotonic()
            os.link(bound, self.socket)
        elif way == "rename":
            created = time.monotonic()
            bound.rename(self.socket)
        life.created = created
        self.lives.append(life)
        self._alive.append(life)
        return life

    def wipe(self) -> None:
        """Removes all sockets that are there at this moment."""
        for name in os.listdir(self.directory):
            path = self.directory / name
            with suppress(FileNotFoundError):
                if stat.S_ISSOCK(path.lstat().st_mode):
                    path.unlink()

    async def stop(self) -> None:
        """Ends the current life; its socket goes."""
        self.socket.unlink(missing_ok=True)
        await self.kill()

    async def kill(self) -> None:
        """Ends the current life, of another way than `bind`; its socket stays."""
        life = self._alive.pop()
        await trio.to_thread.run_sync(life.end)

    async def client(self, device: HostDevice = KVM, *, seconds: float = 10.0) -> DeviceClient:
        """The plugin of a resource, once the current life has its list. Raises TooSlowError if it
        has none in time."""
        clients, name = self.life.clients, device.resource
        await until(lambda: name in clients and clients[name].is_watching, seconds=seconds)
        return clients[name]

    @asynccontextmanager
    async def present(self) -> AsyncIterator["DeviceKubelet"]:
        """At the end of the block all lives end."""
        try:
            yield self
        finally:
            with trio.CancelScope(shield=True):
                while self._alive:
                    await self.kill()
