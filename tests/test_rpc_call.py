import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
import trio

from liken_events._generated import deviceplugin_pb2 as messages
from liken_events.rpc import BadRequest, Server, Service, Unary
from liken_events.rpc_call import CallFailed, call
from tests.fakes.registered import short_root
from tests.fakes.waiting import until

METHOD = "/v1beta1.Registration/Register"
QUESTION = messages.RegisterRequest(version="v1beta1", resource_name="ate.dev/kvm")


@pytest.fixture
def path(tmp_path: Path) -> Iterator[str]:
    with short_root() as root:
        root.mkdir()
        yield str(root / "kubelet.sock")


class Kubelet:
    """Answers in the way that a test wants."""

    def __init__(self) -> None:
        self.asked: list[messages.RegisterRequest] = []
        self.cancelled = 0
        self.free = trio.Event()
        self.free.set()
        self.refusal = ""

    async def register(self, question: messages.RegisterRequest) -> messages.Empty:
        self.asked.append(question)
        if self.refusal:
            raise BadRequest(self.refusal)
        try:
            await self.free.wait()
        except trio.Cancelled:
            self.cancelled += 1
            raise
        return messages.Empty()

    def server(self, path: str) -> Server:
        method = Unary(name="Register", request=messages.RegisterRequest, answer=self.register)
        return Server(path, (Service(name="v1beta1.Registration", methods=(method,)),))


async def ask(path: str, seconds: float = 10.0) -> messages.Empty:
    return await call(path, METHOD, QUESTION, messages.Empty, seconds=seconds)


async def test_a_question_is_answered(path: str) -> None:
    kubelet = Kubelet()
    async with kubelet.server(path).serving():
        assert await ask(path) == messages.Empty()
    assert kubelet.asked == [QUESTION]


async def test_a_path_may_have_any_characters(path: str) -> None:
    odd = f"{path}%41 #?"
    kubelet = Kubelet()
    async with kubelet.server(odd).serving():
        await ask(odd)
    assert kubelet.asked == [QUESTION]


async def test_a_refusal_says_why_on_one_line(path: str) -> None:
    kubelet = Kubelet()
    kubelet.refusal = "no such\nresource \x1b[31m" + "x" * 1000
    async with kubelet.server(path).serving():
        with pytest.raises(CallFailed) as caught:
            await ask(path)
    text = str(caught.value)
    assert text.startswith("INVALID_ARGUMENT: no such\\x0aresource \\x1b[31mxxx")
    assert len(text) == 300


async def test_nobody_there_is_told_at_once(path: str) -> None:
    with trio.fail_after(5), pytest.raises(CallFailed, match=r"^UNAVAILABLE: "):
        await ask(path)
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(path)
    with trio.fail_after(5), pytest.raises(CallFailed, match=r"^UNAVAILABLE: "):
        await ask(path)


async def test_a_failure_makes_no_later_call_wait(path: str) -> None:
    """grpc itself would try a path again after a pause that grows with each failure."""
    for _ in range(5):
        with pytest.raises(CallFailed):
            await ask(path)
    async with Kubelet().server(path).serving():
        with trio.fail_after(2):
            await ask(path)


async def test_no_answer_ends_in_time(path: str) -> None:
    kubelet = Kubelet()
    kubelet.free = trio.Event()
    async with kubelet.server(path).serving():
        with trio.fail_after(5), pytest.raises(CallFailed, match=r"^DEADLINE_EXCEEDED: "):
            await ask(path, seconds=0.05)


async def test_a_call_ends_with_its_scope(path: str) -> None:
    kubelet = Kubelet()
    kubelet.free = trio.Event()
    async with kubelet.server(path).serving():
        async with trio.open_nursery() as nursery:
            nursery.start_soon(ask, path)
            await until(lambda: kubelet.asked)
            nursery.cancel_scope.cancel()
        await until(lambda: kubelet.cancelled)


async def test_something_else_that_listens_is_no_kubelet(path: str) -> None:
    with socket.socket(socket.AF_UNIX) as other:
        other.bind(path)
        other.listen()
        with trio.fail_after(10), pytest.raises(CallFailed):
            await ask(path, seconds=0.3)
