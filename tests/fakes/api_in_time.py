"""A Kubernetes API server in mock time: what it answers depends on how long it was away.

The agent's calls run in threads, and a clock that jumps whenever everybody waits jumps while a
thread is busy. Here the calls are made on the spot, and nothing is sent: `ApiInTime` takes the
place of the connections, and everything above them is the agent's own.
"""

import json
import math
from collections.abc import Callable, Mapping
from typing import Any

import pytest
import trio

from liken_events.cluster import Unreachable, kubernetes
from liken_events.cluster.kubernetes_answer import Answer
from liken_events.core.plan.slice_body import DRIVER
from tests.fakes.apirules import ApiError, lacks_right
from tests.fakes.apistate import State
from tests.fakes.slices import NODE

BUSY = ApiError(429, "TooManyRequests", "come back", headers={"Retry-After": "1"})


class ApiInTime:
    """The server. From `begin` on it is away, then knows nobody's rights, then is too busy.

    Attributes:
        state: what it holds, the Node included.
        requests: when each came.
        watches: when each watch began that was not refused.
        away, strange, busy: how long it refuses connections, answers 403, and answers 429; in
            seconds, one after the other.
    """

    def __init__(self, *, away: float, strange: float, busy: float) -> None:
        self.state = State()
        self.state.add_node(NODE)
        self.requests: list[float] = []
        self.watches: list[float] = []
        self._began = math.inf
        self._breaking = trio.Event()
        self.away, self.strange, self.busy = away, strange, busy

    @property
    def ready(self) -> float:
        """When it answers everything again."""
        return self._began + self.away + self.strange + self.busy

    def begin(self) -> None:
        """Begins the trouble: connections break."""
        self._began = trio.current_time()
        self._breaking.set()
        self._breaking = trio.Event()

    def install(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Has every `KubernetesCluster` reach this server."""
        monkeypatch.setattr(kubernetes, "Client", lambda *_, **__: _Client(self))
        monkeypatch.setattr(trio.to_thread, "run_sync", self._run_here)

    def answer(self, method: str, path: str, body: bytes | None) -> Answer:
        """One answer, by the time."""
        now = trio.current_time()
        self.requests.append(now)
        since = now - self._began
        if 0 <= since < self.away:
            raise Unreachable("no connection")
        try:
            if 0 <= since < self.away + self.strange:
                raise lacks_right(method.lower(), "resourceslices")
            if 0 <= since < self.away + self.strange + self.busy:
                raise BUSY
            found = self._route(method, path, None if body is None else json.loads(body))
        except ApiError as error:
            status = json.dumps(error.status()).encode()
            return Answer(status=error.code, headers=error.headers, body=status)
        return Answer(status=200, body=json.dumps(found).encode())

    def _route(self, method: str, path: str, body: Any) -> dict[str, Any]:
        name = path.rpartition("/")[2]
        match method:
            case "GET" if name == NODE:
                return self.state.node(name)
            case "GET":
                found, version = self.state.select({"spec.driver": DRIVER})
                return {"metadata": {"resourceVersion": str(version)}, "items": found}
            case "POST":
                return self.state.create(body)
            case "PATCH":
                return self.state.patch(name, body)
        raise ValueError(method)

    async def _run_here(self, work: Callable[..., Any], *args: object, **_: object) -> Any:
        try:
            return work(*args)
        except _Silence:
            await self._breaking.wait()
            raise Unreachable("the connection broke") from None


class _Silence(Exception):
    """Nothing is said until connections break."""


class _Client:
    """Stands for `cluster.kubernetes_access.Client`."""

    host = "https://api.example.com"

    def __init__(self, api: ApiInTime) -> None:
        self._api = api

    def call(self, method: str, path: str, *, body: bytes | None = None, **_: object) -> Answer:
        return self._api.answer(method, path, body)

    def open(self, method: str, path: str, **_: object) -> "_Stream":
        answer = self._api.answer(method, path, None)
        if answer.status == 200:
            self._api.watches.append(trio.current_time())
        return _Stream(answer)

    def close(self) -> None:
        pass


class _Stream:
    """Stands for the answer to a watch."""

    connection = None

    def __init__(self, answer: Answer) -> None:
        self.status = answer.status
        self.headers: Mapping[str, str] = answer.headers
        self._body = answer.body

    def read(self) -> bytes:
        return self._body

    def read1(self, size: int) -> bytes:
        raise _Silence

    def close(self) -> None:
        pass

    release_conn = close
