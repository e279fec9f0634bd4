"""Laws of the inventory, on machines that no one has seen."""

import re
from collections.abc import Iterator
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from liken_events.core.model.device import Reason
from liken_events.core.model.names import printable
from liken_events.core.model.publish import Policy, inventory
from liken_events.core.model.snapshot import Snapshot
from tests.core import generated
from tests.fakes.snapshots import snapshots

LABEL = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
ATTRIBUTE = re.compile(r"([a-z0-9.]{1,63}/)?[A-Za-z_][A-Za-z0-9_]{0,31}")
"""A C identifier, with or without a domain: what the API server takes for an attribute's name."""

machines = generated.machines() | snapshots()
FEW = settings(max_examples=20)
"""Machines are large."""

policies = st.builds(
    Policy,
    ignore=st.lists(st.sampled_from(["usb-*", "*:*", "driver=cp210x"]), max_size=1).map(tuple),
    limit=st.sampled_from([0, 1, 2, 3, 128, None]),
)


@FEW
@given(machines, policies, st.data())
def test_the_order_of_devices_makes_no_difference(
    machine: Snapshot, policy: Policy, data: st.DataObject
) -> None:
    shuffled = tuple(data.draw(st.permutations(machine.devices)))
    assert inventory(replace(machine, devices=shuffled), policy) == inventory(machine, policy)


@FEW
@given(machines, policies)
def test_names_are_dns_labels_unique_and_in_order(machine: Snapshot, policy: Policy) -> None:
    names = [device.name for device in inventory(machine, policy).offered]
    assert all(LABEL.fullmatch(name) for name in names)
    assert names == sorted(set(names))
    assert policy.limit is None or len(names) <= policy.limit


def strings(machine: Snapshot) -> Iterator[str]:
    for device in inventory(machine).offered:
        for _, value in device.attributes:
            if isinstance(value, str):
                yield value


@FEW
@given(machines)
def test_every_string_is_one_that_the_api_server_takes(machine: Snapshot) -> None:
    for text in strings(machine):
        assert 1 <= len(text.encode("utf-8")) <= 64
        assert printable(text) == text


@FEW
@given(machines)
def test_every_attribute_has_a_legal_name_and_there_are_not_too_many(machine: Snapshot) -> None:
    for device in inventory(machine).offered:
        names = [name for name, _ in device.attributes]
        assert all(ATTRIBUTE.fullmatch(name) for name in names)
        assert names == sorted(set(names))
        assert len(names) <= 32


@FEW
@given(machines)
def test_published_devices_of_one_piece_of_hardware_share_no_node(machine: Snapshot) -> None:
    for judgement in inventory(machine).judgements:
        paths = [node.path for device in judgement.published for node in device.nodes]
        assert len(paths) == len(set(paths))
        assert all(device.nodes for device in judgement.published)
        assert all(device.key == judgement.device.key for device in judgement.published)


@FEW
@given(machines, policies)
def test_every_device_is_judged_once_and_is_published_or_there_is_a_reason(
    machine: Snapshot, policy: Policy
) -> None:
    found = inventory(machine, policy)
    assert [item.device for item in found.judgements] == list(machine.devices)
    published = [device for item in found.judgements for device in item.published]
    for item in found.judgements:
        partly = item.withheld is not None and item.withheld.reason in {
            Reason.OVER_LIMIT,
            Reason.SAME_NAME,
        }
        assert partly or bool(item.published) != bool(item.withheld)
        if item.withheld is not None:
            assert item.withheld.detail
            assert printable(item.withheld.detail) == item.withheld.detail
    assert sorted(published, key=lambda device: device.name) == list(found.offered)


@FEW
@given(machines, st.sampled_from([0, 1, 2, 3]))
def test_the_limit_leaves_out_the_last_names_and_changes_nothing_else(
    machine: Snapshot, limit: int
) -> None:
    everything = inventory(machine, Policy(limit=None)).offered
    assert inventory(machine, Policy(limit=limit)).offered == everything[:limit]
