"""What the kubelet is told of a prepared claim, and the names that lead to its devices."""

import json
from dataclasses import replace

from liken_events.core.model.claims import Allocated, Claim, ClaimReference, Granted
from liken_events.core.plan.cdi import allocated_once, device_id, device_names, granted
from tests.core.plan.test_cdi import GPU, STICK, text_of
from tests.fakes.cdi_rules import NAME
from tests.fakes.held import UID, held, prepared


def claim_of(*items: Allocated, uid: str = UID) -> Claim:
    reference = ClaimReference(namespace="default", name="c", uid=uid)
    return Claim(reference=reference, allocated=items)


GPU_0 = Allocated(request="r0", pool="n1", device="pci-0000-03-00-0", share_id="s0")
GPU_1 = Allocated(request="r1", pool="n1", device="pci-0000-03-00-0", share_id="s1")
STICK_0 = Allocated(request="r2", pool="n1", device="usb-1-2-1-0")


def test_the_kubelet_is_told_of_each_allocation_in_order() -> None:
    claim = claim_of(STICK_0, GPU_0, GPU_1)
    stick, gpu = (f"liken.sh/device={UID}-{name}" for name in ("usb-1-2-1-0", GPU_0.device))
    pool = "n1"
    expected = (
        Granted(request="r2", pool=pool, device="usb-1-2-1-0", cdi_id=stick),
        Granted(request="r0", pool=pool, device=GPU_0.device, cdi_id=gpu, share_id="s0"),
        Granted(request="r1", pool=pool, device=GPU_0.device, cdi_id=gpu, share_id="s1"),
    )
    assert granted(claim) == expected
    assert granted(claim_of(STICK_0, GPU_0, GPU_1)) == expected, "nothing but the claim matters"
    assert granted(claim_of()) == ()


def test_an_id_names_a_device_of_the_spec() -> None:
    claim = prepared(held(STICK), held(GPU, "-display"))
    names = {item["name"] for item in json.loads(text_of(claim))["devices"]}
    assert names == {device_id(UID, item.name).partition("=")[2] for item in claim.devices}
    assert device_id(UID, "usb-1-2-1-0") == f"liken.sh/device={UID}-usb-1-2-1-0"
    assert all(NAME.fullmatch(name) for name in names)


def test_two_claims_never_name_one_device() -> None:
    assert device_id("a", "b-c") != device_id("b", "b-c")
    one = json.loads(text_of(prepared(held(GPU), uid="a-1")))["devices"]
    other = json.loads(text_of(prepared(held(GPU), uid="b-1")))["devices"]
    assert one[0]["name"] != other[0]["name"]


def test_a_device_that_two_requests_share_is_prepared_once() -> None:
    assert allocated_once(claim_of(STICK_0, GPU_1, GPU_0)) == (GPU_1, STICK_0)
    assert allocated_once(claim_of()) == ()


def test_who_wants_a_device_for_himself_decides_over_an_administrator() -> None:
    mine, admin = STICK_0, replace(STICK_0, request="r3", is_admin=True)
    for order in ([mine, admin], [admin, mine]):
        assert allocated_once(claim_of(*order)) == (mine,)
    assert allocated_once(claim_of(admin)) == (admin,)
    other = replace(admin, request="r4")
    assert allocated_once(claim_of(admin, other)) == (admin,)


def test_the_names_in_a_spec_lead_back_to_the_published_ones() -> None:
    names = [item["name"] for item in json.loads(text_of(prepared(held(STICK))))["devices"]]
    assert device_names(UID, [*names, "other-usb-1-2-1-0"]) == ("usb-1-2-1-0",)
    assert device_names("a", ["a-", "a-b", "ab-c"]) == ("", "b")
