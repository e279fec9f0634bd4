import pytest
from hypothesis import given
from hypothesis import strategies as st

from liken_events.cluster import Rejected
from liken_events.cluster.claim_file import MOST_BYTES, ClaimFile, has_ended, load_claim
from liken_events.cluster.plain_yaml import emit
from liken_events.core.model.claims import ClaimReference
from tests.cluster.claim_bodies import OTHER_UID, UID, claim_body

CAMERA = ClaimReference(namespace="default", name="camera", uid=UID)


def text(**metadata: object) -> str:
    body = claim_body("a")
    body["metadata"] = {**body["metadata"], **metadata}
    return emit(body)


def load(written: str | bytes) -> object:
    data = written if isinstance(written, bytes) else written.encode()
    return load_claim(data, "default", "camera")


def test_a_claim_is_the_object_and_its_uid() -> None:
    assert load(text()) == (UID, claim_body("a"))


def test_a_file_as_large_as_is_read_is_read() -> None:
    written = text()
    assert load(written + "#" * (MOST_BYTES - len(written))) == (UID, claim_body("a"))


@pytest.mark.parametrize(
    ("written", "reason"),
    [
        ("", "is empty: write the claim into it, or remove it to end the claim"),
        (" \n", "is empty"),
        ("# soon\n", "holds no ResourceClaim: correct its kind, or remove it"),
        ("a: [1\nb: 2\n", "cannot be understood (line 2: "),
        (text()[:-20] + ": :", "cannot be understood (line "),
        ("a: &x [1]\nb: *x\n", "cannot be understood (line 1: an alias: write out"),
        ("kind: a\x1bb", "cannot be understood (a character that YAML does not allow)"),
        (b"kind: \xff\n", "is no text in UTF-8: write it anew, or remove it"),
        ("\ufeff".encode("utf-16"), "is no text in UTF-8"),
        ("#" * (MOST_BYTES + 1), "is larger than 256 KiB: make it smaller"),
        ("- kind: ResourceClaim\n", "holds no ResourceClaim"),
        (text().replace("ResourceClaim", "ResourceSlice"), "holds no ResourceClaim"),
        (text().replace("k8s.io/v1", "k8s.io/v1beta1"), "has another apiVersion than resource.k8"),
        ("apiVersion: resource.k8s.io/v1\nkind: ResourceClaim\n", "has no metadata: add namespa"),
        (
            text(namespace="other"),
            "says another namespace inside than its path: set metadata.name",
        ),
        (text(namespace=None), "says another namespace inside than its path: set metadata.name"),
        (text(name="other"), "says another name inside than its path: set metadata.name to camer"),
        (text(name=1), "says another name inside than its path"),
        (text(uid=""), "has no valid uid: set metadata.uid to a UUID, as `uuidgen` prints one"),
        (text(uid="../../etc"), "has no valid uid"),
        (text(uid="x" * 65), "has no valid uid"),
        (text(uid=7), "has no valid uid"),
        (text(uid=None), "has no valid uid"),
    ],
)
def test_what_is_no_such_claim_is_said_with_what_to_do(written: str | bytes, reason: str) -> None:
    with pytest.raises(Rejected) as caught:
        load(written)
    assert caught.value.reason.startswith(reason)
    assert caught.value.reason.isprintable()


@given(st.binary(max_size=100))
def test_any_bytes_are_judged(data: bytes) -> None:
    with pytest.raises(Rejected):
        load(data)


def file(namespace: str = "default", name: str = "camera", uid: str = "") -> ClaimFile:
    return ClaimFile(path="/x", namespace=namespace, name=name, uid=uid, body={}, problem="bad")


def test_a_file_names_its_claim() -> None:
    assert file(uid=UID).reference == CAMERA


@pytest.mark.parametrize(
    ("files", "ended"),
    [
        ([], True),
        ([file(uid=UID)], False),
        ([file(uid=OTHER_UID)], True),
        ([file(uid="")], False),
        ([file(name="other", uid=UID)], True),
        ([file(namespace="other", uid=UID)], True),
        ([file(name="other"), file(namespace="other")], True),
        ([file(name="")], False),
        ([file(namespace="other", name="")], True),
        ([file(namespace="", name="")], False),
        ([file(namespace="", name="camera")], True),
        ([file(name=""), file(uid=OTHER_UID)], False),
    ],
)
def test_a_claim_ends_with_its_file_and_not_with_a_mistake_in_it(
    files: list[ClaimFile], ended: bool
) -> None:
    assert has_ended(CAMERA, files) is ended
    assert has_ended(CAMERA, reversed(files)) is ended
