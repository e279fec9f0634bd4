"""The one door to grpc: services on a unix socket, answered on the trio thread.

The kubelet calls a plugin by gRPC on a unix socket. grpc's server has threads of its own: each
call holds one for its life, and so does each stream for as long as somebody listens. A caller may
give up, or die, at any moment.

This file binds such a server so that a socket is never seen before it listens, and never takes the
place of somebody else's. A call hops onto the trio thread, so what answers it needs no lock; it is
cancelled there when its caller gives up. A bug in one call is that call's alone. Streams are
bounded, and end when the other side is gone or the server stops.

What is said in a call is left to `servers`, what may be at a path to `unix_socket`.
"""

import os
import queue
import secrets
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing, asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, TypeVar, assert_never
from urllib.parse import quote

import structlog
import trio

from liken_events.unix_socket import (
    CannotServe,
    check_descriptors,
    check_path,
    identity,
    remove_stale,
    why_not,
)

# Set before grpc is loaded, which reads it once. With fork support grpc's own handlers run in
# every fork, and have deadlocked there (grpc issues 17986, 22624, 31885). Children of ours only
# exec.
os.environ["GRPC_ENABLE_FORK_SUPPORT"] = "0"
# Its C core writes lines of its own to standard error, between ours.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")

import grpc as grpc  # for `rpc_call`, which must not load it before it is set up
from google.protobuf.message import Message

MOST_STREAMS = 8
"""Streams open at once on one server. A kubelet has one or two; more are left over from
connections whose end was not told yet."""

WORKERS = 48
"""Threads of a server at most: the streams, and 40 calls at a time. A kubelet calls for each pod
that starts, and further calls wait for a thread."""

STOP_SECONDS = 0.3
"""How long calls that run may still take at a stop. Most take milliseconds, and one that is broken
off is asked again only after 60 to 90 s."""

_OPTIONS = (
    # The default is to drop a client that pings more often than every 5 minutes. To the kubelet
    # each drop is a plugin that went away. Age and idleness of a connection have no limit anyway.
    ("grpc.http2.max_ping_strikes", 0),
)

Question = TypeVar("Question", bound=Message)

log = structlog.get_logger()


class BadRequest(Exception):
    """What was asked makes no sense; for the answering function to raise. The caller gets the text
    with `INVALID_ARGUMENT`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Constant:
    """A method that always answers the same: at once, and also while the trio thread is busy."""

    name: str
    request: type[Message]
    answer: Message


@dataclass(frozen=True, slots=True, kw_only=True)
class Unary(Generic[Question]):
    """A method with one answer. `answer` runs on the trio thread, and is cancelled when the caller
    gives up."""

    name: str
    request: type[Question]
    answer: Callable[[Question], Awaitable[Message]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Stream(Generic[Question]):
    """A method with any number of answers. `open` runs on the trio thread; it is asked for the
    next message when the one before was taken, and closed when nobody listens any more. It may
    give a message in its wire form, which takes a tenth of the memory."""

    name: str
    request: type[Question]
    open: Callable[[Question], AsyncGenerator[Message | bytes, None]]


Method = Constant | Unary[Any] | Stream[Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """A service by its full name, `package.Service`."""

    name: str
    methods: tuple[Method, ...]


class Server:
    """Services on one unix socket.

    Use `serving` as a context manager; a server serves once.
    """

    def __init__(
        self, path: str, services: tuple[Service, ...], *, workers: int = WORKERS
    ) -> None:
        """`workers` is the most threads it may have; more than `MOST_STREAMS`, or calls starve.

        Raises:
            PathTooLong: see `check_path`.
        """
        check_path(path)
        if workers <= MOST_STREAMS:
            raise ValueError(f"{workers} threads could all be taken by streams")
        self._path = path
        self._services = services
        self._workers = workers
        self._file: tuple[int, int] | None = None
        self._token: trio.lowlevel.TrioToken | None = None
        self._calls: trio.Nursery | None = None
        self._streams: list[_Call] = []

    def is_there(self) -> bool:
        """Whether the file at the path is still the socket that this server listens on."""
        return self._file is not None and identity(self._path) == self._file

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[None]:
        """Serves inside the block, and stops at its end, within half a second if the calls can be
        cancelled. The socket's file is removed if it is still ours.

        Raises:
            CannotServe: before the block.
        """
        check_descriptors(self._path)
        pool = ThreadPoolExecutor(self._workers, thread_name_prefix="rpc")
        self._token = trio.lowlevel.current_trio_token()
        server = grpc.server(
            pool,
            handlers=[self._methods_of(service) for service in self._services],
            options=_OPTIONS,
        )
        refused: CannotServe | None = None
        async with trio.open_nursery() as nursery:
            with trio.CancelScope(shield=True):
                calls: trio.Nursery = await nursery.start(_stay_open)
            self._calls = calls
            try:
                self._bind(server)
                yield
            except CannotServe as error:
                refused = error
            finally:
                with trio.CancelScope(shield=True):
                    await self._stop(server)
                self._calls = None
                calls.cancel_scope.cancel()
                pool.shutdown(wait=False)
        if refused is not None:  # raised here, it is no group of exceptions
            raise refused

    def _bind(self, server: grpc.Server) -> None:
        """Listens at the path.

        grpc removes what is at a path before it binds and after it stops, whosever it is. So it is
        given a name beside it, of the same length, which a kubelet does not look at; the socket,
        which answers by then, is linked to its real name. A link never replaces.
        """
        remove_stale(self._path)
        directory, name = os.path.split(self._path)
        # By one name two instances that bind at once would remove each other's.
        beside = os.path.join(directory, f".{secrets.token_hex(len(name))}"[: len(name)])
        try:
            try:
                server.add_insecure_port("unix:" + quote(os.fsencode(beside), safe="/"))
            except RuntimeError:
                raise CannotServe(f"cannot serve {self._path}: {why_not(beside)}") from None
            # Who may connect could prepare claims, and the kubelet is root.
            os.chmod(beside, 0o600)
            server.start()
            os.link(beside, self._path)
            self._file = identity(beside)
            os.unlink(beside)
        except OSError as error:
            with suppress(OSError):
                os.unlink(beside)
            raise CannotServe(f"cannot serve {self._path}: {error.strerror}") from None

    async def _stop(self, server: grpc.Server) -> None:
        if self.is_there():
            with suppress(OSError):
                os.unlink(self._path)
        stopped = server.stop(STOP_SECONDS)
        for stream in self._streams:
            stream.scope.cancel()
        wait = partial(stopped.wait, STOP_SECONDS + 0.1)
        await trio.to_thread.run_sync(wait, limiter=trio.CapacityLimiter(1))

    def _methods_of(self, service: Service) -> grpc.GenericRpcHandler:
        return grpc.method_handlers_generic_handler(
            service.name, {method.name: self._method(method) for method in service.methods}
        )

    def _method(self, method: Method) -> "grpc.RpcMethodHandler[Any, Any]":
        make = grpc.unary_unary_rpc_method_handler
        behaviour: Callable[..., Any]
        match method:
            case Constant():
                behaviour = partial(_say, method.answer)
            case Unary():
                behaviour = partial(self._answer, method)
            case Stream():
                make = grpc.unary_stream_rpc_method_handler
                behaviour = partial(self._follow, method)
            case _:
                assert_never(method)
        return make(behaviour, method.request.FromString, _serialized)

    # These two run in grpc's threads.

    def _answer(
        self, method: Unary[Any], request: Message, context: grpc.ServicerContext
    ) -> Message:
        call = self._begin(context, partial(self._run_unary, method, request))
        result = call.results.get()
        if isinstance(result, _Ended):
            context.abort(result.code, result.details)
        assert isinstance(result, Message)
        return result

    def _follow(
        self, method: Stream[Any], request: Message, context: grpc.ServicerContext
    ) -> Iterator[Message | bytes]:
        call = self._begin(context, partial(self._run_stream, method, request))
        while not isinstance(result := call.results.get(), _Ended):
            yield result
            del result  # it may be large, and the next may come after days
            call.post(call.taken.release)
        if result.code is not grpc.StatusCode.OK:
            context.abort(result.code, result.details)

    def _begin(
        self, context: grpc.ServicerContext, run: Callable[["_Call"], Awaitable[None]]
    ) -> "_Call":
        """Starts the trio side of a call."""
        assert self._token is not None
        call = _Call(self._token, context)
        if context.add_callback(call.give_up):
            call.post(partial(self._start, run, call))
        else:  # it ended while it waited for a thread
            call.give_up()
        return call

    # These run on the trio thread.

    def _start(self, run: Callable[["_Call"], Awaitable[None]], call: "_Call") -> None:
        if self._calls is None:
            call.end(_STOPPED)
        else:
            self._calls.start_soon(run, call)

    async def _run_unary(self, method: Unary[Any], request: Message, call: "_Call") -> None:
        with call.running(method.name):
            call.results.put(await method.answer(request))

    async def _run_stream(self, method: Stream[Any], request: Message, call: "_Call") -> None:
        self._streams.append(call)
        if len(self._streams) > MOST_STREAMS:
            self._streams.pop(0).drop()
        try:
            with call.running(method.name):
                async with aclosing(method.open(request)) as messages:
                    async for message in messages:
                        call.results.put(message)
                        del message  # as in `_follow`
                        await call.taken.acquire()
        finally:
            if call in self._streams:
                self._streams.remove(call)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Ended:
    """No further message comes, and why."""

    code: grpc.StatusCode
    details: str = ""


_DONE = _Ended(code=grpc.StatusCode.OK)
_GIVEN_UP = _Ended(code=grpc.StatusCode.CANCELLED, details="nobody waits for the answer")
_STOPPED = _Ended(code=grpc.StatusCode.UNAVAILABLE, details="the agent is stopping")
_BUG = _Ended(code=grpc.StatusCode.INTERNAL, details="a bug in the agent: see its log")


class _Call:
    """One call, between the thread that grpc gave it and the trio thread.

    Attributes:
        results: what the thread passes on; after an `_Ended` nothing counts.
        scope: around what runs for it on the trio thread.
        taken: released for each message of a stream that its caller took.
    """

    def __init__(self, token: trio.lowlevel.TrioToken, context: grpc.ServicerContext) -> None:
        self.results: queue.SimpleQueue[Message | bytes | _Ended] = queue.SimpleQueue()
        self.scope = trio.CancelScope()
        self.taken = trio.Semaphore(0)
        self._token = token
        self._context = context
        self._is_over = False

    def post(self, function: Callable[[], object]) -> None:
        """Runs a function on the trio thread soon, from any thread."""
        try:
            self._token.run_sync_soon(function)
        except trio.RunFinishedError:
            self.end(_STOPPED)

    def end(self, how: _Ended) -> None:
        """Lets the thread go."""
        self.results.put(how)

    def give_up(self) -> None:
        """grpc calls it when the call is over, however it came to it."""
        self.end(_GIVEN_UP)
        if not self._is_over:
            self.post(self.scope.cancel)

    def drop(self) -> None:
        """Ends a stream, also one whose caller takes nothing and so holds its thread."""
        self.scope.cancel()
        self._context.cancel()

    @contextmanager
    def running(self, method: str) -> Iterator[None]:
        """Around what runs on the trio thread: whatever happens there, the thread is let go.

        An answer is put before it; then the end that is put here is not looked at.
        """
        how = _STOPPED
        try:
            with self.scope:
                yield
            how = _DONE
        except BadRequest as error:
            how = _Ended(code=grpc.StatusCode.INVALID_ARGUMENT, details=str(error))
        except Exception:  # a bug must not end the other calls, nor the agent
            log.exception("rpc.failed", method=method)
            how = _BUG
        finally:
            self._is_over = True
            self.end(how)


async def _stay_open(*, task_status: trio.TaskStatus[trio.Nursery]) -> None:
    """A nursery that a cancellation from outside does not reach: calls outlast it for a moment."""
    with trio.CancelScope(shield=True):
        async with trio.open_nursery() as calls:
            task_status.started(calls)
            await trio.sleep_forever()


def _say(answer: Message, _request: Message, _context: grpc.ServicerContext) -> Message:
    return answer


def _serialized(message: Message | bytes) -> bytes:
    return message if isinstance(message, bytes) else message.SerializeToString()
