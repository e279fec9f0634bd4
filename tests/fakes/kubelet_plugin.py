"""What a kubelet does with a plugin that it took: a connection, calls, the stream of health."""

from contextlib import suppress
from functools import partial
from types import ModuleType
from typing import Any, Self

import grpc
import trio

from liken_events._generated import (
    dra_health_v1_pb2,
    dra_health_v1alpha1_pb2,
    dra_v1_pb2,
    dra_v1beta1_pb2,
    pluginregistration_pb2,
)
from tests.fakes.grpc_calls import Threads, dial

CALL_SECONDS = 45.0
REOPEN_SECONDS = 0.05
"""Pause after a stream of health ended; the real one waits 5 s."""

RECONNECT_SECONDS = 0.02

GREETING = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes((0, 0, 0, 4, 0, 0, 0, 0, 0))
"""How an HTTP/2 connection begins: the preface, and settings that change none."""

GOAWAY = b"\x07"
"""Type of the frame, its fourth byte, with which a server ends a connection."""

MESSAGES: dict[str, tuple[str, ModuleType]] = {
    "v1.DRAPlugin": ("k8s.io.kubelet.pkg.apis.dra.v1", dra_v1_pb2),
    "v1beta1.DRAPlugin": ("k8s.io.kubelet.pkg.apis.dra.v1beta1", dra_v1beta1_pb2),
    "v1.DRAResourceHealth": ("v1", dra_health_v1_pb2),
    "v1alpha1.DRAResourceHealth": ("v1alpha1", dra_health_v1alpha1_pb2),
}
"""Package and messages of each service."""


class Plugin:
    """A plugin that is registered. Use as a context manager around `run`.

    Attributes:
        info: what it said of itself.
        version: the service that is called.
        is_connected: whether there is a connection now.
        disconnects: how often it was lost.
        health: what the open stream said of each device; nothing is known once it ends.
        messages: all messages of streams so far.
        streams: how many streams were opened so far.
    """

    def __init__(
        self, info: pluginregistration_pb2.PluginInfo, version: str, health: str, threads: Threads
    ) -> None:
        self.info = info
        self.version = version
        self.is_connected = False
        self.disconnects = 0
        self.health: dict[str, Any] = {}
        self.messages: list[Any] = []
        self.streams = 0
        self._health_service = self._choose_health(health)
        self._asks_for_ever = health == "1.36"
        self._threads = threads
        self._dialled = dial(info.endpoint)

    def __enter__(self) -> Self:
        self._channel = self._dialled.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self._dialled.__exit__(None, None, None)

    async def prepare(self, *claims: tuple[str, str, str], timeout: float = CALL_SECONDS) -> Any:
        """Asks for claims, given as namespace, name and uid. Returns the answers by uid."""
        return await self._call("NodePrepareResources", claims, timeout)

    async def unprepare(self, *claims: tuple[str, str, str], timeout: float = CALL_SECONDS) -> Any:
        """Ends claims, given as namespace, name and uid. Returns the answers by uid."""
        return await self._call("NodeUnprepareResources", claims, timeout)

    async def run(self) -> None:
        """Keeps the connection, and listens to the stream."""
        async with trio.open_nursery() as nursery:
            if self._health_service:
                nursery.start_soon(self._follow_health, self._health_service)
            await self._stay_connected()

    async def _stay_connected(self) -> None:
        """Knows of a plugin's death by a connection of its own: grpc's way to tell raises in its
        thread when a channel is closed at the wrong moment."""
        while True:
            with suppress(OSError, trio.BrokenResourceError):
                async with await trio.open_unix_socket(self.info.endpoint) as stream:
                    await stream.send_all(GREETING)
                    while (await stream.receive_some())[3:4] not in (b"", GOAWAY):
                        self.is_connected = True
            self.disconnects += self.is_connected
            self.is_connected = False
            await trio.sleep(RECONNECT_SECONDS)

    def _choose_health(self, release: str) -> str:
        offered = self.info.supported_versions
        match release:
            case "1.36":
                return "v1alpha1.DRAResourceHealth"
            case "1.37":
                services = ("v1.DRAResourceHealth", "v1alpha1.DRAResourceHealth")
                return next((service for service in services if service in offered), "")
            case _:
                return ""

    async def _call(
        self, method: str, claims: tuple[tuple[str, str, str], ...], timeout: float
    ) -> Any:
        package, messages = MESSAGES[self.version]
        call = self._channel.unary_unary(
            f"/{package}.DRAPlugin/{method}",
            getattr(messages, f"{method}Request").SerializeToString,
            getattr(messages, f"{method}Response").FromString,
        )
        request = getattr(messages, f"{method}Request")(
            claims=[
                messages.Claim(namespace=namespace, name=name, uid=uid)
                for namespace, name, uid in claims
            ]
        )
        answer = await self._threads.run_unary(call, request, timeout=timeout, waits=True)
        return dict(answer.claims)

    async def _follow_health(self, service: str) -> None:
        package, messages = MESSAGES[service]
        call = self._channel.unary_stream(
            f"/{package}.DRAResourceHealth/NodeWatchResources",
            messages.NodeWatchResourcesRequest.SerializeToString,
            messages.NodeWatchResourcesResponse.FromString,
        )
        while True:
            stream = call(messages.NodeWatchResourcesRequest())
            self.streams += 1
            try:
                while message := await self._threads.run(partial(next, stream, None)):
                    self.messages.append(message)
                    for device in message.devices:
                        self.health[device.device.device_name] = device
            except grpc.RpcError as error:
                is_unknown = error.code() is grpc.StatusCode.UNIMPLEMENTED
                if is_unknown and not self._asks_for_ever:
                    return
            finally:
                stream.cancel()
                self.health.clear()
            await trio.sleep(REOPEN_SECONDS)
