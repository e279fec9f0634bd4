from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest

from liken_events.core.model.device import PublishedDevice
from liken_events.core.model.json import Json
from liken_events.core.model.snapshot import Key, Node
from liken_events.core.plan.slice_body import Learned
from liken_events.core.plan.slices import (
    CreateSlice,
    DeleteSlice,
    Observed,
    ObservedSlice,
    PatchSlice,
    after,
    plan,
)
from tests.fakes.apirules import apply_patch

OWNERS: list[Json] = [{"apiVersion": "v1", "kind": "Node", "name": "n1", "uid": "node-uid"}]


def offer(*names: str, **attributes: str) -> list[PublishedDevice]:
    """Devices of these names, all with the same attributes."""
    return [
        PublishedDevice(
            name=name,
            key=Key(bus="usb", address=name),
            nodes=(),
            attributes=tuple(attributes.items()),
        )
        for name in names
    ]


def many(count: int) -> list[PublishedDevice]:
    return offer(*(f"d{number:03d}" for number in range(count)))


def body(
    *names: str,
    name: str = "n1-liken.sh",
    version: str = "7",
    generation: Json = 3,
    count: Json = 1,
    owners: Json = None,
    **spec: Json,
) -> dict[str, Json]:
    """A slice as the other side holds it."""
    metadata: dict[str, Json] = {"name": name, "uid": f"uid-of-{name}", "resourceVersion": version}
    if owners is not None:
        metadata["ownerReferences"] = owners
    pool: dict[str, Json] = {"name": "n1", "generation": generation, "resourceSliceCount": count}
    devices: list[Json] = [{"name": device} for device in names]
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": metadata,
        "spec": {
            "driver": "liken.sh",
            "nodeName": "n1",
            "pool": pool,
            "devices": devices,
            **spec,
        },
    }


def seen(*bodies: dict[str, Json], **fields: Any) -> Observed:
    slices = tuple(ObservedSlice.from_body(item) for item in bodies)
    return Observed(node="n1", slices=slices, **fields)


def only_patch(observed: Observed, offered: Iterable[PublishedDevice]) -> PatchSlice:
    (change,) = plan(observed, list(offered))
    assert isinstance(change, PatchSlice)
    return change


def edits(observed: Observed, offered: Iterable[PublishedDevice]) -> list[Json]:
    """What a patch does besides locking the version and counting the generation up."""
    change = only_patch(observed, offered)
    lock, *rest, generation = change.operations
    assert lock == {"op": "replace", "path": "/metadata/resourceVersion", "value": "7"}
    assert generation == {"op": "add", "path": "/spec/pool/generation", "value": 4}
    assert (change.name, change.uid, change.version) == ("n1-liken.sh", "uid-of-n1-liken.sh", "7")
    return rest


def test_the_first_device_makes_the_slice() -> None:
    assert plan(seen(node_uid="node-uid"), offer("a", bus="usb")) == (
        CreateSlice(
            name="n1-liken.sh",
            body={
                "apiVersion": "resource.k8s.io/v1",
                "kind": "ResourceSlice",
                "metadata": {"name": "n1-liken.sh", "ownerReferences": OWNERS},
                "spec": {
                    "driver": "liken.sh",
                    "nodeName": "n1",
                    "pool": {"name": "n1", "generation": 1, "resourceSliceCount": 1},
                    "devices": [{"name": "a", "attributes": {"bus": {"string": "usb"}}}],
                },
            },
        ),
    )


def test_without_a_node_there_is_no_owner() -> None:
    (change,) = plan(seen(), offer("a"))
    assert isinstance(change, CreateSlice)
    assert change.body["metadata"] == {"name": "n1-liken.sh"}


def test_the_last_device_takes_the_slice_with_it() -> None:
    expected = DeleteSlice(name="n1-liken.sh", uid="uid-of-n1-liken.sh", version="7")
    assert plan(seen(body("a")), []) == (expected,)


def test_nothing_is_done_where_nothing_changed_or_is_offered() -> None:
    assert plan(seen(body("a", "b")), offer("a", "b")) == ()
    assert plan(seen(body("a", owners=OWNERS), node_uid="node-uid"), offer("a")) == ()
    assert plan(seen(), []) == ()


def test_a_device_that_came_back_under_another_number_is_the_same_to_the_slice() -> None:
    (device,) = offer("a", bus="usb")
    moved = replace(device, nodes=(Node(path="/dev/bus/usb/001/009", major=189, minor=8),))
    observed = seen()
    for change in plan(observed, [device]):
        observed = replace(observed, slices=after(observed.slices, change))
    assert moved != device
    assert plan(observed, [moved]) == ()


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("ac", "abc", [("add", 1, "b")]),
        ("b", "ab", [("add", 0, "a")]),
        ("a", "ab", [("add", 1, "b")]),
        ("abc", "ac", [("remove", 1, None)]),
        ("abc", "bc", [("remove", 0, None)]),
        ("abc", "ab", [("remove", 2, None)]),
        ("ab", "cd", [("add", 2, "d"), ("add", 2, "c"), ("remove", 1, None), ("remove", 0, None)]),
        ("bd", "ace", [("add", 2, "e"), ("remove", 1, None), ("add", 1, "c"), ("remove", 0, None),
                       ("add", 0, "a")]),
        ("abcdef", "abxdef", [("add", 6, "x"), ("remove", 2, None)]),
    ],
)  # fmt: skip
def test_a_patch_carries_only_the_devices_that_changed(
    old: str, new: str, expected: list[tuple[str, int, str | None]]
) -> None:
    found = edits(seen(body(*old)), offer(*sorted(new)))
    assert found == [
        {"op": kind, "path": f"/spec/devices/{index}"}
        | ({} if name is None else {"value": {"name": name}})
        for kind, index, name in expected
    ]


def test_a_device_that_changed_is_replaced() -> None:
    new = offer("a", "b", "c")
    new[1:2] = offer("b", bus="usb")
    expected = {"name": "b", "attributes": {"bus": {"string": "usb"}}}
    assert edits(seen(body("a", "b", "c")), new) == [
        {"op": "replace", "path": "/spec/devices/1", "value": expected}
    ]


@pytest.mark.parametrize(
    "devices",
    [
        None,
        "devices",
        {"name": "a"},
        [{"name": "b"}, {"name": "a"}],
        [{"name": "a"}, {"name": "a"}],
        [{"name": ""}, {"name": "b"}],
        [{}, {"name": "b"}],
        [7, {"name": "b"}],
        [{"name": 7}],
        [None],
        [None, {"name": "b"}],
        [[{"name": "a"}]],
    ],
)
def test_a_list_of_devices_that_is_not_ours_is_put_right(devices: Json) -> None:
    observed = seen(body(devices=devices))
    for names in ("a", "ab", "bc", "abc"):
        change = only_patch(observed, offer(*names))
        assert change.body["spec"] == body(*names, generation=4)["spec"]
        (old,) = observed.slices
        assert apply_patch(old.body, list(change.operations)) == change.body


@pytest.mark.parametrize(
    "owners",
    [None, [], [{"apiVersion": "v1", "kind": "Node", "name": "n1", "uid": "old-uid"}]],
)
def test_the_owner_is_put_right_when_the_node_is_known(owners: Json) -> None:
    observed = seen(body("a", owners=owners), node_uid="node-uid")
    assert edits(observed, offer("a")) == [
        {"op": "add", "path": "/metadata/ownerReferences", "value": OWNERS}
    ]
    metadata = only_patch(observed, offer("a")).body["metadata"]
    assert isinstance(metadata, dict)
    assert metadata["ownerReferences"] == OWNERS


def test_an_owner_is_left_alone_while_the_node_is_not_known() -> None:
    odd: list[Json] = [{"kind": "Node", "uid": "other"}]
    assert plan(seen(body("a", owners=odd)), offer("a")) == ()


@pytest.mark.parametrize(
    ("observed", "count", "generation"),
    [
        (seen(body("a", count=2)), 1, 4),
        (seen(body("a", count=None)), 1, 4),
        (seen(body("a", generation=None)), None, 1),
        (seen(body("a", generation="3")), None, 1),
        (seen(body("a", generation=3), last_generation=8), None, 9),
        (seen(body("a", count=2), last_generation=2), 1, 4),
    ],
)
def test_the_pool_is_put_right(observed: Observed, count: int | None, generation: int) -> None:
    _, *operations = only_patch(observed, offer("a")).operations
    expected = [{"op": "add", "path": "/spec/pool/generation", "value": generation}]
    if count is not None:
        expected += [{"op": "add", "path": "/spec/pool/resourceSliceCount", "value": count}]
    assert operations == expected


def test_a_slice_that_is_made_anew_goes_on_counting() -> None:
    (change,) = plan(seen(last_generation=41), offer("a"))
    assert isinstance(change, CreateSlice)
    assert ObservedSlice.from_body(change.body).generation == 42


@pytest.mark.parametrize(
    "foreign",
    [
        body("a", driver="other.example"),
        body("a", nodeName="n2"),
        body("a", nodeName=None),
        body("a", pool={"name": "other", "generation": 3, "resourceSliceCount": 1}),
        body("a", pool="pool"),
        body("a") | {"spec": None},
    ],
)
def test_what_somebody_else_put_under_our_name_is_made_anew(foreign: dict[str, Json]) -> None:
    gone, made = plan(seen(foreign), offer("a"))
    assert gone == DeleteSlice(name="n1-liken.sh", uid="uid-of-n1-liken.sh", version="7")
    assert isinstance(made, CreateSlice)
    assert ObservedSlice.from_body(made.body).generation in {1, 4}


@pytest.mark.parametrize(("other", "reached"), [(5, 6), (3, 4), (1, 4)])
def test_a_slice_that_is_not_wanted_goes_and_the_others_count_up(other: int, reached: int) -> None:
    surplus = body("z", name="other", generation=other)
    patch, gone = plan(seen(body("a"), surplus), offer("a"))
    assert isinstance(patch, PatchSlice)
    assert ObservedSlice.from_body(patch.body).generation == reached
    assert gone == DeleteSlice(name="other", uid="uid-of-other", version="7")


@pytest.mark.parametrize(
    ("count", "divide", "sizes"),
    [
        (128, False, [128]),
        (129, False, [128]),
        (300, False, [128]),
        (128, True, [128]),
        (129, True, [128, 1]),
        (300, True, [128, 128, 44]),
    ],
)
def test_a_pool_is_divided_if_that_is_wanted(count: int, divide: bool, sizes: list[int]) -> None:
    changes = plan(seen(divide=divide), many(count))
    names = ["n1-liken.sh", "n1-liken.sh-1", "n1-liken.sh-2"]
    found: list[str] = []
    for change, name, size in zip(changes, names[: len(sizes)], sizes, strict=True):
        assert isinstance(change, CreateSlice)
        assert change.name == name
        spec: Any = change.body["spec"]
        assert spec["pool"] == {
            "name": "n1",
            "generation": 1,
            "resourceSliceCount": len(sizes),
        }
        assert len(spec["devices"]) == size
        found += [device["name"] for device in spec["devices"]]
    assert found == [device.name for device in many(sum(sizes))]


def test_a_pool_is_one_slice_unless_something_else_is_said() -> None:
    assert len(plan(seen(), many(129))) == 1


def test_what_the_other_side_refused_is_left_out() -> None:
    refused = Learned(devices={"b": {"name": "b"}})
    assert plan(seen(body("a"), learned=refused), offer("a", "b")) == ()
    assert edits(seen(body("a", "b"), learned=refused), offer("a", "b")) == [
        {"op": "remove", "path": "/spec/devices/1"}
    ]
    everything = Learned(devices={"a": {"name": "a"}})
    (change,) = plan(seen(body("a"), learned=everything), offer("a"))
    assert isinstance(change, DeleteSlice)


def test_an_observed_slice_is_read_from_its_object() -> None:
    found = ObservedSlice.from_body(body("a"))
    assert (found.name, found.uid, found.version) == ("n1-liken.sh", "uid-of-n1-liken.sh", "7")
    assert found.generation == 3
    assert found.body == body("a")


@pytest.mark.parametrize(
    "odd",
    [
        {},
        {"metadata": None, "spec": None},
        {"metadata": [], "spec": "x"},
        {"metadata": {"name": 7, "uid": None, "resourceVersion": 8}, "spec": {"pool": 1}},
        {"spec": {"pool": {"generation": "1"}}},
        {"spec": {"pool": {"generation": True}}},
        {"spec": {"pool": {"generation": 1.5}}},
    ],
)
def test_what_an_object_lacks_is_empty(odd: dict[str, Json]) -> None:
    found = ObservedSlice.from_body(odd)
    assert (found.name, found.uid, found.version, found.generation) == ("", "", "", 0)


def test_after_a_change_is_what_the_change_says() -> None:
    old = (ObservedSlice.from_body(body("a")),)
    assert after(old, DeleteSlice(name="n1-liken.sh", uid="", version="")) == ()
    assert after(old, DeleteSlice(name="other", uid="", version="")) == old
    (patched,) = after(old, only_patch(seen(body("a")), offer("b")))
    assert patched.version == "8"
    (first,) = after((), only_patch(seen(body("a", version="")), offer("b")))
    assert first.version == "1"
    assert patched.body["spec"] == body("b", generation=4)["spec"]
    made = after(old, CreateSlice(name="m", body=body("z", name="m")))
    assert [(item.name, item.version) for item in made] == [("m", "1"), ("n1-liken.sh", "7")]
