import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import trio

from liken_events.cluster import SliceView, Unavailable
from liken_events.cluster import kubernetes as kubernetes_module
from liken_events.cluster.kubernetes import KubernetesCluster
from tests.cluster.test_kubernetes import add, created, patch
from tests.fakes.apifaults import Hold, Request
from tests.fakes.apiserver import ApiServer
from tests.fakes.kubeconfig import write_kubeconfig
from tests.fakes.slices import NODE
from tests.fakes.waiting import until


async def test_a_call_that_hangs_is_bounded_and_so_is_the_number_of_threads_it_costs(
    api: ApiServer, cluster: KubernetesCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kubernetes_module, "CALL_SECONDS", 0.1)
    hold = Hold()
    api.fail(hold, times=60)
    refused = []

    async def call() -> None:
        with pytest.raises(Unavailable, match="did not answer in time"):
            await cluster.node_uid(NODE)
        refused.append(1)

    with trio.fail_after(5):
        async with trio.open_nursery() as nursery:
            for _ in range(60):
                nursery.start_soon(call)
            await until(lambda: len(api.requests) == kubernetes_module.CALLS)
            assert await trio.to_thread.run_sync(lambda: 1) == 1  # others have their threads
    assert len(refused) == 60
    threads = [t for t in threading.enumerate() if t.name.startswith("liken-call")]
    assert len(threads) == kubernetes_module.CALLS == len(api.requests)
    api.heal()
    hold.released.set()
    uid = api.state.add_node(NODE)
    monkeypatch.setattr(kubernetes_module, "CALL_SECONDS", 10)
    assert await cluster.node_uid(NODE) == uid


async def test_watches_and_calls_do_not_wait_for_each_other(
    api: ApiServer, cluster: KubernetesCluster
) -> None:
    old = created(api, "a")
    hold = Hold()
    api.fail(hold, on=lambda request: request.method == "GET", times=3)
    views = [SliceView() for _ in range(3)]
    with trio.fail_after(5):
        async with trio.open_nursery() as nursery:
            for view in views:
                nursery.start_soon(cluster.watch_slices, NODE, view)
            await until(lambda: len(api.requests) == 3)
            new = await cluster.patch_slice(patch(old, add("b")))
            hold.released.set()
            for view in views:
                await view.latest.wait_newer(0)
                assert view.latest.get()[0].version == new.version
            await until(lambda: api.open_watches == 3)
            await cluster.patch_slice(patch(new, add("c")))
            nursery.cancel_scope.cancel()


AGENT = """
import signal, sys, trio
from liken_events.cluster import SliceView
from liken_events.cluster.kubernetes import KubernetesCluster

async def main():
    cluster = KubernetesCluster.connect(kubeconfig=sys.argv[1])
    async with trio.open_nursery() as nursery:
        with trio.open_signal_receiver(signal.SIGTERM) as signals:
            nursery.start_soon(cluster.watch_slices, "n1", SliceView())
            nursery.start_soon(cluster.node_uid, "n1")
            async for _ in signals:
                nursery.cancel_scope.cancel()
                break

trio.run(main)
"""


async def test_a_process_ends_at_once_with_a_watch_open_and_a_call_pending(
    api: ApiServer, tmp_path: Path
) -> None:
    path = write_kubeconfig(tmp_path / "kubeconfig", api.url)
    hold = Hold()
    api.fail(hold, on=lambda request: "/nodes/" in request.path, times=1000)

    def is_node(request: Request) -> bool:
        return "/nodes/" in request.path

    for turn in (1, 2):
        with subprocess.Popen(  # noqa: ASYNC220  # quickly made, and to be watched
            [sys.executable, "-W", "error", "-c", AGENT, path],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
            stderr=subprocess.PIPE,
        ) as process:
            await until(lambda: api.open_watches and api.count(is_node) == turn)  # noqa: B023
            process.send_signal(signal.SIGTERM)
            _, errors = await trio.to_thread.run_sync(lambda: process.communicate(timeout=3))
        assert (process.returncode, errors) == (0, b"")
        await until(lambda: api.open_watches == 0)
    hold.released.set()
