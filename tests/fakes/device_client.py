"""What a kubelet does with a device plugin that it took: one connection, a stream, `Allocate`.

A connection is never made a second time. What blocks here runs in threads.
"""

import threading
from contextlib import ExitStack
from typing import Any
from urllib.parse import quote

import grpc
from google.protobuf.message import Message

from liken_events._generated import deviceplugin_pb2 as messages
from tests.fakes.grpc_calls import Threads, dial

SERVICE = "v1beta1.DevicePlugin"
DIAL_SECONDS = 10.0
CALL_SECONDS = 5.0
"""The kubelet has no bound of its own here. A plugin that is usable answers in milliseconds."""


class DeviceClient:
    """The kubelet's end of a connection to one plugin.

    Args:
        path: of the plugin's socket.
        authority: what calls are addressed to.

    Attributes:
        options: what the plugin answered when it was asked for them.
        lists: each list of the stream so far, id to health.
        is_watching: whether the stream is open.
    """

    def __init__(self, path: str, *, authority: str = "localhost") -> None:
        self.options: messages.DevicePluginOptions | None = None
        self.lists: list[dict[str, str]] = []
        self.is_watching = False
        self._lock = threading.Lock()
        self._stream: Any = None
        self._is_cancelled = False
        self._stack = ExitStack()
        self._channel = self._stack.enter_context(dial(quote(path), authority=authority))
        self._threads = Threads()

    def ask_options(self) -> None:
        """The call that is made inside `Register`.

        Raises:
            RpcError: no answer within 10 s.
        """
        call = self._method("GetDevicePluginOptions", messages.DevicePluginOptions)
        self.options = call(messages.Empty(), timeout=DIAL_SECONDS, wait_for_ready=True)

    def watch(self) -> None:
        """Follows the stream to its end."""
        follow = self._channel.unary_stream(
            f"/{SERVICE}/ListAndWatch",
            messages.Empty.SerializeToString,
            messages.ListAndWatchResponse.FromString,
        )
        with self._lock:
            if self._is_cancelled:
                return
            self._stream = follow(messages.Empty())
        try:
            for message in self._stream:
                self.lists.append({device.ID: device.health for device in message.devices})
                self.is_watching = True
        except grpc.RpcError:
            pass
        finally:
            self.is_watching = False

    def cancel(self) -> None:
        """Ends the stream, now or as soon as it would begin."""
        with self._lock:
            self._is_cancelled = True
            if self._stream is not None:
                self._stream.cancel()

    def close(self) -> None:
        """Ends the connection. The stream has to be over."""
        self._stack.close()

    async def allocate(self, *containers: list[str]) -> list[list[tuple[str, str, str]]]:
        """Asks for ids; what each container is given: host path, container path, permissions.

        Raises:
            RpcError: it is refused.
        """
        request = messages.AllocateRequest()
        for ids in containers:
            request.container_requests.add(devices_ids=ids)
        answer = await self.ask("Allocate", request)
        return [
            [(spec.host_path, spec.container_path, spec.permissions) for spec in given.devices]
            for given in answer.container_responses
        ]

    async def ask(self, name: str, request: Message) -> Any:
        """One call, by the name of its method. Raises RpcError if it is refused."""
        answer = getattr(messages, f"{name}Response")
        call = self._method(name, answer)
        return await self._threads.run_unary(call, request, timeout=CALL_SECONDS)

    def _method(self, name: str, answer: type[Message]) -> Any:
        return self._channel.unary_unary(f"/{SERVICE}/{name}", _serialized, answer.FromString)


def _serialized(message: Message) -> bytes:
    return message.SerializeToString()
