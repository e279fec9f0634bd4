"""What claims cost: from a re-enumerated device to the CDI spec, and the kubelet's prepare calls.

A container that is restarted gets what the spec says at that moment, and a pod waits for its claim
to be prepared before anything else is done for it.

This file prepares a hundred claims by gRPC, as the kubelet does, replugs the device of one of them
under another number and takes the time to the rename of its spec; then it prepares one claim many
times, and hundreds at a time.
"""

import http.client
import json
import os
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Self
from urllib.parse import urlsplit

import grpc
from inotify_simple import INotify, flags

from bench.agent_process import NODE, AgentProcess
from bench.crowd import stick
from bench.effort import Effort
from bench.idle import WORKERS_END_SECONDS
from bench.measurement import Measurement, measured
from bench.trees import Trees
from liken_events._generated import dra_v1_pb2 as dra
from liken_events.core.model.names import device_name
from liken_events.core.timing import Timing
from liken_events.rpc import WORKERS
from liken_events.simulate.tree import MachineTree
from liken_events.simulate.uevents import UeventSender
from tests.fakes.apifaults import Hold
from tests.fakes.apiserver import ApiServer
from tests.fakes.claims import claim_body
from tests.fakes.kubeconfig import write_kubeconfig

GROUP = "claims"
DEVICES = 100
CLAIMS = 100
REFRESH_BOUND = 0.020
"""Seconds beyond the settle time, with a hundred prepared claims of which one is concerned."""

PREPARE_BOUND = 0.015
"""Seconds beyond what the API server itself takes to answer for the claim."""

CALLS = 500
AT_ONCE = 16
ARRIVAL_SECONDS = 1.0
"""Until so many calls as there are threads have come to the agent; they take milliseconds."""

CALL_SECONDS = 45.0
"""The kubelet's own bound."""

PAUSE_SECONDS = 0.3
"""Between two replugs: the slice is patched after the spec."""

PREPARE = "/k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin/NodePrepareResources"
UNPREPARE = "/k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin/NodeUnprepareResources"


def measure(trees: Trees, effort: Effort) -> Iterator[Measurement]:
    """All numbers of this group."""
    tree, directory = trees.machine(DEVICES), trees.directory()
    kubelet = os.path.join(directory, "kubelet")
    os.makedirs(os.path.join(kubelet, "plugins_registry"))
    plugins = ("--device-plugin-dir", os.path.join(kubelet, "device-plugins"))
    specs = os.path.join(directory, "cdi")
    os.makedirs(specs)
    with ApiServer() as api:
        api.state.add_node(NODE)
        kubeconfig = write_kubeconfig(Path(trees.root) / "kubeconfig-claims", api.url)
        options = ("--kubelet", "on", "--kubelet-dir", kubelet, "--cdi-dir", specs, *plugins)
        with AgentProcess(tree, directory, options, kubeconfig=kubeconfig) as agent:
            with Plugin(os.path.join(kubelet, "plugins/liken.sh/dra.sock")) as plugin:
                yield from _refreshes(api, plugin, tree, specs, effort)
                yield from _prepares(api, plugin, tree, effort)
                yield from _many(api, agent, plugin, tree)
            yield measured(GROUP, "resident memory afterwards", "MB", [agent.resident()])


class Plugin:
    """The kubelet's side of the driver's socket. Use as a context manager."""

    def __init__(self, path: str) -> None:
        until = time.monotonic() + 30
        while not os.path.exists(path):
            if time.monotonic() > until:
                raise TimeoutError(f"there is no {path} after 30 s")
            time.sleep(0.01)
        self._channel = grpc.insecure_channel(
            f"unix:{path}", options=[("grpc.default_authority", "localhost")]
        )
        self._prepare = self._channel.unary_unary(
            PREPARE,
            request_serializer=dra.NodePrepareResourcesRequest.SerializeToString,
            response_deserializer=dra.NodePrepareResourcesResponse.FromString,
        )
        self._unprepare = self._channel.unary_unary(
            UNPREPARE,
            request_serializer=dra.NodeUnprepareResourcesRequest.SerializeToString,
            response_deserializer=dra.NodeUnprepareResourcesResponse.FromString,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._channel.close()

    def prepare(self, body: dict[str, Any]) -> str:
        """Prepares one claim; the error, or `""`."""
        request = dra.NodePrepareResourcesRequest(claims=[_claim(body)])
        answer = self._prepare(request, timeout=CALL_SECONDS)
        error: str = answer.claims[body["metadata"]["uid"]].error
        return error

    def unprepare(self, body: dict[str, Any]) -> None:
        """Ends one claim."""
        request = dra.NodeUnprepareResourcesRequest(claims=[_claim(body)])
        answer = self._unprepare(request, timeout=CALL_SECONDS)
        assert not answer.claims[body["metadata"]["uid"]].error


def _claim(body: dict[str, Any]) -> dra.Claim:
    metadata = body["metadata"]
    return dra.Claim(namespace=metadata["namespace"], name=metadata["name"], uid=metadata["uid"])


def _claims(api: ApiServer, devices: Sequence[str], start: str) -> list[dict[str, Any]]:
    """A claim for each of these devices, which the API server has too."""
    bodies = [
        claim_body(device, name=f"{start}-{index}", pool=NODE)
        for index, device in enumerate(devices)
    ]
    for body in bodies:
        api.state.add_claim(body)
    return bodies


def _shared(tree: MachineTree) -> str:
    """A render node, which any number of claims may have."""
    for device in tree.snapshot.devices:
        if any(node.path.startswith("/dev/dri/renderD") for node in device.nodes):
            return device_name(device.key)
    raise LookupError("no device of the machine can be shared")


def _refreshes(
    api: ApiServer,
    plugin: Plugin,
    tree: MachineTree,
    specs: str,
    effort: Effort,
) -> Iterator[Measurement]:
    adapter = stick(0, 1)
    address = adapter.key.address.partition(":")[0]
    assert adapter.bus_node is not None
    before = int(adapter.bus_node.path.rpartition("/")[2])
    bodies = _claims(api, [device_name(adapter.key), *[_shared(tree)] * (CLAIMS - 1)], "held")
    for body in bodies:
        error = plugin.prepare(body)
        assert not error, error
    path = os.path.join(specs, f"liken.sh-{bodies[0]['metadata']['uid']}.json")
    took = []
    with UeventSender() as sender, INotify() as inotify:
        inotify.add_watch(specs, flags.MOVED_TO)
        for turn in range(effort.repeats):
            time.sleep(PAUSE_SECONDS)
            number = 101 + turn % 2
            sender.send(tree.renumber(address, number))
            sent = time.monotonic()
            while f'/{number:03d}"' not in Path(path).read_text("utf-8"):
                assert inotify.read(timeout=30_000), "the spec did not follow"
            took.append(time.monotonic() - sent - Timing().quiet)
        sender.send(tree.renumber(address, before))
    time.sleep(Timing().quiet + PAUSE_SECONDS)
    for body in bodies:
        plugin.unprepare(body)
    yield measured(
        GROUP,
        f"bind of a re-enumerated device to its spec, {CLAIMS} claims, beyond the settle time",
        "ms",
        took,
        bound=REFRESH_BOUND * 1000,
        scale=1000,
    )


def _prepares(
    api: ApiServer, plugin: Plugin, tree: MachineTree, effort: Effort
) -> Iterator[Measurement]:
    body = _claims(api, [_shared(tree)], "one")[0]
    asked, took = [], []
    for _ in range(effort.repeats):
        asked.append(_ask(api, body))
        began = time.monotonic()
        error = plugin.prepare(body)
        took.append(time.monotonic() - began)
        assert not error, error
        plugin.unprepare(body)
    yield measured(GROUP, "the API server's own answer for a claim", "ms", asked, scale=1000)
    yield measured(
        GROUP,
        "prepare of one claim, beyond that answer",
        "ms",
        [whole - own for whole, own in zip(took, asked, strict=True)],
        bound=PREPARE_BOUND * 1000,
        scale=1000,
    )


def _ask(api: ApiServer, body: dict[str, Any]) -> float:
    """Seconds that the API server takes to answer for a claim, on a connection that is open."""
    metadata = body["metadata"]
    path = (
        "/apis/resource.k8s.io/v1/namespaces/"
        f"{metadata['namespace']}/resourceclaims/{metadata['name']}"
    )
    where = urlsplit(api.url)
    connection = http.client.HTTPConnection(where.hostname or "", where.port)
    try:
        connection.connect()
        began = time.monotonic()
        connection.request("GET", path)
        answer = json.load(connection.getresponse())
        took = time.monotonic() - began
    finally:
        connection.close()
    assert answer["metadata"]["uid"] == metadata["uid"]
    return took


def _have_all_workers(api: ApiServer, plugin: Plugin, tree: MachineTree) -> None:
    """Has the agent start every thread that its server may have. A thread that has sent an answer
    is not free at once, and the next call may get a new one until there are all of them; what is
    left after that is left for good."""
    bodies = _claims(api, [_shared(tree)] * WORKERS, "workers")
    held = Hold()
    api.fail(held, on=lambda request: "/resourceclaims/" in request.path, times=WORKERS)
    with ThreadPoolExecutor(WORKERS) as pool:
        calls = [pool.submit(plugin.prepare, body) for body in bodies]
        time.sleep(ARRIVAL_SECONDS)
        held.released.set()
        errors = [error for call in calls if (error := call.result())]
    api.heal()
    assert not errors, errors
    for body in bodies:
        plugin.unprepare(body)


def _many(
    api: ApiServer, agent: AgentProcess, plugin: Plugin, tree: MachineTree
) -> Iterator[Measurement]:
    """Hundreds of calls, several at a time, twice: what the first round left must do for the
    second."""
    _have_all_workers(api, plugin, tree)
    threads, errors, took = [], 0, []
    with ThreadPoolExecutor(AT_ONCE) as pool:
        for turn in range(2):
            bodies = _claims(api, [_shared(tree)] * CALLS, f"many-{turn}")
            began = time.monotonic()
            errors += sum(bool(error) for error in pool.map(plugin.prepare, bodies))
            took.append(time.monotonic() - began)
            list(pool.map(plugin.unprepare, bodies))
            time.sleep(WORKERS_END_SECONDS)
            threads.append(agent.threads())
    what = f"{CALLS} prepare calls, {AT_ONCE} at a time"
    yield measured(GROUP, what, "ms", took, scale=1000)
    yield measured(GROUP, f"{what}: errors", "calls", [errors], bound=0)
    growth = threads[1] - threads[0]
    yield measured(GROUP, f"{what}: threads left by a second round", "threads", [growth], bound=0)
