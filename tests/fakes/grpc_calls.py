"""gRPC's client from trio: what blocks runs in threads, and calls end with their scope."""

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import grpc
import trio

T = TypeVar("T")


class Threads:
    """Runs what blocks in threads of its own, as many as are needed."""

    def __init__(self) -> None:
        self._limiter = trio.CapacityLimiter(math.inf)

    async def run(self, function: Callable[[], T]) -> T:
        return await trio.to_thread.run_sync(
            function, abandon_on_cancel=True, limiter=self._limiter
        )

    async def run_unary(
        self, call: Any, request: Any, *, timeout: float, waits: bool = False
    ) -> Any:
        """One call. It is cancelled when this is. With `waits` it waits for a connection."""
        pending = call.future(request, timeout=timeout, wait_for_ready=waits)
        try:
            return await self.run(pending.result)
        finally:
            pending.cancel()


@contextmanager
def dial(path: str, *, authority: str = "localhost") -> Iterator[grpc.Channel]:
    """A connection of its own, which comes back by itself."""
    options = (
        ("grpc.default_authority", authority),
        ("grpc.use_local_subchannel_pool", 1),
        ("grpc.initial_reconnect_backoff_ms", 20),
        ("grpc.min_reconnect_backoff_ms", 5000),  # how long one attempt may take
        ("grpc.max_reconnect_backoff_ms", 100),
    )
    channel = grpc.insecure_channel(f"unix:{path}", options)
    try:
        yield channel
    finally:
        channel.close()
