"""How the fake API server speaks: heads, bodies, chunks, events."""

import contextlib
import io
import json
import queue
import select
import socket
import time
from collections.abc import Iterator, Mapping
from http.server import BaseHTTPRequestHandler
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, unquote, urlsplit

from tests.fakes.apifaults import SLICES, Close, Hold, Late, Lines, Raw, Request
from tests.fakes.apirules import ApiError
from tests.fakes.apistate import Change, selects

if TYPE_CHECKING:
    from tests.fakes.apiserver import ApiServer

NODES = "/api/v1/nodes/"
NAMESPACES = "/apis/resource.k8s.io/v1/namespaces/"
POLL_SECONDS = 0.02


class Handler(BaseHTTPRequestHandler):
    """Serves one connection."""

    server_state: "ApiServer"
    raw_requestline: bytes
    protocol_version = "HTTP/1.1"
    wbufsize = -1

    def setup(self) -> None:
        super().setup()
        self._wire = self.wfile
        self._bookmarks = 0

    def finish(self) -> None:
        """Closes both files also if the client is gone and the rest cannot be written."""
        for file in (self._wire, self.rfile):
            with contextlib.suppress(OSError):
                file.close()

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  # its name there
        """Tests read `ApiServer.requests`."""

    def do_GET(self) -> None:
        self._serve()

    do_POST = do_PATCH = do_DELETE = do_PUT = do_GET  # noqa: N815  # names that http.server wants

    def _serve(self) -> None:
        api = self.server_state
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        request = Request(
            method=self.command,
            path=self.path,
            headers={name.lower(): value for name, value in self.headers.items()},
            body=body,
            size=len(self.raw_requestline) + len(bytes(self.headers)) + len(body),
        )
        api.requests.append(request)
        fault = api.fault_for(request)
        try:
            while isinstance(fault, Hold):
                fault.released.wait()
                fault = fault.then
            if isinstance(fault, ApiError):
                raise fault
            if isinstance(fault, Close):
                self.close_connection = True
                if not fault.after:
                    return
                self.wfile = io.BytesIO()
            if isinstance(fault, Raw):
                self._send(fault.status, fault.body, fault.content_type, fault.headers)
                return
            if isinstance(fault, Lines):
                self._send_lines(fault)
                return
            self._check_token(request)
            if isinstance(fault, Late):
                self._route_late(request, fault)
                return
            self._route(request)
        except ApiError as error:
            self._send(error.code, json.dumps(error.status()).encode(), headers=error.headers)

    def _check_token(self, request: Request) -> None:
        token = self.server_state.token
        if token is not None and request.headers.get("authorization") != f"Bearer {token}":
            raise ApiError(401, "Unauthorized", "Unauthorized")

    def _route(self, request: Request) -> None:
        state = self.server_state.state
        parts = urlsplit(request.path)
        query = dict(parse_qsl(parts.query))
        name = parts.path.rpartition("/")[2]
        match request.method, parts.path:
            case "GET", path if path.startswith(NODES):
                self._send_object(200, state.node(name), request)
            case "GET", path if path.startswith(NAMESPACES) and request.is_claim:
                namespace = path.removeprefix(NAMESPACES).partition("/")[0]
                self._send_object(200, state.claim(unquote(namespace), unquote(name)), request)
            case "GET", path if path == SLICES and "watch" in query:
                self._watch(query)
            case "GET", path if path == SLICES:
                self._list(query)
            case "POST", path if path == SLICES:
                self._send_object(201, state.create(json.loads(request.body)), request)
            case "GET", path if path.startswith(SLICES):
                self._send_object(200, state.slice(name), request)
            case "PATCH", path if path.startswith(SLICES):
                if request.headers.get("content-type") != "application/json-patch+json":
                    raise ApiError(415, "UnsupportedMediaType", "the patch has an unknown type")
                patched = state.patch(name, json.loads(request.body))
                self._send_object(200, patched, request)
            case "DELETE", path if path.startswith(SLICES):
                options = json.loads(request.body or b"{}")
                gone = state.delete(name, options.get("preconditions"))
                self._send_object(200, gone, request)
            case _:
                message = "the server could not find the requested resource"
                raise ApiError(404, "NotFound", message)

    def _route_late(self, request: Request, fault: Late) -> None:
        self.wfile = held = io.BytesIO()
        self._route(request)
        fault.done.set()
        fault.released.wait()
        self.wfile = self._wire
        self.wfile.write(held.getvalue())
        self.wfile.flush()

    def _list(self, query: Mapping[str, str]) -> None:
        api = self.server_state
        bodies, version = api.state.select(_selector(query))
        start = int(query.get("continue", "0"))
        end = start + api.page_size if api.page_size else len(bodies)
        metadata: dict[str, Any] = {"resourceVersion": str(version)}
        if end < len(bodies):
            metadata["continue"] = str(end)
        for body in bodies:  # a list says once what its items are
            del body["kind"], body["apiVersion"]
        listed = {
            "kind": "ResourceSliceList",
            "apiVersion": "resource.k8s.io/v1",
            "metadata": metadata,
            "items": bodies[start:end],
        }
        self._send(200, json.dumps(listed).encode())

    def _watch(self, query: Mapping[str, str]) -> None:
        selector, version = _selector(query), int(query.get("resourceVersion") or 0)
        until = time.monotonic() + float(query.get("timeoutSeconds", "3600"))
        ended, self._bookmarks = self.server_state.ended, self.server_state.bookmarks
        self._begin_chunks()
        try:
            with self.server_state.state.subscribed(version) as changes, self._counted():
                is_over = False
                while self._tell_changes(changes, selector) and not is_over:
                    # What a test did before it ended the watch is told first.
                    is_over = self.server_state.ended != ended or time.monotonic() > until
        except ApiError as error:
            self._chunk(_event("ERROR", error.status()))
        self._end_chunks()

    def _tell_changes(
        self, changes: queue.SimpleQueue[Change], selector: Mapping[str, str]
    ) -> bool:
        """Tells what happened within a moment. False once the client is gone."""
        bookmarks = self.server_state.bookmarks
        with contextlib.suppress(queue.Empty):
            while True:
                change = changes.get(timeout=POLL_SECONDS)
                if selects(selector, change.body):
                    self._chunk(_event(change.kind, change.body))
        if bookmarks != self._bookmarks:
            self._bookmarks = bookmarks
            metadata = {"resourceVersion": str(self.server_state.state.version)}
            self._chunk(_event("BOOKMARK", {"kind": "ResourceSlice", "metadata": metadata}))
        return not self._is_client_gone()

    def _send_lines(self, fault: Lines) -> None:
        self._begin_chunks(fault.headers)
        with self._counted():
            for chunk in fault.chunks:
                self._chunk(chunk)
            while fault.end == "silence" and not self._is_client_gone():
                time.sleep(POLL_SECONDS)
        if fault.end == "order":
            self._end_chunks()
        else:
            self.close_connection = True

    @contextlib.contextmanager
    def _counted(self) -> Iterator[None]:
        with self.server_state.lock:
            self.server_state.open_watches += 1
        try:
            yield
        finally:
            with self.server_state.lock:
                self.server_state.open_watches -= 1

    def _is_client_gone(self) -> bool:
        """A client that waits for a watch sends nothing, so what can be read is an end."""
        try:
            if not select.select([self.connection], [], [], 0)[0]:
                return False
            return socket.socket.recv(self.connection, 1, socket.MSG_PEEK) == b""
        except (OSError, ValueError):
            return True

    def _begin_chunks(self, headers: Mapping[str, str] | None = None) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Transfer-Encoding", "chunked")
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.flush()

    def _chunk(self, data: bytes) -> None:
        self.wfile.write(b"%x\r\n%b\r\n" % (len(data), data))
        self.wfile.flush()

    def _end_chunks(self) -> None:
        self.wfile.write(b"0\r\n\r\n")
        self.wfile.flush()

    def _send_object(self, code: int, body: dict[str, Any], request: Request) -> None:
        wants = "as=PartialObjectMetadata" in request.headers.get("accept", "")
        if wants and self.server_state.answers_metadata_only:
            body = {
                "kind": "PartialObjectMetadata",
                "apiVersion": "meta.k8s.io/v1",
                "metadata": body["metadata"],
            }
        self._send(code, json.dumps(body).encode())

    def _send(
        self,
        code: int,
        body: bytes,
        content_type: str = "application/json",
        headers: Mapping[str, str] | None = None,
    ) -> None:
        self.send_response(code)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)
        self.wfile.flush()


def _selector(query: Mapping[str, str]) -> dict[str, str]:
    terms = query.get("fieldSelector", "")
    return dict(term.split("=", 1) for term in terms.split(",") if term)


def _event(kind: str, body: Mapping[str, Any]) -> bytes:
    return json.dumps({"type": kind, "object": body}).encode() + b"\n"
