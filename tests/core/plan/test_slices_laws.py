"""Laws of the plan: from whatever is there it leads to what is offered, and then to rest."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from liken_events.core.model.device import PublishedDevice
from liken_events.core.model.json import Json
from liken_events.core.model.snapshot import Key
from liken_events.core.plan.slice_body import Learned
from liken_events.core.plan.slices import (
    CreateSlice,
    DeleteSlice,
    Observed,
    ObservedSlice,
    PatchSlice,
    SliceChange,
    after,
    plan,
)
from tests.fakes.apirules import apply_patch
from tests.fakes.apistate import State

NODE = "n1"
NAMES = [f"n1-liken.sh{end}" for end in ("", "-1", "-2")]

words = st.sampled_from(["", "a", "b"])


def device(name: str, text: str, shareable: bool) -> PublishedDevice:
    attributes = (("serial", text),) if text else ()
    key = Key(bus="usb", address=name)
    return PublishedDevice(
        name=name, key=key, nodes=(), shareable=shareable, attributes=attributes
    )


def few(names: st.SearchStrategy[str]) -> st.SearchStrategy[list[PublishedDevice]]:
    return st.lists(
        st.builds(device, names, words, st.booleans()), max_size=6, unique_by=lambda d: d.name
    )


@st.composite
def offers(draw: st.DrawFn) -> list[PublishedDevice]:
    """A few devices, or so many that they fill slices, with some of them changed."""
    found = {item.name: item for item in draw(few(st.sampled_from("abcdefgh")))}
    for number in range(draw(st.sampled_from([0, 0, 0, 120, 127, 128, 250, 257]))):
        found.setdefault(f"d{number:03d}", device(f"d{number:03d}", "", False))
    for item in draw(few(st.integers(0, 257).map(lambda number: f"d{number:03d}"))):
        found[item.name] = item
    return [found[name] for name in sorted(found)]


junk: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.integers(-2, 3) | st.sampled_from(["", "n1", "liken.sh", "a"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["name", "generation", "devices"]), inner, max_size=3)
    ),
    max_leaves=5,
)
bodies = st.builds(
    lambda name, text: {"name": name, "attributes": {"serial": {"string": text}}},
    st.sampled_from("abcdefgh"),
    words,
)


@st.composite
def strange_slices(draw: st.DrawFn) -> list[dict[str, Json]]:
    """Slices that were never written by us: other drivers', half ones, nonsense."""
    found: list[dict[str, Json]] = []
    for name in sorted(draw(st.sets(st.sampled_from([*NAMES, "foreign"]), max_size=3))):
        metadata: dict[str, Json] = {
            "name": name,
            "uid": f"uid-of-{name}",
            "resourceVersion": str(draw(st.integers(1, 99))),
        }
        if draw(st.booleans()):
            metadata["ownerReferences"] = draw(junk)
        pool = {"name": NODE, "generation": draw(junk), "resourceSliceCount": draw(junk)}
        spec = {
            "driver": draw(st.sampled_from(["liken.sh", "liken.sh", "liken.sh", "other"])),
            "nodeName": draw(st.sampled_from([NODE, NODE, NODE, "n2"])),
            "pool": draw(st.just(pool) | st.just(pool) | junk),
            "devices": draw(st.lists(bodies | junk, max_size=5) | junk),
            "more": draw(junk),
        }
        found.append({"metadata": metadata, "spec": draw(st.just(spec) | st.just(spec) | junk)})
    return found


@st.composite
def learneds(draw: st.DrawFn) -> Learned:
    refused: dict[str, Json] = {name: {"name": name} for name in draw(st.sets(words))}
    return Learned(
        dropped=draw(st.sampled_from([frozenset(), frozenset({"allowMultipleAllocations"})])),
        attributes=draw(
            st.frozensets(st.tuples(st.sampled_from("abcd"), st.just("serial"), words))
        ),
        devices=refused,
    )


@st.composite
def anywhere(draw: st.DrawFn) -> Observed:
    """Whatever may be there: what we left at some time, or what somebody else made."""
    observed = Observed(
        node=NODE,
        node_uid=draw(st.sampled_from([None, "uid-1", "uid-2"])),
        last_generation=draw(st.integers(0, 5)),
        divide=draw(st.booleans()),
        learned=draw(st.just(Learned()) | learneds()),
    )
    if draw(st.booleans()):
        slices = tuple(ObservedSlice.from_body(item) for item in draw(strange_slices()))
        return replace(observed, slices=slices)
    before = replace(
        observed,
        node_uid=draw(st.sampled_from([None, "uid-1"])),
        divide=draw(st.booleans()),
        learned=Learned(),
    )
    slices = carry_out(before, plan(before, draw(offers()))).slices
    lost = draw(st.sets(st.sampled_from(NAMES), max_size=1))
    return replace(observed, slices=tuple(item for item in slices if item.name not in lost))


def carry_out(observed: Observed, changes: Iterable[SliceChange]) -> Observed:
    """What is there after the changes, as the model of them says."""
    slices = observed.slices
    for change in changes:
        slices = after(slices, change)
    return replace(observed, slices=slices)


def specs(observed: Observed) -> list[dict[str, Any]]:
    found: list[Any] = [item.body["spec"] for item in observed.slices]
    return found


@given(anywhere(), offers())
def test_from_anywhere_one_plan_leads_to_rest(
    observed: Observed, offered: list[PublishedDevice]
) -> None:
    reached = carry_out(observed, plan(observed, offered))
    assert plan(reached, offered) == ()


@given(anywhere(), offers())
def test_what_is_reached_says_what_is_offered(
    observed: Observed, offered: list[PublishedDevice]
) -> None:
    observed = replace(observed, learned=Learned())
    reached = carry_out(observed, plan(observed, offered))
    room = len(offered) if observed.divide else min(len(offered), 128)
    assert [device["name"] for spec in specs(reached) for device in spec["devices"]] == [
        device.name for device in offered[:room]
    ]
    assert [item.name for item in reached.slices] == NAMES[: len(reached.slices)]
    for spec in specs(reached):
        assert (spec["driver"], spec["nodeName"], spec["pool"]["name"]) == ("liken.sh", NODE, NODE)
        assert spec["pool"]["resourceSliceCount"] == len(reached.slices)
        assert 1 <= len(spec["devices"]) <= 128


@given(anywhere(), offers())
def test_the_generation_grows_with_every_change_and_is_one_for_the_whole_pool(
    observed: Observed, offered: list[PublishedDevice]
) -> None:
    changes = plan(observed, offered)
    highest = max([observed.last_generation, *(item.generation for item in observed.slices)])
    generations = {item.generation for item in carry_out(observed, changes).slices}
    assert len(generations) <= 1
    if changes:
        assert all(generation > highest for generation in generations)


@given(anywhere(), offers())
def test_the_operations_of_a_patch_make_exactly_what_the_change_says(
    observed: Observed, offered: list[PublishedDevice]
) -> None:
    state = observed.slices
    for change in plan(observed, offered):
        known = {item.name: item for item in state}
        if isinstance(change, PatchSlice):
            old = known[change.name]
            assert (change.uid, change.version) == (old.uid, old.version)
            assert change.operations[0] == {
                "op": "replace",
                "path": "/metadata/resourceVersion",
                "value": old.version,
            }
            assert len(change.operations) > 1
            assert apply_patch(old.body, list(change.operations)) == change.body
        elif isinstance(change, DeleteSlice):
            old = known[change.name]
            assert (change.uid, change.version) == (old.uid, old.version)
        else:
            assert change.name not in known
        state = after(state, change)


def device_operations(changes: Sequence[SliceChange]) -> list[dict[str, Json]]:
    found: list[dict[str, Json]] = []
    for change in changes:
        if isinstance(change, PatchSlice):
            for item in change.operations:
                assert isinstance(item, dict)
                if str(item["path"]).startswith("/spec/devices"):
                    found.append(item)
    return found


@given(offers(), offers())
def test_a_patch_touches_each_device_that_differs_once_and_no_other(
    before: list[PublishedDevice], wanted: list[PublishedDevice]
) -> None:
    start = Observed(node=NODE)
    observed = carry_out(start, plan(start, before[:128]))
    operations = device_operations(plan(observed, wanted[:128]))
    old = {device.name: device for device in before[:128]}
    new = {device.name: device for device in wanted[:128]}
    if not (old and new):
        assert operations == []
        return
    touched: dict[str, list[str]] = {"add": [], "replace": []}
    for operation in operations:
        if operation["op"] != "remove":
            value: Any = operation["value"]
            touched[str(operation["op"])].append(value["name"])
    both = new.keys() & old.keys()
    assert sorted(touched["add"]) == sorted(new.keys() - old.keys())
    assert sorted(touched["replace"]) == sorted(name for name in both if new[name] != old[name])
    assert sum(op["op"] == "remove" for op in operations) == len(old.keys() - new.keys())


def view(slices: Iterable[ObservedSlice]) -> list[Any] | None:
    """What a scheduler sees: the slices of the highest generation, if all of them are there."""
    pools: list[Any] = [item.body["spec"] for item in slices]
    newest = max((spec["pool"]["generation"] for spec in pools), default=0)
    found = [spec for spec in pools if spec["pool"]["generation"] == newest]
    if found and len(found) != found[0]["pool"]["resourceSliceCount"]:
        return None
    return sorted((device for spec in found for device in spec["devices"]), key=str)


@given(offers(), offers(), st.booleans(), st.booleans())
def test_on_the_way_a_scheduler_sees_the_old_pool_or_the_new_one_and_no_mixture(
    before: list[PublishedDevice],
    wanted: list[PublishedDevice],
    divided: bool,
    divide: bool,
) -> None:
    start = Observed(node=NODE, divide=divided)
    observed = replace(carry_out(start, plan(start, before)), divide=divide)
    changes = plan(observed, wanted)
    old, new = view(observed.slices), view(carry_out(observed, changes).slices)
    state = observed.slices
    for change in changes:
        state = after(state, change)
        seen = view(state)
        assert seen is None or seen in (old, new)
    assert view(state) is not None


def served(state: State, observed: Observed) -> Observed:
    found, _ = state.select({"spec.nodeName": NODE, "spec.driver": "liken.sh"})
    return replace(observed, slices=tuple(ObservedSlice.from_body(item) for item in found))


def send(state: State, change: SliceChange) -> None:
    match change:
        case CreateSlice():
            state.create(change.body)
        case PatchSlice():
            body = state.patch(change.name, list(change.operations))
            assert body["spec"] == change.body["spec"]
        case DeleteSlice():
            wanted = {"uid": change.uid, "resourceVersion": change.version}
            state.delete(change.name, wanted)


@given(st.lists(st.tuples(offers(), st.booleans()), min_size=1, max_size=4))
def test_a_server_that_checks_everything_takes_every_change(
    wishes: list[tuple[list[PublishedDevice], bool]],
) -> None:
    state = State()
    observed = Observed(node=NODE, node_uid=state.add_node(NODE))
    for offered, divide in wishes:
        observed = served(state, replace(observed, divide=divide))
        for change in plan(observed, offered):
            send(state, change)
        version = state.version
        observed = served(state, observed)
        assert plan(observed, offered) == ()
        assert state.version == version
        assert all(item.generation for item in observed.slices)
