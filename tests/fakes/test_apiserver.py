"""The fake answers as a real server of version 1.37.2 was seen to."""

import json
from typing import Any

import pytest
import urllib3

from liken_events.core.model.json import Json
from tests.fakes.apifaults import SLICES
from tests.fakes.apirules import denial
from tests.fakes.apiserver import ApiServer
from tests.fakes.slices import NAME, device_names, slice_body

PATCH = "application/json-patch+json"


def ask(
    api: ApiServer, method: str, path: str, body: Any = None, content_type: str = ""
) -> tuple[int, dict[str, Any]]:
    """Status and object of one request."""
    headers = {"Content-Type": content_type} if content_type else {}
    data = None if body is None else json.dumps(body)
    answer = urllib3.request(method, api.url + path, body=data, headers=headers, retries=False)
    found = answer.json()
    assert isinstance(found, dict)
    return answer.status, found


def fields(status: dict[str, Any]) -> list[str]:
    return [cause["field"] for cause in status["details"]["causes"]]


@pytest.fixture
def api() -> Any:
    with ApiServer() as server:
        server.state.create(slice_body("a", "b"))
        yield server


def patched(api: ApiServer, *operations: Json) -> tuple[int, dict[str, Any]]:
    return ask(api, "PATCH", f"{SLICES}/{NAME}", list(operations), PATCH)


@pytest.mark.parametrize(
    ("operation", "code"),
    [
        ({"op": "replace", "path": "/metadata/resourceVersion", "value": "1"}, 409),
        ({"op": "test", "path": "/metadata/resourceVersion", "value": "1"}, 422),
        ({"op": "test", "path": "/metadata/resourceVersion", "value": "2"}, 200),
        ({"op": "remove", "path": "/spec/devices/2"}, 422),
        ({"op": "add", "path": "/spec/devices/3", "value": {"name": "c"}}, 422),
        ({"op": "add", "path": "/spec/devices/2", "value": {"name": "c"}}, 200),
        ({"op": "add", "path": "/spec/devices/-", "value": {"name": "c"}}, 200),
        ({"op": "replace", "path": "/spec/nodeName", "value": "n2"}, 422),
        ({"op": "replace", "path": "/spec/driver", "value": "other"}, 422),
        ({"op": "replace", "path": "/spec/pool/name", "value": "other"}, 422),
        ({"op": "replace", "path": "/spec/pool/generation", "value": 2}, 200),
    ],
)
def test_a_patch_is_answered_by_what_it_does(api: ApiServer, operation: Json, code: int) -> None:
    before = api.state.slice(NAME)
    assert patched(api, operation)[0] == code
    if code != 200:
        assert api.state.slice(NAME) == before


def test_a_patch_runs_its_operations_in_order(api: ApiServer) -> None:
    code, body = patched(
        api,
        {"op": "remove", "path": "/spec/devices/0"},
        {"op": "replace", "path": "/spec/devices/0", "value": {"name": "c"}},
        {"op": "add", "path": "/spec/devices/0", "value": {"name": "a"}},
    )
    assert (code, device_names(body)) == (200, ["a", "c"])
    assert body["metadata"]["generation"] == 2


def test_a_patch_that_changes_nothing_makes_no_new_version(api: ApiServer) -> None:
    _, body = patched(api, {"op": "replace", "path": "/spec/nodeName", "value": "n1"})
    assert body["metadata"]["resourceVersion"] == "2"


TAINT: Json = {"key": "k", "effect": "None"}
LONG: Json = {"string": "\u00e4" * 33}


@pytest.mark.parametrize(
    ("devices", "complaint"),
    [
        ([{"name": "a", "attributes": {"x": {"string": "x" * 64}}}], None),
        ([{"name": f"d{index}"} for index in range(128)], None),
        ([{"name": f"d{index}"} for index in range(129)], "spec.devices"),
        ([{"name": f"d{index}", "taints": []} for index in range(65)], None),
        ([{"name": f"d{index}", "taints": [TAINT]} for index in range(65)], "spec.devices"),
        ([{"name": "a"}, {"name": "a"}], "spec.devices[1]"),
        ([{"name": "ttyUSB0"}], "spec.devices[0].name"),
        ([{"name": "a", "attributes": {"x": LONG}}], "spec.devices[0].attributes[x].string"),
        ([{"name": "a", "attributes": {"x": {}}}], "spec.devices[0].attributes[x]"),
        ([{"name": "a", "attributes": {"x-y": {"int": 1}}}], "spec.devices[0].attributes"),
        ([{"name": "a", "attributes": {"b_d/x": {"int": 1}}}], "spec.devices[0].attributes"),
        ([{"name": "a", "attributes": {"x" * 33: {"int": 1}}}], "spec.devices[0].attributes"),
        ([{"name": "a", "attributes": {"sound.liken.sh/x": {"bool": True}}}], None),
        (
            [{"name": "a", "attributes": {f"x{index}": {"int": 1} for index in range(33)}}],
            "spec.devices[0]",
        ),
    ],
)
def test_a_slice_is_validated_as_a_whole(
    api: ApiServer, devices: list[Json], complaint: str | None
) -> None:
    body = slice_body(name="other")
    spec = body["spec"]
    assert isinstance(spec, dict)
    spec["devices"] = devices
    code, answer = ask(api, "POST", SLICES, body)
    if complaint is None:
        assert code == 201
    else:
        assert (code, answer["reason"], fields(answer)) == (422, "Invalid", [complaint])


def test_what_is_empty_is_absent(api: ApiServer) -> None:
    _, body = patched(api, {"op": "add", "path": "/spec/devices", "value": []})
    assert "devices" not in body["spec"]
    bare: Json = [{"name": "a", "attributes": {}, "taints": []}]
    _, body = patched(api, {"op": "add", "path": "/spec/devices", "value": bare})
    assert body["spec"]["devices"] == [{"name": "a"}]


@pytest.mark.parametrize(
    ("name", "quoted"),
    [("x-y", "x-y"), ("b.d/x-y", "x-y"), ("b_d/x", "b_d"), ("/x", ""), ("x/", "")],
)
def test_of_an_invalid_name_a_complaint_quotes_the_part_that_is_wrong(
    api: ApiServer, name: str, quoted: str
) -> None:
    bad: Json = [{"name": "a", "attributes": {name: {"bool": True}}}]
    _, status = patched(api, {"op": "add", "path": "/spec/devices", "value": bad})
    (cause,) = status["details"]["causes"]
    assert cause["message"].startswith(f'Invalid value: "{quoted}": ')


def test_a_conflict_says_what_it_is_about(api: ApiServer) -> None:
    about = {"name": NAME, "group": "resource.k8s.io", "kind": "resourceslices"}
    stale: Json = {"op": "replace", "path": "/metadata/resourceVersion", "value": "1"}
    for code, status in (ask(api, "POST", SLICES, slice_body("a")), patched(api, stale)):
        assert (code, status["details"]) == (409, about)
    outdated = {"preconditions": {"resourceVersion": "1"}}
    code, status = ask(api, "DELETE", f"{SLICES}/{NAME}", outdated)
    assert (code, status["details"]) == (409, {**about, "kind": "ResourceSlice"})


def test_a_policy_denies_without_naming_a_field(api: ApiServer) -> None:
    api.state.denies = lambda name: denial(name, "p", "not here", code=422, reason="Invalid")
    code, status = patched(api, {"op": "remove", "path": "/spec/devices/0"})
    said = "ValidatingAdmissionPolicy 'p' with binding 'p' denied request: not here"
    assert (code, status["reason"]) == (422, "Invalid")
    assert status["details"]["causes"] == [{"message": said}]
    assert device_names(api.state.slice(NAME)) == ["a", "b"]


def test_a_field_whose_gate_is_off_is_dropped_without_a_word(api: ApiServer) -> None:
    api.state.drops_multiple_allocations = True
    shared: Json = {"name": "c", "allowMultipleAllocations": True}
    code, body = patched(api, {"op": "add", "path": "/spec/devices/-", "value": shared})
    assert (code, body["spec"]["devices"][2]) == (200, {"name": "c"})


def test_a_selector_of_an_unknown_field_is_refused(api: ApiServer) -> None:
    code, _ = ask(api, "GET", f"{SLICES}?fieldSelector=spec.allNodes=true")
    assert code == 400


def test_a_request_without_the_right_token_is_refused(api: ApiServer) -> None:
    api.token = "secret"
    code, status = ask(api, "GET", SLICES)
    assert (code, status["reason"]) == (401, "Unauthorized")


def test_every_request_is_recorded_with_its_size(api: ApiServer) -> None:
    ask(api, "GET", f"{SLICES}/{NAME}")
    request = api.requests[-1]
    assert (request.method, request.path) == ("GET", f"{SLICES}/{NAME}")
    assert 60 < request.size < 300


def test_a_claim_is_answered_by_namespace_and_name(api: ApiServer) -> None:
    path = "/apis/resource.k8s.io/v1/namespaces/{}/resourceclaims/{}"
    made = api.state.add_claim({"metadata": {"namespace": "default", "name": "camera"}})
    assert ask(api, "GET", path.format("default", "camera")) == (200, made)
    code, status = ask(api, "GET", path.format("other", "camera"))
    assert (code, status["reason"]) == (404, "NotFound")
    assert status["details"] == {
        "name": "camera",
        "group": "resource.k8s.io",
        "kind": "resourceclaims",
    }
