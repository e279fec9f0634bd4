import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from liken_events.core.model.claim_record import FORMAT, from_json, to_json
from liken_events.core.model.claims import ClaimReference
from liken_events.core.model.prepared import Prepared, PreparedDevice
from liken_events.core.model.reading import ReadingError
from liken_events.core.model.snapshot import Key, Node
from tests.core import generated
from tests.fakes.devices import drm, pci
from tests.fakes.held import UID, claims_held, held, prepared

BOOT = "b2c6c5d0-8a70-4b7c-9b0e-0f3b7f0f6a11"
BUS = Node(path="/dev/bus/usb/001/007", subsystem="usb", major=189, minor=6)
PORT = Node(path="/dev/ttyUSB0", subsystem="tty", major=188, minor=0, place="ttyUSB0/tty/ttyUSB0")
CLAIM = Prepared(
    reference=ClaimReference(namespace="default", name="c", uid=UID),
    devices=(
        PreparedDevice(
            name="pci-0000-00-1d-0",
            key=Key(bus="pci", address="0000:00:1d.0"),
            is_shared=True,
        ),
        PreparedDevice(
            name="usb-1-2-1-0",
            key=Key(bus="usb", address="1-2:1.0"),
            vendor="10c4",
            product="ea60",
            given=(BUS, PORT),
            nodes=(BUS,),
        ),
    ),
)

TEXT = """{
  "format": 1,
  "boot": "b2c6c5d0-8a70-4b7c-9b0e-0f3b7f0f6a11",
  "namespace": "default",
  "name": "c",
  "uid": "3f1c2a9e-7d5b-4f0a-9c1e-2b8d6a4e0f13",
  "devices": [
    {
      "name": "pci-0000-00-1d-0",
      "bus": "pci",
      "address": "0000:00:1d.0",
      "shared": true,
      "given": [],
      "nodes": []
    },
    {
      "name": "usb-1-2-1-0",
      "bus": "usb",
      "address": "1-2:1.0",
      "shared": false,
      "given": [
        {
          "path": "/dev/bus/usb/001/007",
          "subsystem": "usb",
          "major": 189,
          "minor": 6
        },
        {
          "path": "/dev/ttyUSB0",
          "subsystem": "tty",
          "major": 188,
          "minor": 0,
          "place": "ttyUSB0/tty/ttyUSB0"
        }
      ],
      "nodes": [
        {
          "path": "/dev/bus/usb/001/007",
          "subsystem": "usb",
          "major": 189,
          "minor": 6
        }
      ],
      "vendor": "10c4",
      "product": "ea60"
    }
  ]
}
"""


def test_a_record_says_what_is_held_and_since_which_boot() -> None:
    assert to_json(CLAIM, BOOT) == TEXT
    assert from_json(TEXT) == (CLAIM, BOOT)


@given(claims_held, generated.texts, generated.texts, generated.texts)
def test_any_claim_is_the_same_after_its_record(
    claim: Prepared, namespace: str, name: str, boot: str
) -> None:
    reference = ClaimReference(namespace=namespace, name=name, uid=claim.reference.uid)
    claim = Prepared(reference=reference, devices=claim.devices)
    text = to_json(claim, boot)
    assert from_json(text) == (claim, boot)
    assert from_json(text.encode().decode()) == (claim, boot), "it can be written to a file"
    assert to_json(claim, boot) == text


def test_a_record_tells_one_preparation_from_another() -> None:
    claim, _ = from_json(to_json(replace(CLAIM, stamp="f00d"), BOOT))
    assert (claim.stamp, from_json(TEXT)[0].stamp) == ("f00d", "")
    assert claim == CLAIM, "it is the same claim with the same devices"


@pytest.mark.parametrize(
    ("old", "new"),
    [("1-2:1.0", "1-2:1.0\\u0000"), ("/dev/ttyUSB0", "/dev/tty\\u0000USB0")],
)
def test_what_no_file_can_be_called_is_refused(old: str, new: str) -> None:
    with pytest.raises(ReadingError):
        from_json(TEXT.replace(old, new))


def test_a_claim_without_devices_has_a_record_too() -> None:
    empty = prepared()
    assert from_json(to_json(empty, "")) == (empty, "")


def test_every_part_of_a_gpu_has_its_record() -> None:
    nodes = [drm("card0", 0), drm("renderD128", 128)]
    gpu = pci("0000:03:00.0", "1002:73e3", "030000", "amdgpu", nodes=nodes)
    claim = prepared(held(gpu), held(gpu, "-display"))
    assert from_json(to_json(claim, BOOT)) == (claim, BOOT)


def test_a_record_that_was_cut_anywhere_is_refused_or_still_the_same() -> None:
    raw = to_json(CLAIM, "\N{SNOWMAN}").encode()
    whole = []
    for length in range(len(raw)):
        text = raw[:length].decode("utf-8", "replace")
        try:
            found = from_json(text)
        except ReadingError:
            continue
        assert found == (CLAIM, "\N{SNOWMAN}")
        whole.append(length)
    assert whole == [len(raw) - 1], "only the newline at the end can be missed"


def top(**changes: object) -> str:
    return json.dumps({**json.loads(TEXT), **changes})


def device(**changes: object) -> str:
    body = json.loads(TEXT)
    body["devices"][1] |= changes
    return json.dumps(body)


DEVICE = "the record, devices[1]"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "not JSON: "),
        ("\0" * 200, "not JSON: "),
        ("{}", "the record: 'format' should be a whole number"),
        ("[]", "the record: expected an object"),
        (top(format=FORMAT + 1), "format 2 is newer than this program reads (1)"),
        (top(format="1"), "the record: 'format' should be a whole number"),
        (top(boot=None), "the record: 'boot' should be text"),
        (top(namespace=7), "the record: 'namespace' should be text"),
        (top(name=None), "the record: 'name' should be text"),
        (top(uid=None), "the record: 'uid' should be text"),
        *(
            (top(uid=uid), "the record: 'uid' cannot be part of a file's name")
            for uid in ("", "../../etc/passwd", "a/b", "/", "..", "a\n", "a" * 65, "a\0b")
        ),
        (top(devices={}), "the record: 'devices' should be a list"),
        (top(devices=["usb-1-2-1-0"]), "the record, devices[0]: expected an object"),
        (
            top(devices=json.loads(TEXT)["devices"] * 2),
            "the record: two of its devices have one name",
        ),
        (device(name=None), f"{DEVICE}: 'name' should be text"),
        (device(name="../x"), "the record: '../x' is no device"),
        (device(name=""), "the record: '' is no device"),
        (device(name="a\x1b"), "the record: 'a\\x1b' is no device"),
        (device(bus="scsi"), "bus 'scsi' is neither pci nor usb"),
        (device(address=None), f"{DEVICE}: 'address' should be text"),
        (device(vendor=7), f"{DEVICE}: 'vendor' should be text"),
        (device(product=[]), f"{DEVICE}: 'product' should be text"),
        (device(shared="no"), f"{DEVICE}: 'shared' should be true or false"),
        (device(shared=None), f"{DEVICE}: 'shared' should be true or false"),
        (device(given=None), f"{DEVICE}: 'given' should be a list"),
        (device(given=["/dev/x"]), f"{DEVICE}, given[0]: expected an object"),
        (device(nodes=[{}]), f"{DEVICE}, nodes[0]: 'path' should be text"),
        (device(nodes=[{"path": ""}]), "the record: '' is no device node"),
        (device(given=[{"path": "/etc/x\n"}]), "the record: '/etc/x\\x0a' is no device node"),
        (
            device(nodes=[{"path": "/dev/x", "major": 1.5}]),
            f"{DEVICE}, nodes[0]: 'major' should be a whole number",
        ),
    ],
)
def test_what_is_no_record_is_refused_with_the_place_that_is_wrong(text: str, said: str) -> None:
    with pytest.raises(ReadingError) as caught:
        from_json(text)
    assert str(caught.value).startswith(said)


def test_what_a_newer_program_adds_to_the_same_format_is_left_out() -> None:
    assert from_json(top(colour="red")) == (CLAIM, BOOT)
    assert from_json(device(colour="red")) == (CLAIM, BOOT)


def test_devices_are_put_in_order() -> None:
    assert from_json(top(devices=json.loads(TEXT)["devices"][::-1])) == (CLAIM, BOOT)


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | generated.texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=10,
)


@given(st.data())
def test_any_value_in_any_place_is_read_or_refused(data: st.DataObject) -> None:
    body = json.loads(TEXT)
    here: Any = body
    while True:
        keys = list(here) if isinstance(here, dict) else list(range(len(here)))
        key = data.draw(st.sampled_from(keys))
        if not isinstance(here[key], dict | list) or not here[key] or data.draw(st.booleans()):
            here[key] = data.draw(values)
            break
        here = here[key]
    try:
        claim, boot = from_json(json.dumps(body))
    except ReadingError:
        return
    assert claim.reference.is_valid
    assert [item.name for item in claim.devices] == sorted({item.name for item in claim.devices})
    assert from_json(to_json(claim, boot)) == (claim, boot)
