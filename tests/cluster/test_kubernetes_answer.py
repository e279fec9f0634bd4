import json
import time
from email.utils import formatdate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from liken_events.cluster import Cause, ClusterError, Conflict, Forbidden, Rejected, Unavailable
from liken_events.cluster.kubernetes_answer import (
    LONGEST_RETRY_AFTER,
    MESSAGE_LENGTH,
    Answer,
    quoted,
    refusal,
)
from liken_events.core.model.json import Json
from liken_events.core.model.names import printable


def answer(code: int, message: str = "because", **more: Json) -> Answer:
    status = {"kind": "Status", "message": message, "code": code, **more}
    return Answer(status=code, body=json.dumps(status).encode())


def patched(given_answer: Answer) -> ClusterError:
    return refusal("patch", "resourceslices", given_answer)


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (400, Rejected),
        (401, Forbidden),
        (403, Forbidden),
        (405, Rejected),
        (408, Unavailable),
        (409, Conflict),
        (410, Unavailable),
        (413, Rejected),
        (422, Rejected),
        (429, Unavailable),
        (500, Unavailable),
        (503, Unavailable),
        (504, Unavailable),
        (302, Unavailable),
    ],
)
def test_a_status_says_whether_it_passes_is_outdated_or_is_final(
    code: int, kind: type[ClusterError]
) -> None:
    error = patched(answer(code))
    assert type(error) is kind
    assert "because" in error.reason


def test_what_is_forbidden_names_the_verb_and_the_resource_that_a_role_has_to_allow() -> None:
    said = 'nodes "n1" is forbidden: User "u" cannot get resource "nodes" in API group ""'
    error = refusal("get", "nodes", answer(403, said))
    assert error.reason == f"not allowed to get nodes (RBAC: verb get, resource nodes): {said}"


@pytest.mark.parametrize(
    "said",
    [
        "nodes \"n1\" is forbidden: ValidatingAdmissionPolicy 'p' denied request: no",
        'admission webhook "hook.example.com" denied the request: no',
        'User "u" cannot list resource "nodes"',
    ],
)
def test_what_no_role_would_allow_asks_for_none(said: str) -> None:
    error = refusal("get", "nodes", answer(403, said))
    assert error.reason == f"not allowed to get nodes: {said}"


@pytest.mark.parametrize(
    "without",
    [
        Answer(status=404, body=b"404 page not found\n"),
        answer(404, "the server could not find the requested resource", details={}),
    ],
)
def test_a_server_without_the_api_is_told_from_one_without_the_object(without: Answer) -> None:
    error = patched(without)
    assert isinstance(error, Unavailable)
    assert "Kubernetes 1.34" in error.reason
    assert not without.is_missing
    gone = answer(404, "not found", details={"name": "n1-liken.sh"})
    assert type(patched(gone)) is Conflict
    assert gone.is_missing


def test_each_cause_of_an_invalid_object_is_kept_with_its_field() -> None:
    causes: Json = [
        {"reason": "FieldValueTooLong", "field": "spec.devices[7].attributes[x].string"},
        {"message": "denied by a policy"},
        {"field": "spec.devices", "message": "Too many: 129"},
        "nonsense",
    ]
    error = patched(answer(422, details={"causes": causes}))
    assert isinstance(error, Rejected)
    assert error.causes == (
        Cause(field="spec.devices[7].attributes[x].string", message=""),
        Cause(field="", message="denied by a policy"),
        Cause(field="spec.devices", message="Too many: 129"),
        Cause(field="", message=""),
    )


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        ("7", 7.0),
        (" 0 ", 0.0),
        ("99999999999999999999", LONGEST_RETRY_AFTER),
        ("9" * 5000, LONGEST_RETRY_AFTER),
        ("soon", None),
        ("", None),
        ("-3", None),
        ("Thu, 01 Jan 1970 00:00:00 GMT", 0.0),
        ("Thu, 99 Jan 1970 00:00:00 GMT", None),
    ],
)
def test_a_wait_that_was_asked_for_is_read_and_kept_within_reason(
    header: str, seconds: float | None
) -> None:
    error = patched(Answer(status=429, headers={"Retry-After": header}))
    assert isinstance(error, Unavailable)
    assert error.retry_after == seconds


def test_a_date_to_wait_for_becomes_the_seconds_until_then() -> None:
    header = formatdate(time.time() + 60, usegmt=True)
    error = patched(Answer(status=503, headers={"retry-after": header}))
    assert isinstance(error, Unavailable)
    assert error.retry_after == pytest.approx(60, abs=5)


def test_the_status_object_may_ask_for_the_wait_too_and_the_header_goes_first() -> None:
    in_object = answer(429, details={"retryAfterSeconds": 3})
    both = Answer(status=429, headers={"Retry-After": "9"}, body=in_object.body)
    first, second = patched(in_object), patched(both)
    assert isinstance(first, Unavailable)
    assert isinstance(second, Unavailable)
    assert (first.retry_after, second.retry_after) == (3, 9)


@pytest.mark.parametrize("code", [403, 409, 422, 500])
def test_a_servers_text_can_neither_break_a_line_nor_move_a_cursor(code: int) -> None:
    hostile = "first\x00\x1b[31m\r\nsecond\u202e"
    causes: Json = [{"field": "a\nb", "message": "c\x1bd"}]
    error = patched(answer(code, hostile, details={"causes": causes}))
    assert error.reason == printable(error.reason)
    assert "\\x1b[31m\\x0d\\x0asecond\\u202e" in error.reason
    if isinstance(error, Rejected):
        assert error.causes == (Cause(field="a\\x0ab", message="c\\x1bd"),)


def test_a_servers_text_is_cut_to_a_bound() -> None:
    error = patched(answer(422, "x" * 60_000))
    assert len(error.reason) < MESSAGE_LENGTH + 100
    assert error.reason.endswith("…")


@given(st.text(), st.integers(min_value=1, max_value=400))
def test_quoted_text_is_printable_and_within_its_bound(text: str, length: int) -> None:
    safe = quoted(text, length)
    assert len(safe) <= length
    assert safe == printable(safe)


@given(st.integers(min_value=100, max_value=599), st.binary(max_size=200), st.text(max_size=40))
def test_any_answer_whatsoever_becomes_one_of_our_errors(
    code: int, body: bytes, header: str
) -> None:
    error = patched(Answer(status=code, headers={"Retry-After": header}, body=body))
    assert isinstance(error, Unavailable | Conflict | Rejected)
    assert error.reason
    assert error.reason == printable(error.reason)


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=5,
)


@given(
    st.sampled_from([404, 409, 422, 429]),
    st.dictionaries(st.sampled_from(["message", "details", "reason"]), JSON_VALUES),
)
def test_a_status_of_any_shape_becomes_one_of_our_errors(
    code: int, status: dict[str, Json]
) -> None:
    error = patched(Answer(status=code, body=json.dumps(status).encode()))
    assert error.reason == printable(error.reason)


@given(JSON_VALUES | st.integers())
def test_a_wait_is_a_sane_number_of_seconds_or_none(value: Json) -> None:
    error = patched(answer(429, details={"retryAfterSeconds": value}))
    assert isinstance(error, Unavailable)
    assert error.retry_after is None or 0 <= error.retry_after <= LONGEST_RETRY_AFTER
