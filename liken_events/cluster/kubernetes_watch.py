"""Following one node's slices on an API server, whatever happens to the connection.

A watch ends when the server says so, when the version that it began at is forgotten (410, as the
status of the answer or as an event within it), when a server or proxy restarts, or without a word.
After each of these some changes may have been missed.

This file lists and watches. A watch that ended in order is taken up where it was; after anything
else, and after `SliceView.doubt`, all is listed again. Failures are waited out with growing waits,
and told once. Reading happens in threads and over connections of its own, so that it never keeps a
short call waiting. The stream itself is `cluster.kubernetes_stream`; what the slices are for is
left to the view.
"""

import random
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar, TypeVarTuple

import structlog
import trio

from liken_events.cluster import ClusterError, SliceView, Unavailable
from liken_events.cluster.comeback import Comeback
from liken_events.cluster.kubernetes_access import Client
from liken_events.cluster.kubernetes_answer import Answer, refusal, said_no
from liken_events.cluster.kubernetes_stream import EventStream
from liken_events.core.backoff import SOON, Backoff
from liken_events.core.model.json import Json
from liken_events.core.plan.slice_body import DRIVER
from liken_events.core.plan.slices import ObservedSlice

PATH = "/apis/resource.k8s.io/v1/resourceslices"
RESOURCE = "resourceslices"

THREADS = 4
"""Requests at a time, and connections kept for them. One is enough; one that was given up ends
soon, but keeps its place until it does."""

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

log = structlog.get_logger()


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """How long things take while following; all in seconds.

    Attributes:
        watch: how long the server is asked to keep one watch; up to twice that, by chance, so that
            not all nodes return together. As in client-go (`minWatchTimeout`).
        silence: after how long without a byte a watch is given up. An API server sends a bookmark
            each minute (`defaultBookmarkFrequency` of its watch cache), so two were lost: the
            connection is dead, or the server was restored from a backup. It counts from an older
            version on, then, and has nothing to say to a watch from its future.
        short: a watch that ends sooner and told nothing is a failure, or two sides that agree to
            end at once would never rest. As in client-go.
        backoff: waits after failures; client-go's are between 0.8 and 30 s.
        soon: waits where the server said when to come back.
    """

    watch: float = 300.0
    silence: float = 150.0
    short: float = 1.0
    backoff: Backoff = field(default_factory=lambda: Backoff(base=0.8, ceiling=30.0))
    soon: Backoff = SOON


class Follower:
    """The life of one `Cluster.watch_slices`."""

    def __init__(
        self, client: Client, node: str, view: SliceView, pace: Pace, comeback: Comeback
    ) -> None:
        self._client = client
        self._view = view
        self._pace = pace
        self._comeback = comeback
        self._selector = {"fieldSelector": f"spec.driver={DRIVER},spec.nodeName={node}"}
        self._threads = trio.CapacityLimiter(THREADS)
        self._version = ""
        self._is_proven = False
        self._is_doubted = False
        self._failures: Counter[Backoff] = Counter()
        self._trouble: str | None = None

    async def run(self, task_status: trio.TaskStatus[None]) -> None:
        """Follows for ever; `started()` after the first list, or its failure."""
        failure = await self._outcome(self._list)
        task_status.started()
        while True:
            if failure is not None:
                await self._pause(failure)
            failure = await self._outcome(self._follow)

    async def _outcome(self, step: Callable[[], Awaitable[None]]) -> ClusterError | None:
        """Takes a step. If it fails, nothing that was known counts any more."""
        try:
            await step()
        except ClusterError as error:
            self._version = ""
            if error.reason != self._trouble:
                self._trouble = error.reason
                log.warning("watch.lost", host=self._client.host, reason=error.reason)
            return self._comeback.judged(error)
        return None

    async def _pause(self, failure: ClusterError) -> None:
        """Waits. A doubt ends it, unless the server asked for the wait: then nothing does."""
        asked = failure.retry_after if isinstance(failure, Unavailable) else None
        backoff = self._pace.backoff if asked is None else self._pace.soon
        self._failures[backoff] += 1
        # A server that no longer says when to come back is not asked sooner than before.
        count = self._failures.total() if asked is None else self._failures[backoff]
        chance = random.random()  # noqa: S311  # a jitter, not a secret
        delay = backoff.delay(count, chance, asked)
        if asked is not None:
            await trio.sleep(delay)
            return
        with trio.move_on_after(delay):
            await self._view.wait_doubted()

    async def _follow(self) -> None:
        if not self._version:
            await self._list()
        await self._watch()

    async def _list(self) -> None:
        """Puts a complete list into the view. A server may send it in pages."""
        bodies: list[Mapping[str, Json]] = []
        page = ""
        self._view.listing()
        while True:
            answer = await self._in_thread(self._get_page, page)
            self._comeback.answered()
            if answer.status != 200:
                raise refusal("list", RESOURCE, answer)
            listed = answer.json()
            metadata, items = listed.get("metadata"), listed.get("items") or []
            if not isinstance(metadata, dict) or not isinstance(items, list):
                raise Unavailable(f"{self._client.host} answered something that is no list")
            bodies += [item for item in items if isinstance(item, dict)]
            page = str(metadata.get("continue") or "")
            if not page:
                break
        version = metadata.get("resourceVersion")
        if not version:
            raise Unavailable(f"{self._client.host} answered a list without a version")
        self._version = str(version)
        self._view.replace(bodies, self._version)

    def _get_page(self, page: str) -> Answer:
        query = {**self._selector, **({"continue": page} if page else {})}
        return self._client.call("GET", PATH, query=query)

    async def _watch(self) -> None:
        """Follows one stream to its good end, or until somebody doubts what it told."""
        seconds = self._pace.watch * (1 + random.random())  # noqa: S311  # not a secret
        stream = EventStream(
            self._client,
            RESOURCE,
            PATH,
            {
                **self._selector,
                "watch": "1",
                "resourceVersion": self._version,
                "allowWatchBookmarks": "true",
                "timeoutSeconds": str(max(1, int(seconds))),
            },
        )
        failure: ClusterError | None = None
        self._is_proven = self._is_doubted = False
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._end_when_doubted, nursery.cancel_scope)
            try:
                await self._in_thread(stream.open, self._pace.silence)
                nursery.start_soon(self._prove_by_lasting)
                while (events := await self._in_thread(stream.read)) is not None:
                    for event in events:
                        self._take(event)
                if not self._is_proven:
                    raise Unavailable(f"{self._client.host} ended the watch at once")
            except ClusterError as error:
                failure = error
            finally:
                stream.close()
            nursery.cancel_scope.cancel()
        if self._is_doubted:  # only now: an event of the same turn would set the version again
            self._version = ""
        if failure is not None:
            raise failure

    def _take(self, event: Mapping[str, Json]) -> None:
        """Puts one event into the view.

        Raises:
            ClusterError: it is the end: an expired version, or another `Status`.
        """
        kind, body = event.get("type"), event.get("object")
        if not isinstance(body, dict):
            raise Unavailable(f"{self._client.host} sent an event without an object")
        if kind == "ERROR":
            code = body.get("code")
            raise said_no("watch", RESOURCE, code if isinstance(code, int) else 500, body)
        seen = ObservedSlice.from_body(body)
        match kind:
            case "ADDED" | "MODIFIED" if seen.name:
                self._view.observe(body)
            case "DELETED" if seen.name:
                self._view.drop(seen.name, seen.version)
            case "BOOKMARK":
                self._view.bookmark()
            case _:
                raise Unavailable(f"{self._client.host} sent an event of an unknown form")
        self._version = seen.version or self._version
        self._prove()

    async def _end_when_doubted(self, stream: trio.CancelScope) -> None:
        await self._view.wait_doubted()
        self._is_doubted = True
        stream.cancel()

    async def _prove_by_lasting(self) -> None:
        await trio.sleep(self._pace.short)
        self._prove()

    def _prove(self) -> None:
        """The stream works: failures are forgotten."""
        self._is_proven = True
        self._failures.clear()
        if self._trouble is not None:
            self._trouble = None
            log.info("watch.restored", host=self._client.host)

    async def _in_thread(self, work: Callable[[*Ts], T], *args: *Ts) -> T:
        return await trio.to_thread.run_sync(
            work, *args, thread_name="liken-watch", abandon_on_cancel=True, limiter=self._threads
        )
