from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from liken_events.cluster.slice_file import Emitter, dump_slice, load_slice
from liken_events.core.model.json import Json
from tests.fakes.slices import NAME, slice_body

texts = st.text(st.characters(codec="utf-8"), max_size=30) | st.sampled_from(
    ["yes", "null", "1e3", "0o7", "- a", "a: b", "#", "'", '"', "\x1b[31m", "\x85", "\u2028", "~"]
)
"""Strings that YAML would like to take for something else, and strings that break lines."""

devices = st.lists(
    st.fixed_dictionaries(
        {"name": texts},
        optional={
            "attributes": st.dictionaries(
                texts, st.fixed_dictionaries({"string": texts}) | st.just({"bool": True})
            ),
            "allowMultipleAllocations": st.booleans(),
        },
    ),
    max_size=4,
)


def body_of(items: list[Any]) -> dict[str, Json]:
    body: dict[str, Any] = slice_body()
    body["spec"]["devices"] = items
    return body


@given(devices)
def test_every_slice_comes_back_as_it_was(items: list[Any]) -> None:
    assert load_slice(dump_slice(body_of(items))) == body_of(items)


@given(st.lists(devices, min_size=2, max_size=4))
def test_what_was_written_before_does_not_show(versions: list[list[Any]]) -> None:
    emitter = Emitter()
    for items in versions:
        assert load_slice(emitter.dump(body_of(items))) == body_of(items)


def test_the_file_is_for_people() -> None:
    body: dict[str, Any] = slice_body("usb-1", "usb-2")
    body["spec"]["devices"][0]["attributes"] = {"name": {"string": "Café 'x'"}}
    assert dump_slice(body) == (
        "apiVersion: resource.k8s.io/v1\n"
        "kind: ResourceSlice\n"
        "metadata:\n"
        "  name: n1-liken.sh\n"
        "spec:\n"
        "  driver: liken.sh\n"
        "  nodeName: n1\n"
        "  pool:\n"
        "    name: n1\n"
        "    generation: 1\n"
        "    resourceSliceCount: 1\n"
        "  devices:\n"
        "  - name: usb-1\n"
        "    attributes:\n"
        "      name:\n"
        "        string: Café 'x'\n"
        "  - name: usb-2\n"
    )


def test_any_yaml_reader_understands_it() -> None:
    items: list[Any] = [{"name": "a", "attributes": {"n": {"string": "x" * 5000}}}]
    same = items * 3  # the same object again must not become a reference
    assert yaml.safe_load(dump_slice(body_of(same))) == body_of(same)
    assert "&" not in dump_slice(body_of(same))


@pytest.mark.parametrize("spec", [{}, {"devices": []}, {"devices": None}, {"devices": "odd"}])
def test_a_slice_without_devices_is_a_slice(spec: dict[str, Json]) -> None:
    body: dict[str, Json] = {"kind": "ResourceSlice", "metadata": {"name": NAME}, "spec": spec}
    assert load_slice(dump_slice(body)) == body


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{no yaml",
        "\x00",
        "[" * 10_000,
        "a: *missing",
        "- kind: ResourceSlice",
        "ResourceSlice",
        "kind: ConfigMap\nmetadata: {}\nspec: {}\n",
        "kind: ResourceSlice\nspec: {}\n",
        "kind: ResourceSlice\nmetadata: {}\n",
        "kind: ResourceSlice\nmetadata: []\nspec: {}\n",
        "kind: ResourceSlice\nmetadata: {}\nspec: text\n",
        "kind: ResourceSlice\nmetadata: {}\nspec: {}\n---\nkind: Other\n",
        "!!python/object/apply:os.getpid []",
        "kind: ResourceSlice\nmetadata: {a: !!timestamp 2001-13-99}\nspec: {}\n",
    ],
)
def test_what_is_no_slice_is_none(text: str) -> None:
    assert load_slice(text) is None


@given(st.text(max_size=60))
def test_any_text_can_be_read(text: str) -> None:
    found = load_slice(text)
    assert found is None or found["kind"] == "ResourceSlice"
