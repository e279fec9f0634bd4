"""A Kubernetes API server as the home of slices and claims.

The server answers a change with the whole object, 50 KB for a full slice; asked for its metadata
alone it answers with 500 bytes. It refuses a change for many reasons that pass, and for a few that
do not.

This file sends the agent's short calls. Each runs in a worker thread with a bound, and the threads
are bounded in number, so that a server that hangs costs a few threads and nothing else. Reading
claims has connections and threads of its own: many pods may start while slices are written, and
neither waits for the other. How the server is reached is `cluster.kubernetes_access`, what answers
mean `cluster.kubernetes_answer`, following slices `cluster.kubernetes_watch`. Only the agent
imports this module, and only if there is a cluster: the client library behind it takes 20 MB.
"""

import json
import os
from collections.abc import Callable, Mapping
from functools import partial
from typing import Self
from urllib.parse import quote

import trio

from liken_events.cluster import ClusterError, SliceView, Unavailable, Unreachable
from liken_events.cluster.claim_names import is_claim_name, is_namespace
from liken_events.cluster.comeback import Comeback
from liken_events.cluster.kubernetes_access import (
    ANSWER_SECONDS,
    CONNECT_SECONDS,
    Client,
    InCluster,
    Kubeconfig,
    Load,
)
from liken_events.cluster.kubernetes_answer import Answer, refusal
from liken_events.cluster.kubernetes_watch import PATH, RESOURCE, THREADS, Follower, Pace
from liken_events.core.model.claims import KIND, ClaimReference
from liken_events.core.model.json import Json
from liken_events.core.plan.slices import CreateSlice, DeleteSlice, ObservedSlice, PatchSlice

CALLS = 4
"""Short calls at a time, and connections kept for them. There are two callers: a write of slices
and a look at the Node; two places may be taken by calls that hang."""

CALL_SECONDS = CONNECT_SECONDS + ANSWER_SECONDS + 5.0
"""Bound for a whole call, waiting for a thread included; an answer that trickles never ends by the
other two."""

CLAIMS_PATH = "/apis/resource.k8s.io/v1/namespaces/{namespace}/resourceclaims/{name}"
CLAIMS = "resourceclaims"

CLAIM_CALLS = 16
"""Claims read at a time, and connections kept for them: as many as there are prepare calls at a
time. Each reads one claim after the other."""

CLAIM_ANSWER_SECONDS = 8.0
"""As `ANSWER_SECONDS`, and shorter: the kubelet waits for its own answer, and a server that died
without a word is found again by a second try. Kubernetes' own objective for reading one object is
1 s (99th percentile)."""

CLAIM_SECONDS = CONNECT_SECONDS + CLAIM_ANSWER_SECONDS
"""Bound for reading a claim, waiting for a thread included. A thread that was given up is free
again soon after."""

METADATA_ONLY = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json"
"""What is wanted as an answer; the second part is for servers that know no first."""

JSON = "application/json"
JSON_PATCH = "application/json-patch+json"


class KubernetesCluster:
    """An API server. One task at a time writes; any may call.

    Attributes:
        has_nodes: True.
    """

    has_nodes = True

    def __init__(self, load: Load, *, pace: Pace | None = None) -> None:
        """Reads the configuration; sends nothing.

        Args:
            load: how to read it, also later.
            pace: other times for following slices than the usual ones.

        Raises:
            BadConfiguration: it is no use; the reason names the file.
        """
        self._calls = Client(load, connections=CALLS)
        self._watches = Client(load, connections=THREADS)
        self._threads = trio.CapacityLimiter(CALLS)
        self._claims = Client(load, connections=CLAIM_CALLS, answer_seconds=CLAIM_ANSWER_SECONDS)
        self._claim_threads = trio.CapacityLimiter(CLAIM_CALLS)
        self._pace = pace if pace is not None else Pace()
        self._comeback = Comeback()

    @classmethod
    def connect(
        cls,
        *,
        kubeconfig: str | None = None,
        context: str | None = None,
        environ: Mapping[str, str] = os.environ,
    ) -> Self:
        """The API server that a kubeconfig names, or the one that runs our pod.

        Args:
            kubeconfig: a path, or several with `:` between them; None for the pod's own.
            context: one of the kubeconfig's contexts; None for its current one.
            environ: where a pod finds its server's address.

        Raises:
            BadConfiguration: the configuration is no use; the reason names the file.
        """
        if kubeconfig is None:
            return cls(InCluster(environ=environ))
        return cls(Kubeconfig(path=kubeconfig, context=context))

    @property
    def description(self) -> str:
        """See `Cluster.description`."""
        return f"Kubernetes at {self._calls.host}"

    async def node_uid(self, node: str) -> str | None:
        """See `Cluster.node_uid`."""
        answer = await self._call("GET", f"/api/v1/nodes/{quote(node, safe='')}")
        if answer.status == 200:
            return _stored(answer, {}).uid or None
        if answer.is_missing:
            return None
        raise self._refused("get", "nodes", answer)

    async def watch_slices(
        self,
        node: str,
        view: SliceView,
        *,
        task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        """See `Cluster.watch_slices`."""
        follower = Follower(self._watches, node, view, self._pace, self._comeback)
        await follower.run(task_status)

    async def create_slice(self, change: CreateSlice) -> ObservedSlice:
        """See `Cluster.create_slice`."""
        answer = await self._call("POST", PATH, change.body)
        if answer.status not in (200, 201):
            raise self._refused("create", RESOURCE, answer)
        return _stored(answer, change.body)

    async def patch_slice(self, change: PatchSlice) -> ObservedSlice:
        """See `Cluster.patch_slice`."""
        path = _path(change.name)
        answer = await self._call("PATCH", path, list(change.operations), JSON_PATCH)
        if answer.status != 200:
            raise self._refused("patch", RESOURCE, answer)
        return _stored(answer, change.body)

    async def delete_slice(self, change: DeleteSlice) -> None:
        """See `Cluster.delete_slice`."""
        preconditions: dict[str, Json] = {"uid": change.uid, "resourceVersion": change.version}
        options: dict[str, Json] = {
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "preconditions": preconditions,
        }
        answer = await self._call("DELETE", _path(change.name), options)
        if answer.status not in (200, 202) and not answer.is_missing:
            raise self._refused("delete", RESOURCE, answer)

    async def read_claim(self, reference: ClaimReference) -> Mapping[str, Json] | None:
        """See `Cluster.read_claim`."""
        namespace, name = reference.namespace, reference.name
        if not is_namespace(namespace) or not is_claim_name(name):
            return None  # it is not, and asking for it may be asking for something else
        path = CLAIMS_PATH.format(namespace=namespace, name=name)
        answer = await self._answer(
            partial(self._get_claim, path),
            seconds=CLAIM_SECONDS,
            threads=self._claim_threads,
            thread_name="liken-claim",
        )
        if answer.is_missing:
            return None
        if answer.status != 200:
            refused = self._refused("get", CLAIMS, answer)
            raise refused if isinstance(refused, Unavailable) else Unavailable(refused.reason)
        body = answer.json()
        if body.get("kind") != KIND:
            raise Unavailable("the server answered something that is no claim")
        return body

    def close(self) -> None:
        """Closes idle connections. Calls that are under way go on."""
        for client in (self._calls, self._watches, self._claims):
            client.close()

    def _get_claim(self, path: str) -> Answer:
        try:
            return self._claims.call("GET", path)
        except Unavailable:
            self._claims.close()  # those that are kept may be as dead, and each would be tried
            raise

    async def _call(
        self,
        method: str,
        path: str,
        body: Mapping[str, Json] | list[Json] | None = None,
        content_type: str = JSON,
    ) -> Answer:
        """Sends one request. Raises Unavailable if no answer comes."""

        def call() -> Answer:
            return self._calls.call(
                method,
                path,
                body=None if body is None else json.dumps(body, separators=(",", ":")).encode(),
                content_type=content_type,
                accept=METADATA_ONLY,
            )

        return await self._answer(
            call, seconds=CALL_SECONDS, threads=self._threads, thread_name="liken-call"
        )

    async def _answer(
        self,
        call: Callable[[], Answer],
        *,
        seconds: float,
        threads: trio.CapacityLimiter,
        thread_name: str,
    ) -> Answer:
        """Calls from a worker thread. Raises Unavailable if that takes too long."""
        with trio.move_on_after(seconds):
            try:
                answer = await trio.to_thread.run_sync(
                    call, thread_name=thread_name, abandon_on_cancel=True, limiter=threads
                )
            except Unreachable:
                self._comeback.lost()
                raise
            self._comeback.answered()
            return answer
        self._comeback.lost()
        raise Unreachable(f"{self._calls.host} did not answer in time")

    def _refused(self, verb: str, resource: str, answer: Answer) -> ClusterError:
        return self._comeback.judged(refusal(verb, resource, answer))


def _path(name: str) -> str:
    return f"{PATH}/{quote(name, safe='')}"


def _stored(answer: Answer, sent: Mapping[str, Json]) -> ObservedSlice:
    """What the server holds now: what it answered, or if that is metadata only, what was sent
    with this metadata. Fields that it dropped are then told by the watch."""
    body = answer.json()
    if body.get("kind") == "PartialObjectMetadata":
        body = {**sent, "metadata": body.get("metadata")}
    stored = ObservedSlice.from_body(body)
    if not stored.version:
        raise Unavailable("the server answered something that is no object")
    return stored
