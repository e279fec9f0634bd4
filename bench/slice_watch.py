"""One slice as a stranger sees it who watches the API server, and the moment it does.

The watch is a plain HTTPS request of its own connection and thread; no code of the agent's is in
it. An event is timed before it is decoded.
"""

import contextlib
import http.client
import json
import queue
import socket
import ssl
import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Self
from urllib.parse import urlencode

from bench.audited import AuditedControlPlane
from tests.cluster.real.agents import SLICES
from tests.cluster.real.control_plane import LOOPBACK

Names = frozenset[str]


class SliceWatch:
    """A watch of one slice, which need not exist. Use as a context manager."""

    def __init__(self, cluster: AuditedControlPlane, name: str) -> None:
        context = ssl.create_default_context(cafile=cluster.credentials.certificate)
        self._connection = http.client.HTTPSConnection(LOOPBACK, cluster.port, context=context)
        query = {"watch": "1", "fieldSelector": f"metadata.name={name}"}
        self._connection.request(
            "GET",
            f"{SLICES}?{urlencode(query)}",
            headers={"Authorization": f"Bearer {cluster.credentials.token}"},
        )
        self._socket = self._connection.sock
        self._answer = self._connection.getresponse()
        assert self._answer.status == 200, self._answer.status
        self._events: queue.SimpleQueue[tuple[float, Names]] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._read, name="slice-watch", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with contextlib.suppress(OSError):  # the server was quicker
            # As a plain socket: TLS would take its state away from the reader.
            socket.socket.shutdown(self._socket, socket.SHUT_RDWR)
        self._thread.join()
        self._connection.close()

    def wait(self, condition: Callable[[Names], bool], *, seconds: float = 30.0) -> float:
        """Waits for the first event from now on whose slice fulfils the condition.

        Args:
            condition: given the names of the slice's devices.
            seconds: bound.

        Returns:
            When it came, in seconds of the monotonic clock.

        Raises:
            TimeoutError: there was none.
        """
        until = time.monotonic() + seconds
        while True:
            try:
                when, names = self._events.get(timeout=max(0.0, until - time.monotonic()))
            except queue.Empty:
                raise TimeoutError(f"no such slice after {seconds:g} s") from None
            if condition(names):
                return when

    def _read(self) -> None:
        with contextlib.suppress(OSError, http.client.HTTPException):
            while line := self._answer.readline():
                now = time.monotonic()
                spec = json.loads(line)["object"].get("spec", {})
                names = frozenset(device["name"] for device in spec.get("devices", []))
                self._events.put((now, names))
