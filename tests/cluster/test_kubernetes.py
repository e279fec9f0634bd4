import itertools
import json
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
import trio

from liken_events.cluster import (
    Cause,
    Cluster,
    ClusterError,
    Conflict,
    Forbidden,
    Rejected,
    SliceView,
    Unavailable,
    Unreachable,
    comeback,
)
from liken_events.cluster.kubernetes import KubernetesCluster
from liken_events.core.model.device import PublishedDevice
from liken_events.core.model.json import Json
from liken_events.core.model.snapshot import Key
from liken_events.core.plan.slices import (
    CreateSlice,
    DeleteSlice,
    Observed,
    ObservedSlice,
    PatchSlice,
    plan,
)
from tests.cluster.following import add_device
from tests.fakes.apifaults import Close, Fault, Raw
from tests.fakes.apirules import ApiError, denial, lacks_right
from tests.fakes.apiserver import ApiServer
from tests.fakes.kubeconfig import write_kubeconfig
from tests.fakes.slices import NAME, NODE, device_names, slice_body
from tests.fakes.waiting import until

Call = Callable[[Cluster], Awaitable[object]]


def created(api: ApiServer, *devices: str) -> ObservedSlice:
    return ObservedSlice.from_body(api.state.create(slice_body(*devices)))


def patch(old: ObservedSlice, *operations: Json) -> PatchSlice:
    lock: Json = {"op": "replace", "path": "/metadata/resourceVersion", "value": old.version}
    return PatchSlice(
        name=old.name,
        uid=old.uid,
        version=old.version,
        operations=(lock, *operations),
        body={**old.body, "spec": {"changed": True}},
    )


def add(name: str, **more: Json) -> Json:
    return {"op": "add", "path": "/spec/devices/-", "value": {"name": name, **more}}


STALE = ObservedSlice(name=NAME, uid="u", version="1", body={})
CALLS: dict[str, Call] = {
    "get nodes": lambda cluster: cluster.node_uid(NODE),
    "create resourceslices": lambda cluster: cluster.create_slice(
        CreateSlice(name=NAME, body=slice_body("a"))
    ),
    "patch resourceslices": lambda cluster: cluster.patch_slice(patch(STALE)),
    "delete resourceslices": lambda cluster: cluster.delete_slice(
        DeleteSlice(name=NAME, uid="u", version="1")
    ),
}
every_call = pytest.mark.parametrize("tried", CALLS)


async def test_the_uid_of_a_node_is_that_of_its_object(
    api: ApiServer, cluster: KubernetesCluster
) -> None:
    uid = api.state.add_node(NODE)
    assert await cluster.node_uid(NODE) == uid
    assert await cluster.node_uid("unknown") is None


async def test_a_created_slice_is_what_was_sent_with_what_the_server_added(
    api: ApiServer, cluster: KubernetesCluster
) -> None:
    body = slice_body("a", "b")
    made = await cluster.create_slice(CreateSlice(name=NAME, body=body))
    assert made == ObservedSlice.from_body(api.state.slice(NAME))
    assert "as=PartialObjectMetadata" in api.requests[0].headers["accept"]
    assert json.loads(api.requests[0].body) == body


async def test_a_patched_slice_is_what_the_patch_leads_to_with_the_new_version(
    api: ApiServer, cluster: KubernetesCluster
) -> None:
    old = created(api, "a")
    change = patch(old, add("b"))
    new = await cluster.patch_slice(change)
    stored = api.state.slice(NAME)
    assert device_names(stored) == ["a", "b"]
    assert new.version == stored["metadata"]["resourceVersion"]
    assert new.uid == old.uid
    assert new.body == {**change.body, "metadata": stored["metadata"]}
    assert api.requests[0].headers["content-type"] == "application/json-patch+json"
    assert json.loads(api.requests[0].body) == list(change.operations)


async def test_a_server_that_answers_with_the_whole_object_is_understood(
    api: ApiServer, cluster: KubernetesCluster
) -> None:
    api.answers_metadata_only = False
    api.state.drops_multiple_allocations = True
    body = slice_body()
    body["spec"]["devices"] = [{"name": "a", "allowMultipleAllocations": True}]  # type: ignore[index, call-overload]
    made = await cluster.create_slice(CreateSlice(name=NAME, body=body))
    assert made.body == api.state.slice(NAME)
    assert (await cluster.patch_slice(patch(made, add("b")))).body == api.state.slice(NAME)


async def test_a_change_of_one_device_is_one_small_request_and_one_small_answer(
    api: ApiServer, cluster: KubernetesCluster
) -> None:
    old = created(api, *(f"device-{index}" for index in range(100)))
    await cluster.patch_slice(patch(old, add("b")))
    assert len(api.requests) == 1
    assert api.requests[0].size < 700


async def test_a_slice_that_exists_already_is_a_conflict(
    api: ApiServer, cluster: KubernetesCluster
) -> None:
    created(api, "theirs")
    with pytest.raises(Conflict, match="already exists"):
        await cluster.create_slice(CreateSlice(name=NAME, body=slice_body("ours")))
    assert device_names(api.state.slice(NAME)) == ["theirs"]


async def test_a_patch_of_what_changed_meanwhile_is_a_conflict_and_changes_nothing(
    api: ApiServer, cluster: KubernetesCluster
) -> None:
    old = created(api, "a")
    add_device(api, "theirs")
    with pytest.raises(Conflict, match="has been modified"):
        await cluster.patch_slice(patch(old, add("ours")))
    assert device_names(api.state.slice(NAME)) == ["a", "theirs"]


async def test_a_patch_of_what_is_gone_is_a_conflict(
    api: ApiServer, cluster: KubernetesCluster
) -> None:
    old = created(api, "a")
    api.state.delete(NAME)
    with pytest.raises(Conflict, match="not found"):
        await cluster.patch_slice(patch(old, add("b")))


async def test_a_patch_that_does_not_fit_is_rejected_without_a_cause(
    api: ApiServer, cluster: KubernetesCluster
) -> None:
    old = created(api, "a")
    with pytest.raises(Rejected) as caught:
        await cluster.patch_slice(patch(old, {"op": "remove", "path": "/spec/devices/7"}))
    assert caught.value.causes == ()


async def test_what_is_invalid_is_named_by_field(
    api: ApiServer, cluster: KubernetesCluster
) -> None:
    old = created(api, "a")
    long = add("b", attributes={"words": {"string": "\u00e4" * 33}})
    with pytest.raises(Rejected) as caught:
        await cluster.patch_slice(patch(old, long, add("Bad_Name")))
    assert [cause.field for cause in caught.value.causes] == [
        "spec.devices[1].attributes[words].string",
        "spec.devices[2].name",
    ]
    assert caught.value.causes[0] == Cause(
        field="spec.devices[1].attributes[words].string",
        message="Too long: may not be more than 64 bytes",
    )


async def test_only_the_slice_that_was_seen_is_deleted(
    api: ApiServer, cluster: KubernetesCluster
) -> None:
    old = created(api, "a")
    add_device(api, "theirs")
    delete = DeleteSlice(name=NAME, uid=old.uid, version=old.version)
    with pytest.raises(Conflict):
        await cluster.delete_slice(delete)
    now = ObservedSlice.from_body(api.state.slice(NAME))
    with pytest.raises(Conflict):
        await cluster.delete_slice(DeleteSlice(name=NAME, uid="other", version=now.version))
    await cluster.delete_slice(DeleteSlice(name=NAME, uid=now.uid, version=now.version))
    assert api.state.slices == {}


async def test_deleting_what_is_gone_is_done(cluster: KubernetesCluster) -> None:
    await cluster.delete_slice(DeleteSlice(name=NAME, uid="u", version="1"))


@every_call
@pytest.mark.parametrize(
    ("fault", "wait"),
    [
        (ApiError(401, "Unauthorized", "Unauthorized"), 0),
        (ApiError(403, "Forbidden", "denied"), 0),
        (ApiError(429, "TooManyRequests", "slowly", headers={"Retry-After": "7"}), 7),
        (ApiError(500, "InternalError", "etcd"), None),
        (ApiError(503, "ServiceUnavailable", "", headers={"Retry-After": "2"}), 2),
        (ApiError(504, "Timeout", "", details={"retryAfterSeconds": 1}), 1),
        (Close(), None),
        (Raw(body=b"<html>", status=502, content_type="text/html"), None),
        (Raw(body=b"404 page not found\n", status=404, content_type="text/plain"), None),
        (ApiError(404, "NotFound", "the server could not find the requested resource"), None),
    ],
    ids=lambda value: repr(value)[:30],
)
async def test_what_passes_is_told_from_what_is_final(
    api: ApiServer, cluster: KubernetesCluster, tried: str, fault: Fault, wait: float | None
) -> None:
    """A server that was just found may know our rights in a moment: 401, 403."""
    api.fail(fault)
    with pytest.raises(Unavailable) as caught:
        await CALLS[tried](cluster)
    assert caught.value.retry_after == wait


async def test_a_server_that_was_away_is_given_time_to_know_our_rights(
    api: ApiServer, cluster: KubernetesCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def wait() -> float | None:
        api.fail(lacks_right("get", "nodes"))
        with pytest.raises(Forbidden) as caught:
            await cluster.node_uid(NODE)
        return caught.value.retry_after

    monkeypatch.setattr(comeback, "YOUNG_SECONDS", 0.0)
    assert await wait() is None
    monkeypatch.setattr(comeback, "YOUNG_SECONDS", 60.0)
    assert await wait() is None, "it was there all the time"
    api.fail(Close())
    with pytest.raises(Unreachable):
        await cluster.node_uid(NODE)
    assert await wait() == 0.0


@every_call
async def test_a_lack_of_rights_names_the_right(
    api: ApiServer, cluster: KubernetesCluster, tried: str
) -> None:
    verb, resource = tried.split()
    api.fail(lacks_right(verb, resource))
    with pytest.raises(Forbidden, match=f"RBAC: verb {verb}, resource {resource}"):
        await CALLS[tried](cluster)


@pytest.mark.parametrize(
    ("code", "reason"), [(422, "Invalid"), (403, "Forbidden"), (413, "Large")]
)
async def test_a_policys_denial_is_told_in_its_words_and_blames_no_field(
    api: ApiServer, cluster: KubernetesCluster, code: int, reason: str
) -> None:
    old = created(api, "a")
    api.state.denies = lambda name: denial(name, "own", "not here", code=code, reason=reason)
    for call in (
        cluster.create_slice(CreateSlice(name="n2", body=slice_body("b", name="n2"))),
        cluster.patch_slice(patch(old, add("b"))),
        cluster.delete_slice(DeleteSlice(name=NAME, uid=old.uid, version=old.version)),
    ):
        with pytest.raises(
            ClusterError, match=r"Policy 'own' .* denied request: not here"
        ) as error:
            await call
        assert "RBAC" not in error.value.reason
        assert isinstance(error.value, Forbidden if code == 403 else Rejected)
        if isinstance(error.value, Rejected):
            assert [cause.field for cause in error.value.causes] == [""]
    assert device_names(api.state.slice(NAME)) == ["a"]


@pytest.mark.parametrize(
    "body", [b"", b"[]", b"<html>", b'{"kind": "Status"}', b'{"metadata": 1}']
)
@pytest.mark.parametrize("tried", [call for call in CALLS if not call.startswith("delete")])
async def test_an_answer_that_is_no_object_is_not_taken_for_success(
    api: ApiServer, cluster: KubernetesCluster, tried: str, body: bytes
) -> None:
    api.fail(Raw(body=body))
    with pytest.raises(Unavailable, match="no object"):
        await CALLS[tried](cluster)


async def test_a_write_whose_answer_was_lost_shows_as_a_conflict_when_repeated(
    api: ApiServer, cluster: KubernetesCluster
) -> None:
    old = created(api, "a")
    api.fail(Close(after=True))
    with pytest.raises(Unavailable, match="broke"):
        await cluster.patch_slice(patch(old, add("b")))
    with pytest.raises(Conflict):
        await cluster.patch_slice(patch(old, add("b")))
    assert device_names(api.state.slice(NAME)) == ["a", "b"]


@pytest.mark.parametrize("tried", ["get", "patch", "delete"])
async def test_a_name_cannot_lead_elsewhere(
    api: ApiServer, cluster: KubernetesCluster, tried: str
) -> None:
    hostile = ObservedSlice(name="../../v1/nodes?x#y", uid="", version="1", body={})
    if tried == "get":
        assert await cluster.node_uid(hostile.name) is None
    elif tried == "delete":
        await cluster.delete_slice(DeleteSlice(name=hostile.name, uid="", version="1"))
    else:
        with pytest.raises(Conflict):
            await cluster.patch_slice(patch(hostile))
    assert api.requests[0].path.endswith("/..%2F..%2Fv1%2Fnodes%3Fx%23y")


async def test_many_calls_use_one_connection(api: ApiServer, cluster: KubernetesCluster) -> None:
    seen = created(api, "a")
    for index in range(20):
        seen = await cluster.patch_slice(patch(seen, add(f"d{index}")))
        with pytest.raises(Conflict):
            await cluster.patch_slice(patch(STALE))
    assert api.connections == 1


def device(name: str, **attributes: str) -> PublishedDevice:
    return PublishedDevice(
        name=name,
        key=Key(bus="usb", address=name),
        nodes=(),
        attributes=tuple(sorted(attributes.items())),
    )


async def test_carrying_a_plan_out_leaves_nothing_to_plan(
    api: ApiServer, cluster: KubernetesCluster
) -> None:
    uid = api.state.add_node(NODE)
    view = SliceView()
    offers = [
        [device("b", word="x")],
        [device(f"d{index}") for index in range(130)],
        [device("a"), device("b", word="y"), device("c")],
        [],
        [device("a")],
    ]
    with trio.fail_after(10):
        async with trio.open_nursery() as nursery:
            await nursery.start(
                lambda task_status: cluster.watch_slices(NODE, view, task_status=task_status)
            )
            for offer in offers:
                ordered = sorted(offer, key=lambda item: item.name)

                def observed() -> Observed:
                    return Observed(node=NODE, node_uid=uid, slices=view.latest.get(), divide=True)

                for change in plan(observed(), ordered):
                    match change:
                        case CreateSlice():
                            view.put((await cluster.create_slice(change)).body)
                        case PatchSlice():
                            view.put((await cluster.patch_slice(change)).body)
                        case DeleteSlice():
                            await cluster.delete_slice(change)
                            view.drop(change.name, change.version)
                assert plan(observed(), ordered) == ()
                stored = itertools.chain(*map(device_names, api.state.slices.values()))
                assert sorted(stored) == [item.name for item in ordered]
                await until(
                    lambda: (
                        sorted((item.name, item.version) for item in view.latest.get())
                        == sorted(
                            (name, body["metadata"]["resourceVersion"])
                            for name, body in api.state.slices.items()
                        )
                    )
                )
                assert plan(observed(), ordered) == ()
            nursery.cancel_scope.cancel()


def test_which_server_was_taken_is_said(tmp_path: Path) -> None:
    path = write_kubeconfig(tmp_path / "kubeconfig", "http://127.0.0.1:7")
    cluster = KubernetesCluster.connect(kubeconfig=path, context="it")
    assert cluster.description == "Kubernetes at http://127.0.0.1:7"
