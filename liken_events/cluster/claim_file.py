"""A ResourceClaim as a YAML file.

People write such files and edit them in place, so a reader meets half of one, mistakes of syntax,
and files that are no claim at all. A claim must not end by that: what its devices are used for
goes on.

This file judges the content of one file, says what is wrong and what to do about it, and when a
claim has ended. Finding the files is left to `cluster.claim_files`.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from liken_events.cluster import Rejected
from liken_events.cluster.plain_yaml import NotPlain, load
from liken_events.core.model.claims import API_VERSION, KIND, ClaimReference
from liken_events.core.model.json import Json

MOST_BYTES = 256 * 1024
"""Bytes of a file that are read. A claim of 32 devices, which is the most, takes 4 KiB; this much
takes 0.1 s to read (measured), in which nothing else happens."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimFile:
    """A file that is a claim, or may be one: that it is there is known also while it is broken.

    Attributes:
        path: where it is.
        namespace, name: what its path says. An entry without a name stands for a directory that
            cannot be read, or is no namespace: any claim in it may be there. Without a namespace
            too it stands for all of them.
        uid: the claim's; `""` if the file was not good at any time since this process began.
        body: the ResourceClaim object as it was when the file was last good; `{}` before.
        problem: what is wrong with the file now and what to do, one sentence that is safe to
            print; `""` if nothing is. While there is one, `uid` and `body` are those from before.
    """

    path: str
    namespace: str
    name: str
    uid: str = ""
    body: Mapping[str, Json]
    problem: str = ""

    @property
    def reference(self) -> ClaimReference:
        """The claim as the kubelet would name it."""
        return ClaimReference(namespace=self.namespace, name=self.name, uid=self.uid)


def has_ended(reference: ClaimReference, files: Iterable[ClaimFile]) -> bool:
    """Whether a claim is there no more: its file was removed, or holds another claim.

    A file that cannot be understood ends nothing, and neither does a directory that cannot be
    read.
    """
    for file in files:
        is_same = (file.namespace, file.name) == (reference.namespace, reference.name)
        is_around_it = not file.name and file.namespace in ("", reference.namespace)
        if is_around_it or (is_same and file.uid in ("", reference.uid)):
            return False
    return True


def load_claim(data: bytes, namespace: str, name: str) -> tuple[str, Mapping[str, Json]]:
    """The claim in a file: its uid and the object.

    Args:
        data: all of the file.
        namespace, name: what the file's path says.

    Raises:
        Rejected: it is no such claim. The reason lacks its subject, which is the file.
    """
    if not data.strip():
        raise Rejected("is empty: write the claim into it, or remove it to end the claim")
    if len(data) > MOST_BYTES:
        raise Rejected(f"is larger than {MOST_BYTES // 1024} KiB: make it smaller")
    try:
        body = load(data.decode())
    except UnicodeDecodeError:
        raise Rejected("is no text in UTF-8: write it anew, or remove it") from None
    except NotPlain as error:
        raise Rejected(
            f"cannot be understood ({error}): correct it, or remove it to end the claim"
        ) from None
    if not isinstance(body, dict) or body.get("kind") != KIND:
        raise Rejected(f"holds no {KIND}: correct its kind, or remove it")
    if body.get("apiVersion") != API_VERSION:
        raise Rejected(f"has another apiVersion than {API_VERSION}: correct it")
    metadata = body.get("metadata")
    if not isinstance(metadata, dict):
        raise Rejected("has no metadata: add namespace, name and uid")
    for key, right in (("namespace", namespace), ("name", name)):
        if metadata.get(key) != right:
            raise Rejected(
                f"says another {key} inside than its path: set metadata.{key} to {right}, or"
                " rename the file"
            )
    uid = metadata.get("uid")
    reference = ClaimReference(
        namespace=namespace, name=name, uid=uid if isinstance(uid, str) else ""
    )
    if not reference.is_valid:
        raise Rejected("has no valid uid: set metadata.uid to a UUID, as `uuidgen` prints one")
    return reference.uid, body
