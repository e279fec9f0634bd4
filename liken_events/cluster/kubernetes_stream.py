"""One watch request: an answer that goes on, one JSON object in each line.

The thread that reads it is blocked for minutes, and closing a connection under a blocked read
neither wakes the reader nor is safe. Shutting the socket down does wake it, at once, and is.

This file opens, reads and ends such an answer; its methods block, except `close`. Whether an end
is a good one, and what the events mean, is decided in `cluster.kubernetes_watch`.
"""

import json
import socket
import threading
from collections.abc import Mapping
from contextlib import suppress

import urllib3

from liken_events.cluster import Unavailable
from liken_events.cluster.kubernetes_access import Client
from liken_events.cluster.kubernetes_answer import NO_ANSWER, Answer, no_answer, refusal
from liken_events.core.model.json import Json

READ_BYTES = 64 << 10
"""Bytes of one read: an event about a full slice is about as long."""

LONGEST_EVENT = 8 << 20
"""Bytes of one event. An API server takes objects of 3 MiB (`MaxRequestBodyBytes`), and writing
one out again may make it longer."""


class EventStream:
    """One watch. `open` and `read` are called by one thread at a time, `close` by any."""

    def __init__(self, client: Client, resource: str, path: str, query: Mapping[str, str]) -> None:
        self._client = client
        self._resource = resource
        self._path = path
        self._query = query
        self._busy = threading.Lock()
        self._closed = False
        self._response: urllib3.BaseHTTPResponse | None = None
        self._socket: socket.socket | None = None
        self._unfinished = b""

    def open(self, silence: float) -> None:
        """Sends the request and waits for the head of the answer.

        Args:
            silence: seconds without a byte after which `read` gives up. If the server wants to
                close the connection afterwards, the socket is out of reach, and the shorter bound
                of other answers stays.

        Raises:
            ClusterError: there was no answer, or a refusal.
        """
        try:
            with self._busy:
                response = self._client.open("GET", self._path, query=self._query)
                if response.status != 200:
                    body = response.read()
                    answer = Answer(status=response.status, headers=response.headers, body=body)
                    raise refusal("watch", self._resource, answer)
                self._response = response
                found = getattr(response.connection, "sock", None)
                if isinstance(found, socket.socket):
                    found.settimeout(silence)
                    self._socket = found
        except NO_ANSWER as error:
            raise no_answer(error, self._client.host) from error
        finally:
            self._release_if_closed()

    def read(self) -> list[Mapping[str, Json]] | None:
        """Waits for events. None when the stream ended in order.

        Raises:
            Unavailable: it broke, fell silent, ended within an event, or holds something else.
        """
        assert self._response is not None, "open comes first"
        try:
            with self._busy:
                chunk = self._response.read1(READ_BYTES)
        except urllib3.exceptions.ReadTimeoutError as error:
            raise Unavailable(f"{self._client.host} fell silent within a watch") from error
        except NO_ANSWER as error:
            raise no_answer(error, self._client.host) from error
        finally:
            self._release_if_closed()
        if not chunk:
            self._socket = None  # it may serve another request now
            if self._unfinished:
                raise Unavailable(f"{self._client.host} ended the watch within an event")
            return None
        *lines, self._unfinished = (self._unfinished + chunk).split(b"\n")
        if len(self._unfinished) > LONGEST_EVENT:
            raise Unavailable(f"{self._client.host} sent an event of more than 8 MiB")
        return [_event(line) for line in lines if line.strip()]

    def close(self) -> None:
        """Ends the stream. A thread that is blocked in `read` returns at once, one in `open` when
        that is done; it cleans up, then."""
        self._closed = True
        if self._socket is not None:
            with suppress(OSError):  # the other side was quicker
                # As a plain socket: TLS would first take its own state away from the reader.
                socket.socket.shutdown(self._socket, socket.SHUT_RDWR)
        if self._busy.acquire(blocking=False):
            self._busy.release()
            self._release_if_closed()

    def _release_if_closed(self) -> None:
        """Gives the connection back. Whoever sees `_closed` set and is not busy does it."""
        if self._closed and self._response is not None:
            self._response.close()
            self._response.release_conn()


def _event(line: bytes) -> Mapping[str, Json]:
    try:
        event = json.loads(line)
    except ValueError:
        event = None
    if not isinstance(event, dict):
        raise Unavailable("the watch sent a line that is no event")
    return event
