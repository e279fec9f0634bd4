"""One call to a server of the kubelet's, on its unix socket.

The kubelet's Go server wants `localhost` for an authority; grpc would send the path. A connection
that failed is tried again after growing pauses, which connections to one path share, so that a
kubelet that is back would not be heard for a while.

This file makes each call on a connection of its own, in a thread, and ends it with the scope that
it is made in. When to call, and what to do about a failure, is left to `servers`.
"""

import os
from typing import TypeVar
from urllib.parse import quote

import trio
from google.protobuf.message import Message

from liken_events.core.model.names import printable
from liken_events.rpc import grpc

AnswerT = TypeVar("AnswerT", bound=Message)

REASON_LENGTH = 300
"""Characters of the other side's explanation that are kept."""

_OPTIONS = (
    ("grpc.default_authority", "localhost"),
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.enable_retries", 0),
)


class CallFailed(Exception):
    """There is no answer, or it is a refusal. The text is one printable sentence."""


async def call(
    path: str, method: str, question: Message, answer: type[AnswerT], *, seconds: float
) -> AnswerT:
    """Asks and returns the answer.

    Args:
        path: of the socket.
        method: `/package.Service/Method`.
        question: what is asked.
        answer: what is answered.
        seconds: how long it may take in all.

    Raises:
        CallFailed: see there.
    """
    address = "unix:" + quote(os.fsencode(path), safe="/")
    channel = grpc.insecure_channel(address, options=_OPTIONS)
    try:
        ask = channel.unary_unary(method, type(question).SerializeToString, answer.FromString)
        pending = ask.future(question, timeout=seconds)
        try:
            # A limiter of its own: what waits for a kubelet keeps no other work from a thread.
            return await trio.to_thread.run_sync(
                pending.result, abandon_on_cancel=True, limiter=trio.CapacityLimiter(1)
            )
        except grpc.RpcError as error:
            raise CallFailed(_reason(error)) from None
        finally:
            pending.cancel()
    finally:
        channel.close()


def _reason(error: "grpc.RpcError") -> str:
    code = getattr(error, "code", lambda: None)()
    details = getattr(error, "details", lambda: None)() or "no reason was given"
    name = "" if code is None else f"{code.name}: "
    return printable(f"{name}{details}")[:REASON_LENGTH]
