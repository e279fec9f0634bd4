import threading
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
import trio

from liken_events.cluster import Unavailable
from liken_events.cluster import kubernetes as kubernetes_module
from liken_events.cluster.kubernetes import CLAIM_CALLS, KubernetesCluster
from liken_events.cluster.kubernetes_access import Kubeconfig
from liken_events.core.model.claims import ClaimReference
from tests.cluster.claim_bodies import OTHER_UID, UID, claim_body
from tests.cluster.test_kubernetes import add, created, patch
from tests.fakes.apifaults import Close, Fault, Hold, Raw, Request
from tests.fakes.apirules import ApiError, lacks_right
from tests.fakes.apiserver import ApiServer
from tests.fakes.kubeconfig import write_kubeconfig
from tests.fakes.slices import NODE, device_names
from tests.fakes.waiting import until

CAMERA = ClaimReference(namespace="default", name="camera", uid=UID)


def is_claim(request: Request) -> bool:
    return request.is_claim


def is_patch(request: Request) -> bool:
    return request.method == "PATCH"


async def test_a_claim_is_the_whole_object(api: ApiServer, cluster: KubernetesCluster) -> None:
    stored = api.state.add_claim(claim_body("a", "b"))
    api.state.add_claim(claim_body("c", namespace="other", uid=OTHER_UID))
    assert await cluster.read_claim(CAMERA) == stored
    assert stored["status"] == claim_body("a", "b")["status"]
    (request,) = api.requests
    assert (request.method, request.path) == (
        "GET",
        "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims/camera",
    )
    assert request.headers["accept"] == "application/json"


async def test_a_claim_is_read_as_it_is_now_each_time(
    api: ApiServer, cluster: KubernetesCluster
) -> None:
    assert await cluster.read_claim(CAMERA) is None
    first = api.state.add_claim(claim_body())
    assert await cluster.read_claim(CAMERA) == first
    second = api.state.add_claim(claim_body("a"))
    assert await cluster.read_claim(CAMERA) == second
    del api.state.claims["default", "camera"]
    assert await cluster.read_claim(CAMERA) is None
    assert api.connections == 1


async def test_a_claim_that_was_made_anew_is_handed_on(
    api: ApiServer, cluster: KubernetesCluster
) -> None:
    stored = api.state.add_claim(claim_body(uid=OTHER_UID))
    assert await cluster.read_claim(CAMERA) == stored


@pytest.mark.parametrize(
    ("fault", "reason", "wait"),
    [
        (ApiError(401, "Unauthorized", "Unauthorized"), "credentials are not accepted", 0),
        (
            lacks_right("get", "resourceclaims", "resource.k8s.io", "camera"),
            "not allowed to get resourceclaims (RBAC: verb get, resource resourceclaims): ",
            0,
        ),
        (
            ApiError(404, "NotFound", "the server could not find the requested resource"),
            "cannot get resourceclaims: this server does not have them",
            None,
        ),
        (
            Raw(body=b"404 page not found\n", status=404, content_type="text/plain"),
            "cannot get resourceclaims: this server does not have them",
            None,
        ),
        (
            Raw(body=b"<html>nginx</html>", status=404, content_type="text/html"),
            "cannot get resourceclaims: this server does not have them",
            None,
        ),
        (ApiError(400, "BadRequest", "odd"), "cannot get resourceclaims (400): odd", None),
        (ApiError(409, "Conflict", "odd"), "cannot get resourceclaims (409): odd", None),
        (
            ApiError(429, "TooManyRequests", "slowly", headers={"Retry-After": "7"}),
            "cannot get resourceclaims (429): slowly",
            7,
        ),
        (ApiError(500, "InternalError", "etcd"), "cannot get resourceclaims (500): etcd", None),
        (Raw(body=b"", status=302, headers={"Location": "/login"}), "(302)", None),
        (Close(), "broke", None),
        (Raw(body=b""), "the server answered something that is no claim", None),
        (Raw(body=b"[]"), "no claim", None),
        (Raw(body=b'{"kind": "Status"}'), "no claim", None),
        (Raw(body=b'{"kind": "ResourceClaimList", "items": []}'), "no claim", None),
    ],
    ids=lambda value: repr(value)[:40],
)
async def test_whatever_is_no_answer_about_the_claim_is_no_end_of_it(
    api: ApiServer, cluster: KubernetesCluster, fault: Fault, reason: str, wait: float | None
) -> None:
    stored = api.state.add_claim(claim_body())
    api.fail(fault)
    with pytest.raises(Unavailable) as caught:
        await cluster.read_claim(CAMERA)
    assert reason in caught.value.reason
    assert caught.value.retry_after == wait
    assert await cluster.read_claim(CAMERA) == stored


async def test_a_server_that_is_away_is_unavailable(
    api: ApiServer, cluster: KubernetesCluster
) -> None:
    api.stop()
    with pytest.raises(Unavailable, match="no connection to"):
        await cluster.read_claim(CAMERA)


@pytest.mark.parametrize(
    "name", ["", ".", "..", "../../v1/nodes", "a/b", "a?x=y", "a#b", "%2e%2e", "a\r\nb", "A", "ä"]
)
async def test_a_name_cannot_lead_elsewhere(
    api: ApiServer, cluster: KubernetesCluster, name: str
) -> None:
    assert await cluster.read_claim(replace(CAMERA, name=name)) is None
    assert await cluster.read_claim(replace(CAMERA, namespace=name)) is None
    assert api.requests == []


async def test_an_unanswered_read_ends_within_its_bound(
    api: ApiServer, cluster: KubernetesCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert kubernetes_module.CLAIM_SECONDS <= 20
    monkeypatch.setattr(kubernetes_module, "CLAIM_SECONDS", 0.1)
    hold = Hold()
    api.fail(hold, times=100)
    refused = []

    async def read(name: str) -> None:
        with pytest.raises(Unavailable, match="did not answer in time"):
            await cluster.read_claim(replace(CAMERA, name=name))
        refused.append(name)

    with trio.fail_after(5):
        async with trio.open_nursery() as nursery:
            for number in range(60):
                nursery.start_soon(read, f"c{number}")
            await until(lambda: len(api.requests) == CLAIM_CALLS)
            assert await trio.to_thread.run_sync(lambda: 1) == 1  # others have their threads
    assert len(refused) == 60
    threads = [t for t in threading.enumerate() if t.name.startswith("liken-claim")]
    assert len(threads) == CLAIM_CALLS == len(api.requests)
    api.heal()
    hold.released.set()
    stored = api.state.add_claim(claim_body())
    monkeypatch.setattr(kubernetes_module, "CLAIM_SECONDS", 10)
    assert await cluster.read_claim(CAMERA) == stored


async def test_a_thread_does_not_wait_much_longer_than_who_asked(
    api: ApiServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert kubernetes_module.CLAIM_ANSWER_SECONDS < kubernetes_module.CLAIM_SECONDS
    monkeypatch.setattr(kubernetes_module, "CLAIM_ANSWER_SECONDS", 0.05)
    path = write_kubeconfig(tmp_path / "kubeconfig", api.url)
    hold = Hold()
    api.fail(hold)
    refused = pytest.raises(Unavailable, match="did not answer in time")
    with closing(KubernetesCluster(Kubeconfig(path=path))) as cluster, trio.fail_after(5), refused:
        await cluster.read_claim(CAMERA)
    hold.released.set()


async def test_sixteen_claims_are_read_at_a_time(
    api: ApiServer, cluster: KubernetesCluster
) -> None:
    expected = {}
    for number in range(CLAIM_CALLS):
        name = f"c{number}"
        expected[name] = api.state.add_claim(claim_body(name=name))
    hold = Hold()
    api.fail(hold, on=is_claim, times=CLAIM_CALLS)
    found = {}

    async def read(name: str) -> None:
        found[name] = await cluster.read_claim(replace(CAMERA, name=name))

    with trio.fail_after(10):
        async with trio.open_nursery() as nursery:
            for name in expected:
                nursery.start_soon(read, name)
            await until(lambda: api.count(is_claim) == CLAIM_CALLS)
            hold.released.set()
    assert found == expected
    assert len(found) == 16


async def test_slices_are_written_while_all_claim_reads_hang(
    api: ApiServer, cluster: KubernetesCluster
) -> None:
    old = created(api, "a")
    uid = api.state.add_node(NODE)
    hold = Hold()
    api.fail(hold, on=is_claim, times=100)
    with trio.fail_after(5):
        async with trio.open_nursery() as nursery:
            for _ in range(2 * CLAIM_CALLS):
                nursery.start_soon(cluster.read_claim, CAMERA)
            await until(lambda: api.count(is_claim) == CLAIM_CALLS)
            await cluster.patch_slice(patch(old, add("b")))
            assert await cluster.node_uid(NODE) == uid
            nursery.cancel_scope.cancel()
    assert device_names(api.state.slice(old.name)) == ["a", "b"]
    hold.released.set()


async def test_claims_are_read_while_all_writes_of_slices_hang(
    api: ApiServer, cluster: KubernetesCluster
) -> None:
    old = created(api, "a")
    stored = api.state.add_claim(claim_body())
    hold = Hold()
    api.fail(hold, on=is_patch, times=100)
    with trio.fail_after(5):
        async with trio.open_nursery() as nursery:
            for _ in range(2 * kubernetes_module.CALLS):
                nursery.start_soon(cluster.patch_slice, patch(old, add("b")))
            await until(lambda: api.count(is_patch) == kubernetes_module.CALLS)
            for _ in range(CLAIM_CALLS):
                assert await cluster.read_claim(CAMERA) == stored
            nursery.cancel_scope.cancel()
    hold.released.set()


async def test_after_trouble_no_connection_from_before_is_used(
    api: ApiServer, cluster: KubernetesCluster
) -> None:
    stored = api.state.add_claim(claim_body())
    hold = Hold()
    api.fail(hold, on=is_claim, times=3)
    with trio.fail_after(10):
        async with trio.open_nursery() as nursery:
            for _ in range(3):
                nursery.start_soon(cluster.read_claim, CAMERA)
            await until(lambda: api.count(is_claim) == 3)
            hold.released.set()
        assert await cluster.read_claim(CAMERA) == stored
        assert api.connections == 3
        api.fail(Close())
        with pytest.raises(Unavailable, match="broke"):
            await cluster.read_claim(CAMERA)
        assert await cluster.read_claim(CAMERA) == stored
    assert api.connections == 4
