"""Laws of CDI specs, for claims, sights and owners that need not fit together."""

import json
import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from liken_events.core.model.claim_record import from_json, to_json
from liken_events.core.model.claims import Allocated, Claim, ClaimReference
from liken_events.core.model.prepared import Prepared, PreparedDevice, Sight
from liken_events.core.model.snapshot import Node
from liken_events.core.plan.cdi import (
    NOWHERE,
    allocated_once,
    device_names,
    granted,
    refreshed,
    spec,
)
from tests.core import generated
from tests.fakes.cdi_rules import NAME, complaints
from tests.fakes.held import AWAY, claims_held, names, nodes, sights, there, uids

FEW = settings(max_examples=25)
Sights = dict[str, Sight]
Situation = tuple[Prepared, Sights, dict[str, str]]
Owner = Callable[[Node, PreparedDevice], str | None]


@st.composite
def situations(draw: st.DrawFn) -> Situation:
    """A claim, how its devices stand, and whose which path is."""
    claim = draw(claims_held)
    seen = {device.name: draw(sights()) for device in claim.devices}
    paths = sorted({node.path for device in claim.devices for node in device.nodes})
    taken = draw(st.sets(st.sampled_from(paths))) if paths else set()
    return claim, seen, {path: draw(generated.texts) for path in sorted(taken)}


def owner_of(taken: dict[str, str]) -> Owner:
    def owner(node: Node, held: PreparedDevice) -> str | None:
        return taken.get(node.path)

    return owner


def text_of(situation: Situation) -> str:
    claim, seen, taken = situation
    text = spec(claim, seen, owner_of(taken))
    assert text is not None
    return text


def devices_of(situation: Situation) -> list[tuple[Sight, PreparedDevice, list[dict[str, Any]]]]:
    """Each device as it stands and as it is held, and the nodes that the spec gives it."""
    claim, seen, _ = situation
    body = json.loads(text_of(situation))
    return [
        (seen[device.name], device, item["containerEdits"]["deviceNodes"])
        for device, item in zip(claim.devices, body["devices"], strict=True)
    ]


@FEW
@given(situations())
def test_a_spec_is_valid_for_the_oldest_runtime_in_all_states(situation: Situation) -> None:
    text = text_of(situation)
    assert complaints(text, newest="0.5.0") == []
    assert text.isascii() or text.encode()
    assert text_of(situation) == text


@FEW
@given(situations())
def test_no_spec_names_a_path_that_is_somebody_elses(situation: Situation) -> None:
    taken = situation[2]
    for seen, _, edits in devices_of(situation):
        if not seen.is_usable:
            assert not taken.keys() & {edit["path"] for edit in edits}


@FEW
@given(situations())
def test_only_nodes_that_were_seen_just_now_have_numbers(situation: Situation) -> None:
    for seen, device, edits in devices_of(situation):
        if seen.is_usable:
            known = [(n.path, "b" if n.block else "c", n.major, n.minor) for n in seen.nodes]
            found = [(e["path"], e["type"], e["major"], e["minor"]) for e in edits]
            assert found == known
        else:
            assert all(edit.keys() == {"path", "permissions"} for edit in edits)
            paths = {node.path for node in device.nodes}
            assert all(e["path"] in paths or e["path"].startswith(NOWHERE) for e in edits)
        assert all(edit["permissions"] == "rw" for edit in edits)


@FEW
@given(situations())
def test_a_path_that_stands_for_nothing_is_short_and_plain(situation: Situation) -> None:
    for _, _, edits in devices_of(situation):
        for edit in edits:
            if edit["path"].startswith(NOWHERE):
                assert re.fullmatch(r"[A-Za-z0-9.-]{1,255}", edit["path"].removeprefix(NOWHERE))


@FEW
@given(situations(), st.data())
def test_a_plug_an_unplug_and_another_number_each_change_the_text(
    situation: Situation, data: st.DataObject
) -> None:
    claim, seen, taken = situation
    device = data.draw(st.sampled_from(claim.devices))
    one = data.draw(nodes)
    more = tuple(node for node in seen[device.name].nodes if node.path != one.path)
    states = {
        "away": AWAY,
        "there": there(one, *more),
        "renumbered": there(replace(one, minor=one.minor + 1), *more),
        "elsewhere": there(replace(one, path=one.path + "x"), *more),
    }
    texts = {text_of((claim, {**seen, device.name: state}, taken)) for state in states.values()}
    assert len(texts) == len(states)


@FEW
@given(situations())
def test_a_spec_made_from_the_record_is_the_same(situation: Situation) -> None:
    claim, seen, taken = situation
    restored, _ = from_json(to_json(claim, "boot"))
    assert text_of((restored, seen, taken)) == text_of(situation)


@FEW
@given(situations())
def test_a_refreshed_claim_has_the_same_devices_and_is_at_rest(situation: Situation) -> None:
    claim, seen, taken = situation
    new = refreshed(claim, seen)
    assert new.reference == claim.reference
    for before, after in zip(claim.devices, new.devices, strict=True):
        assert replace(after, nodes=before.nodes) == before
        assert after.nodes == (
            seen[after.name].nodes if seen[after.name].is_usable else before.nodes
        )
    assert refreshed(new, seen) == new
    assert text_of((new, seen, taken)) == text_of(situation)


allocations = st.lists(
    st.builds(
        Allocated,
        request=st.sampled_from(["r0", "r1"]),
        pool=st.just("n1"),
        device=names,
        share_id=st.none() | st.uuids().map(str),
        is_admin=st.booleans(),
    ),
    max_size=5,
)


@given(allocations, uids)
def test_ids_are_made_of_the_uid_and_the_name_alone(items: list[Allocated], uid: str) -> None:
    reference = ClaimReference(namespace="n", name="c", uid=uid)
    claim = Claim(reference=reference, allocated=tuple(items))
    told = granted(claim)
    assert [(item.request, item.pool, item.device, item.share_id) for item in told] == [
        (item.request, item.pool, item.device, item.share_id) for item in items
    ]
    for item in told:
        assert item.cdi_id == f"liken.sh/device={uid}-{item.device}"
        name = item.cdi_id.partition("=")[2]
        assert NAME.fullmatch(name)
        assert device_names(uid, [name]) == (item.device,)
    renamed = replace(claim, reference=ClaimReference(namespace="x", name="y", uid=uid))
    assert granted(renamed) == told
    once = allocated_once(claim)
    assert [item.device for item in once] == sorted({item.device for item in items})
    for kept in once:
        assert kept in items
        mine = [other for other in items if other.device == kept.device]
        assert kept.is_admin is all(other.is_admin for other in mine)
