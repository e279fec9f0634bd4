import re
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from liken_events.core.model.claims import (
    Allocated,
    Claim,
    ClaimReference,
    Refused,
    is_device_name,
    read_claim,
)
from liken_events.core.model.json import Json
from liken_events.core.model.names import printable
from tests.fakes.claims import claim_body

UID = "3f1c2a9e-7d5b-4f0a-9c1e-2b8d6a4e0f13"
REFERENCE = ClaimReference(namespace="default", name="c", uid=UID)
STICK = "usb-1-2-1-0"
NOT_UNDERSTOOD = "the allocation of the claim default/c is not understood"
LABEL = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")


def body(*devices: str, **more: Any) -> dict[str, Any]:
    return claim_body(*devices, uid=UID, **more)


def read(found: dict[str, Any] | None) -> Claim | Refused:
    return read_claim(found, REFERENCE, "liken.sh")


def allocated(**changes: Any) -> Allocated:
    found = read(body(STICK, **changes))
    assert isinstance(found, Claim), found
    (item,) = found.allocated
    return item


def test_a_claim_says_what_was_allocated_in_the_order_of_its_status() -> None:
    assert read(body("usb-1-4-1-0", STICK)) == Claim(
        reference=REFERENCE,
        allocated=(
            Allocated(request="r0", pool="n1", device="usb-1-4-1-0"),
            Allocated(request="r1", pool="n1", device=STICK),
        ),
    )


def test_what_other_drivers_allocated_is_left_out_whatever_it_looks_like() -> None:
    found = body(STICK)
    results = found["status"]["allocation"]["devices"]["results"]
    results.insert(0, {"driver": "gpu.example.com", "device": "gpu-0", "pool": "p"})
    results.append({"driver": "gpu.example.com", "device": 7})
    results.append({"device": STICK, "request": "r9", "pool": "n1"})
    expected = (Allocated(request="r0", pool="n1", device=STICK),)
    assert read(found) == Claim(reference=REFERENCE, allocated=expected)
    assert read_claim(found, REFERENCE, "other.example.com") == Claim(reference=REFERENCE)


@pytest.mark.parametrize(
    ("request_", "main"),
    [("gpu", "gpu"), ("gpu/big", "gpu"), ("gpu/big/x", "gpu"), ("a-b/c", "a-b")],
)
def test_the_kubelet_knows_main_requests_only(request_: str, main: str) -> None:
    assert allocated(request=request_).request == main


def test_shares_of_a_device_are_told_apart() -> None:
    share = "1d8f3b1e-0c9a-4a51-8d5e-6d2f3b0a9c44"
    assert allocated(shareID=share).share_id == share
    assert allocated().share_id is None
    assert allocated(shareID=None).share_id is None
    assert allocated(shareID=7).share_id is None


@pytest.mark.parametrize(
    ("value", "is_admin"),
    [(True, True), (False, False), (None, False), ("true", False), (1, False)],
)
def test_nothing_but_true_lets_an_administrator_in(value: object, is_admin: bool) -> None:
    assert allocated(adminAccess=value).is_admin is is_admin


def test_the_pool_is_what_the_claim_says() -> None:
    assert allocated(pool="other node").pool == "other node"


def changed(change: Callable[[dict[str, Any]], object]) -> dict[str, Any]:
    found = body(STICK)
    change(found)
    return found


def with_results(results: object) -> dict[str, Any]:
    return changed(lambda found: found["status"]["allocation"]["devices"].update(results=results))


def with_result(**changes: object) -> dict[str, Any]:
    return with_results(
        [{"request": "r0", "driver": "liken.sh", "pool": "n1", "device": STICK} | changes]
    )


@pytest.mark.parametrize(
    ("found", "reason"),
    [
        (None, "the claim default/c does not exist any more"),
        (claim_body(STICK, uid="another"), "the claim default/c was made anew since"),
        ({}, "the claim default/c was made anew since"),
        (changed(lambda b: b.update(metadata=[UID])), "the claim default/c was made anew since"),
        (changed(lambda b: b["metadata"].pop("uid")), "the claim default/c was made anew since"),
        (
            changed(lambda b: b["metadata"].update(uid=7)),
            "the claim default/c was made anew since",
        ),
        (changed(lambda b: b.pop("status")), "the claim default/c has no allocation"),
        (changed(lambda b: b.update(status=None)), "the claim default/c has no allocation"),
        (changed(lambda b: b.update(status={})), "the claim default/c has no allocation"),
        (
            changed(lambda b: b["status"].update(allocation="x")),
            "the claim default/c has no allocation",
        ),
        # What is not understood must not pass for nothing.
        (changed(lambda b: b["status"]["allocation"].update(devices=[])), NOT_UNDERSTOOD),
        (changed(lambda b: b["status"]["allocation"].update(devices="x")), NOT_UNDERSTOOD),
        (with_results({"device": STICK}), NOT_UNDERSTOOD),
        (with_results(STICK), NOT_UNDERSTOOD),
        (with_results(0), NOT_UNDERSTOOD),
        (with_results([STICK]), NOT_UNDERSTOOD),
        (with_results([None]), NOT_UNDERSTOOD),
        (with_result(request=None), NOT_UNDERSTOOD),
        (with_result(pool=7), NOT_UNDERSTOOD),
        (with_result(device=["a"]), NOT_UNDERSTOOD),
        # A name that becomes part of a file and of a CDI name.
        (with_result(device=""), "'' in the claim default/c is no device"),
        (with_result(device="USB"), "'USB' in the claim default/c is no device"),
        (with_result(device="../x"), "'../x' in the claim default/c is no device"),
        (with_result(device="a\n"), "'a\\x0a' in the claim default/c is no device"),
        (with_result(device="a" * 64), f"'{'a' * 64}' in the claim default/c is no device"),
        (with_result(device="-a"), "'-a' in the claim default/c is no device"),
    ],
)
def test_what_cannot_be_prepared_is_refused_with_the_reason(
    found: dict[str, Any] | None, reason: str
) -> None:
    refused = read(found)
    assert isinstance(refused, Refused)
    assert refused.reason.startswith(reason)
    assert read(found) == refused


@pytest.mark.parametrize(
    "found",
    [
        with_results([]),
        with_results(None),
        changed(lambda b: b["status"]["allocation"].pop("devices")),
        changed(lambda b: b["status"]["allocation"].update(devices=None)),
        changed(lambda b: b["status"]["allocation"].update(devices={})),
    ],
)
def test_an_allocation_without_devices_has_nothing_of_ours(found: dict[str, Any]) -> None:
    assert read(found) == Claim(reference=REFERENCE)


def test_one_name_that_is_no_device_refuses_the_whole_claim() -> None:
    assert isinstance(read(body(STICK, "Nonsense")), Refused)


@pytest.mark.parametrize(
    ("uid", "is_valid"),
    [
        (UID, True),
        ("a", True),
        ("A9", True),
        ("a" * 64, True),
        ("a" * 65, False),
        ("", False),
        ("-a", False),
        ("a-", False),
        ("a/b", False),
        ("..", False),
        ("a.b", False),
        ("a_b", False),
        ("a\n", False),
        ("a\0", False),
        ("é", False),
        ("١", False),
    ],
)
def test_a_uid_becomes_part_of_names_only_if_it_is_one(uid: str, is_valid: bool) -> None:
    assert ClaimReference(namespace="n", name="c", uid=uid).is_valid is is_valid


def test_a_reference_can_be_printed_whatever_it_is() -> None:
    odd = ClaimReference(namespace="a\x1b[31m", name="b\n\u202e", uid=UID)
    assert str(odd) == "a\\x1b[31m/b\\x0a\\u202e"
    refused = read_claim(None, odd, "liken.sh")
    assert isinstance(refused, Refused)
    assert refused.reason == printable(refused.reason)


@given(st.from_regex(r"[a-zA-Z0-9.-]{0,66}\n?", fullmatch=True))
def test_a_name_is_a_devices_if_it_is_a_dns_label(name: str) -> None:
    assert is_device_name(name) is (LABEL.fullmatch(name) is not None)


values: st.SearchStrategy[Json] = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(st.characters(), max_size=5)
    | st.sampled_from(["liken.sh", UID, STICK]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["metadata", "uid", "status", "allocation", "devices", "results"])
            | st.sampled_from(["driver", "request", "pool", "device", "shareID", "adminAccess"]),
            inner,
            max_size=4,
        )
    ),
    max_leaves=10,
)


def check(found: Claim | Refused) -> None:
    if isinstance(found, Refused):
        assert found.reason
        assert found.reason == printable(found.reason)
    else:
        assert all(LABEL.fullmatch(item.device) for item in found.allocated)
        assert all("/" not in item.request for item in found.allocated)


@given(st.dictionaries(st.sampled_from(["metadata", "status", "x"]), values))
def test_any_object_is_a_claim_or_refused(found: dict[str, Json]) -> None:
    check(read_claim(found, REFERENCE, "liken.sh"))


@given(st.data())
def test_any_value_in_any_place_is_a_claim_or_refused(data: st.DataObject) -> None:
    top = body(STICK, "usb-1-4-1-0", shareID="x", adminAccess=True)
    here: Any = top
    while True:
        keys = list(here) if isinstance(here, dict) else list(range(len(here)))
        key = data.draw(st.sampled_from(keys))
        if not isinstance(here[key], dict | list) or not here[key] or data.draw(st.booleans()):
            here[key] = data.draw(values)
            break
        here = here[key]
    check(read(top))
