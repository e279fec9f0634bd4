"""An API server that speaks real HTTP on loopback, for clients that are to be tested as they are.

What it holds is `apistate`, what it refuses `apirules`, how it speaks (keep-alive, chunked
watches, pages, metadata-only answers, bearer tokens) `apihttp`. Here are its life, TLS, a record
of every request, and the faults that a test asked for.
"""

import contextlib
import socket
import ssl
import threading
from collections.abc import Callable
from http.server import ThreadingHTTPServer
from typing import Any, Self

from tests.fakes.apifaults import Fault, Request
from tests.fakes.apihttp import POLL_SECONDS, Handler
from tests.fakes.apistate import State


class ApiServer:
    """The server. Start it as a context manager.

    Attributes:
        state: what it holds.
        requests: every request so far, oldest first.
        connections: how many were accepted so far.
        open_watches: how many watches are being served.
        token: the bearer token that is accepted; None for any.
        page_size: objects in one page of a list; None for all.
        answers_metadata_only: whether it knows PartialObjectMetadata.
        trusted_clients: path of the certificate that clients have to show; None for any or none.
    """

    def __init__(
        self,
        *,
        token: str | None = None,
        certificate: tuple[str, str] | None = None,
        trusted_clients: str | None = None,
    ) -> None:
        self.state = State()
        self.requests: list[Request] = []
        self.connections = 0
        self.open_watches = 0
        self.token = token
        self.page_size: int | None = None
        self.answers_metadata_only = True
        self.trusted_clients = trusted_clients
        self.port = 0
        self.lock = threading.Lock()
        self.ended = 0
        self.bookmarks = 0
        self.sockets: set[socket.socket] = set()
        self._certificate = certificate
        self._faults: list[tuple[Callable[[Request], bool], Fault, list[int]]] = []
        self._server: ThreadingHTTPServer | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def url(self) -> str:
        return f"{'https' if self._certificate else 'http'}://127.0.0.1:{self.port}"

    def start(self) -> None:
        """Listens; after a `stop`, on the same port."""
        api = self

        class Connection(Handler):
            server_state = api

        server = _Server(("127.0.0.1", self.port), Connection, api)
        if self._certificate is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(*self._certificate)
            if self.trusted_clients is not None:
                context.load_verify_locations(self.trusted_clients)
                context.verify_mode = ssl.CERT_REQUIRED
            server.socket = context.wrap_socket(server.socket, server_side=True)
        self.port = server.server_address[1]
        self._server = server
        threading.Thread(
            target=server.serve_forever, args=(POLL_SECONDS,), name="fake-api", daemon=True
        ).start()

    def stop(self) -> None:
        """Refuses connections from now on and breaks those that there are."""
        if self._server is None:
            return
        self._server.shutdown()
        self._server.server_close()
        self._server = None
        self.break_connections()

    def break_connections(self) -> None:
        """Ends all connections as a server that dies does."""
        with self.lock:
            for sock in self.sockets:
                with contextlib.suppress(OSError):
                    socket.socket.shutdown(sock, socket.SHUT_RDWR)

    def lose_state(self) -> None:
        """Holds nothing any more and counts from 1, as after a restore."""
        with self.state.lock:
            nodes = self.state.nodes
        self.state = State()
        self.state.nodes = nodes

    def end_watches(self) -> None:
        """Ends all watches that are open now in order, as at their time-out."""
        self.ended += 1

    def send_bookmark(self) -> None:
        """Sends a bookmark to all watches."""
        self.bookmarks += 1

    def fail(
        self,
        fault: Fault,
        *,
        on: Callable[[Request], bool] = lambda _: True,
        times: int = 1,
    ) -> None:
        """Lets a fault happen to the next requests that fit; faults are used up in order."""
        with self.lock:
            self._faults.append((on, fault, [times]))

    def heal(self) -> None:
        """Forgets all faults that did not happen yet."""
        with self.lock:
            self._faults.clear()

    def fault_for(self, request: Request) -> Fault | None:
        with self.lock:
            for entry in self._faults:
                fits, fault, left = entry
                if fits(request):
                    left[0] -= 1
                    if left[0] == 0:
                        self._faults.remove(entry)
                    return fault
        return None

    def count(self, fits: Callable[[Request], bool]) -> int:
        """How many requests so far fit."""
        return sum(map(fits, list(self.requests)))


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 128  # with less, clients that come together wait for a second SYN

    def __init__(self, address: tuple[str, int], handler: type[Handler], api: ApiServer) -> None:
        self.api = api
        super().__init__(address, handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        with self.api.lock:
            self.api.connections += 1
            self.api.sockets.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        with self.api.lock:
            self.api.sockets.discard(request)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that goes away is no news."""
