import os
import threading
import time
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest
import trio
from structlog.typing import EventDict

from liken_events._generated.pluginregistration_pb2 import InfoRequest, PluginInfo
from liken_events.rpc import (
    MOST_STREAMS,
    STOP_SECONDS,
    WORKERS,
    Constant,
    Server,
    Service,
    Stream,
    Unary,
)
from tests.fakes.grpc_calls import Threads, dial
from tests.fakes.waiting import until

BIG = "x" * 1_000_000
"""More than a connection takes while nobody reads."""


class Subject:
    """A service whose calls do what their name says, and what is known of them."""

    def __init__(self) -> None:
        self.begun = 0
        self.finished = 0
        self.cancelled = 0
        self.open = 0
        self.release = trio.Event()

    def service(self) -> Service:
        return Service(
            name="test.Subject",
            methods=(
                Constant(name="Constant", request=InfoRequest, answer=PluginInfo(name="same")),
                Unary(name="Echo", request=PluginInfo, answer=self.echo),
                Unary(name="Wait", request=PluginInfo, answer=self.wait),
                Unary(name="Bug", request=PluginInfo, answer=self.bug),
                Stream(name="Count", request=PluginInfo, open=self.count),
                Stream(name="Flood", request=PluginInfo, open=self.flood),
                Stream(name="Few", request=PluginInfo, open=self.few),
                Stream(name="BugLater", request=PluginInfo, open=self.bug_later),
            ),
        )

    async def echo(self, request: PluginInfo) -> PluginInfo:
        assert threading.current_thread() is threading.main_thread()
        await trio.lowlevel.checkpoint()
        return PluginInfo(name=request.name)

    async def wait(self, request: PluginInfo) -> PluginInfo:
        self.begun += 1
        try:
            await self.release.wait()
        except trio.Cancelled:
            self.cancelled += 1
            raise
        self.finished += 1
        return request

    async def bug(self, request: PluginInfo) -> PluginInfo:
        raise KeyError(request.name)

    async def count(self, request: PluginInfo) -> AsyncGenerator[PluginInfo, None]:
        self.open += 1
        try:
            yield PluginInfo(name="0")
            await self.release.wait()
            yield PluginInfo(name="1")
            await trio.sleep_forever()
        finally:
            self.open -= 1

    async def flood(self, request: PluginInfo) -> AsyncGenerator[PluginInfo, None]:
        self.open += 1
        try:
            while True:
                self.begun += 1
                yield PluginInfo(name=BIG)
        finally:
            self.open -= 1

    async def few(self, request: PluginInfo) -> AsyncGenerator[PluginInfo, None]:
        for number in range(3):
            yield PluginInfo(name=str(number))

    async def bug_later(self, request: PluginInfo) -> AsyncGenerator[PluginInfo, None]:
        yield PluginInfo(name="0")
        raise KeyError(request.name)


class Client:
    """One connection to it."""

    def __init__(self, channel: grpc.Channel) -> None:
        self._channel = channel
        self._threads = Threads()

    async def call(self, method: str, name: str = "", *, timeout: float = 5.0) -> str:
        answer = await self._threads.run_unary(
            self._unary(method), PluginInfo(name=name), timeout=timeout
        )
        return str(answer.name)

    def begin(self, method: str, *, timeout: float = 20.0) -> Any:
        return self._unary(method).future(PluginInfo(), timeout=timeout)

    def stream(self, method: str) -> Any:
        return self._channel.unary_stream(
            f"/test.Subject/{method}", PluginInfo.SerializeToString, PluginInfo.FromString
        )(PluginInfo())

    async def take(self, stream: Any) -> str | None:
        """The next message's name; None at the end."""
        message = await self._threads.run(lambda: next(stream, None))
        return None if message is None else str(message.name)

    def _unary(self, method: str) -> Any:
        return self._channel.unary_unary(
            f"/test.Subject/{method}", PluginInfo.SerializeToString, PluginInfo.FromString
        )


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "a.sock")


@asynccontextmanager
async def served(
    path: str, subject: Subject | None = None, *, workers: int = WORKERS
) -> AsyncIterator[Client]:
    server = Server(path, ((subject or Subject()).service(),), workers=workers)
    async with server.serving():
        with dial(path) as channel:
            yield Client(channel)


def exists(path: str) -> bool:
    return os.path.exists(path)


def rpc_threads() -> int:
    return sum(thread.name.startswith("rpc") for thread in threading.enumerate())


async def code_of(call: Any) -> grpc.StatusCode:
    """How a call ended."""
    await until(call.done)
    code: grpc.StatusCode = call.code()
    return code


async def test_a_call_is_answered_on_the_trio_thread(path: str) -> None:
    async with served(path) as client:
        assert await client.call("Echo", "hello") == "hello"


async def test_a_constant_is_answered_while_the_trio_thread_is_busy(path: str) -> None:
    async with served(path) as client:
        await client.call("Constant")
        answered = threading.Event()
        took: list[float] = []

        def ask() -> None:
            began = time.monotonic()
            call = client.begin("Constant")
            assert call.result(timeout=5).name == "same"
            took.append(time.monotonic() - began)
            answered.set()

        asking = threading.Thread(target=ask)
        asking.start()
        assert answered.wait(5)  # this thread is trio's: nothing else of it runs meanwhile
        asking.join()
        assert took[0] < 0.2


async def test_a_bug_is_that_calls_alone(path: str, logs: list[EventDict]) -> None:
    subject = Subject()
    async with served(path, subject) as client:
        other = client.begin("Wait")
        await until(lambda: subject.begun)
        assert await code_of(client.begin("Bug")) is grpc.StatusCode.INTERNAL
        assert await client.call("Echo", "hello") == "hello"
        subject.release.set()
        assert await code_of(other) is grpc.StatusCode.OK
    assert [line["method"] for line in logs if line["event"] == "rpc.failed"] == ["Bug"]


async def test_a_method_that_nobody_serves_is_refused_as_such(path: str) -> None:
    async with served(path) as client:
        assert await code_of(client.begin("Unheard")) is grpc.StatusCode.UNIMPLEMENTED


@pytest.mark.parametrize("how", ["cancel", "deadline", "death"])
async def test_what_nobody_waits_for_any_more_is_cancelled(path: str, how: str) -> None:
    subject = Subject()
    async with served(path, subject) as client:
        with dial(path) as other:
            call = Client(other).begin("Wait", timeout=0.2 if how == "deadline" else 20)
            await until(lambda: subject.begun)
            if how == "cancel":
                call.cancel()
            elif how == "death":
                other.close()
            await until(lambda: subject.cancelled)
        subject.release.set()
        assert await client.call("Echo", "hello") == "hello"
    assert (subject.begun, subject.finished) == (1, 0)


async def test_a_call_that_was_given_up_while_it_waited_for_a_thread_never_begins(
    path: str,
) -> None:
    subject = Subject()
    workers = MOST_STREAMS + 1
    async with served(path, subject, workers=workers) as client:
        running = [client.begin("Wait") for _ in range(workers)]
        await until(lambda: subject.begun == workers)
        assert (
            await code_of(client.begin("Wait", timeout=0.1)) is grpc.StatusCode.DEADLINE_EXCEEDED
        )
        subject.release.set()
        for call in running:
            await until(call.done)
        assert await client.call("Echo", "hello") == "hello"
    assert subject.begun == workers


async def test_many_calls_run_at_a_time_beside_all_streams(path: str) -> None:
    subject = Subject()
    calls = WORKERS - MOST_STREAMS
    async with served(path, subject) as client:
        streams = [client.stream("Count") for _ in range(MOST_STREAMS)]
        assert [await client.take(stream) for stream in streams] == ["0"] * MOST_STREAMS
        running = [client.begin("Wait") for _ in range(calls)]
        await until(lambda: subject.begun == calls)
        subject.release.set()
        for call in running:
            await until(call.done)
        assert [await client.take(stream) for stream in streams] == ["1"] * MOST_STREAMS


async def test_a_stream_has_all_its_messages_and_then_an_end(path: str) -> None:
    async with served(path) as client:
        stream = client.stream("Few")
        assert [await client.take(stream) for _ in range(4)] == ["0", "1", "2", None]


async def test_a_bug_in_a_stream_is_that_streams_alone(path: str, logs: list[EventDict]) -> None:
    async with served(path) as client:
        other, stream = client.stream("Count"), client.stream("BugLater")
        assert await client.take(stream) == "0"
        assert await code_of(stream) is grpc.StatusCode.INTERNAL
        assert await client.take(other) == "0"
    assert [line["method"] for line in logs if line["event"] == "rpc.failed"] == ["BugLater"]


async def test_a_stream_makes_no_message_before_the_last_one_was_taken(path: str) -> None:
    subject = Subject()
    async with served(path, subject) as client:
        stream = client.stream("Flood")
        await client.take(stream)
        made = 0
        for _ in range(10):
            made = subject.begun
            await client.call("Echo")
        assert subject.begun == made
        assert made < 50  # what the connection itself takes


async def test_one_stream_too_many_ends_the_oldest(path: str) -> None:
    subject = Subject()
    async with served(path, subject) as client:
        streams = []
        for _ in range(MOST_STREAMS + 3):
            streams.append(client.stream("Count"))
            assert await client.take(streams[-1]) == "0"
        await until(lambda: subject.open == MOST_STREAMS)
        for stream in streams[:3]:
            assert await code_of(stream) is grpc.StatusCode.CANCELLED
        assert not any(stream.done() for stream in streams[3:])


async def test_streams_whose_clients_take_nothing_hold_no_thread(path: str) -> None:
    subject = Subject()
    async with served(path, subject, workers=MOST_STREAMS + 1) as client:
        stuck = [client.stream("Flood") for _ in range(MOST_STREAMS)]
        await until(lambda: subject.open == MOST_STREAMS)
        streams = [client.stream("Count") for _ in range(MOST_STREAMS)]
        assert [await client.take(stream) for stream in streams] == ["0"] * MOST_STREAMS
        await until(lambda: subject.open == MOST_STREAMS)
        assert await client.call("Echo", "hello", timeout=1) == "hello"
        for stream in stuck:
            stream.cancel()


async def test_streams_that_come_again_and_again_leave_no_thread(path: str) -> None:
    subject = Subject()
    workers = MOST_STREAMS + 2
    async with served(path, subject, workers=workers) as client:
        for number in range(50):
            with dial(path) as channel:
                other = Client(channel)
                stream = other.stream("Count")
                assert await other.take(stream) == "0"
                if number % 2:
                    stream.cancel()
            assert await client.call("Echo", "hello", timeout=1) == "hello"
        await until(lambda: subject.open == 0)
        assert rpc_threads() <= workers
        assert await client.take(client.stream("Count")) == "0"
    await until(lambda: rpc_threads() == 0)


async def test_streams_are_ended_in_order_and_at_once_when_the_server_stops(path: str) -> None:
    subject = Subject()
    with dial(path) as channel:
        client = Client(channel)
        async with Server(path, (subject.service(),)).serving():
            streams = [client.stream("Count") for _ in range(MOST_STREAMS)]
            for stream in streams:
                await client.take(stream)
            began = time.monotonic()
        assert time.monotonic() - began < STOP_SECONDS - 0.05
        for stream in streams:
            assert await client.take(stream) is None
    assert subject.open == 0
    assert not exists(path)
    await until(lambda: rpc_threads() == 0)


async def test_a_call_may_still_finish_while_the_server_stops(path: str) -> None:
    subject = Subject()
    with dial(path) as channel:
        client = Client(channel)
        async with trio.open_nursery() as nursery:
            server = Server(path, (subject.service(),))
            with trio.CancelScope() as scope:
                async with server.serving():
                    call = client.begin("Wait")
                    await until(lambda: subject.begun)

                    async def finish() -> None:
                        await until(lambda: not exists(path))
                        subject.release.set()

                    nursery.start_soon(finish)
                    scope.cancel()
                    await trio.sleep_forever()
        assert await code_of(call) is grpc.StatusCode.OK
        assert subject.finished == 1


async def test_a_call_that_does_not_finish_does_not_hold_up_the_stop(path: str) -> None:
    subject = Subject()
    with dial(path) as channel:
        async with Server(path, (subject.service(),)).serving():
            call = Client(channel).begin("Wait")
            await until(lambda: subject.begun)
            began = time.monotonic()
        assert time.monotonic() - began < 0.5
        assert await code_of(call) is grpc.StatusCode.UNAVAILABLE
    assert (subject.cancelled, subject.finished) == (1, 0)
    await until(lambda: rpc_threads() == 0)
