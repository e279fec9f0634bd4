"""ResourceClaims, as far as a node has to understand them.

The kubelet names a claim by namespace, name and uid, and nothing else. What was allocated stands
in the claim's status: for each request a driver, a pool and a device, in one list with the results
of other drivers. A claim may have been deleted and made anew under its name while the kubelet
still asks for the old one: then the uid differs.

This file holds these values, reads a claim from the object that the API server (or a file) holds,
and says how a claim is refused. What a claim's devices are on this machine is decided in
`core.model.prepared`; what is written for them in `core.plan.cdi`.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from liken_events.core.model.json import Json
from liken_events.core.model.names import printable

API_VERSION = "resource.k8s.io/v1"
KIND = "ResourceClaim"

_UID = re.compile(r"[A-Za-z0-9]([A-Za-z0-9-]{0,62}[A-Za-z0-9])?")
"""What a uid may be that becomes part of a file's name and of a CDI device's name. The API server
makes UUIDs, of 36 characters."""

_LABEL = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
"""A DNS label, as the API server has device names; one from a file may be anything."""


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class ClaimReference:
    """How the kubelet names a claim. The uid alone identifies it: a name is used again."""

    namespace: str
    name: str
    uid: str

    @property
    def is_valid(self) -> bool:
        """Whether the uid can be a part of file names and CDI names."""
        return _UID.fullmatch(self.uid) is not None

    def __str__(self) -> str:
        """`namespace/name`, safe to print."""
        return printable(f"{self.namespace}/{self.name}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """A judgement: this cannot be done now. `reason` is one short sentence for a person, safe to
    print, and the same whenever the reason is: the kubelet makes an event of it."""

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Allocated:
    """One device that the scheduler gave to a claim.

    Attributes:
        request: the main request that it answers; a request with alternatives is named `main/sub`
            in the claim, and the kubelet knows `main`.
        pool: the pool's name, which is a node's.
        device: the published name.
        share_id: tells shares of one device apart; None where it is not shared.
        is_admin: the claim may have the device although others use it (`adminAccess`).
    """

    request: str
    pool: str
    device: str
    share_id: str | None = None
    is_admin: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """A claim with what was allocated to it by our driver, in the order of its status."""

    reference: ClaimReference
    allocated: tuple[Allocated, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Granted:
    """What the kubelet is told of one allocated device.

    Attributes:
        request: see `Allocated`.
        pool, device: as allocated.
        cdi_id: the id that the container runtime is given: `liken.sh/device=<uid>-<device>`.
        share_id: see `Allocated`.
    """

    request: str
    pool: str
    device: str
    cdi_id: str
    share_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceHealth:
    """How a device fares that a prepared claim holds.

    Attributes:
        device: the published name.
        is_healthy: what a container that was started when the claim was prepared has, works.
        message: what is wrong and what to do, safe to print; `""` if nothing is.
    """

    device: str
    is_healthy: bool
    message: str = ""


def is_device_name(text: str) -> bool:
    """Whether a published device can be called so."""
    return _LABEL.fullmatch(text) is not None


def read_claim(
    body: Mapping[str, Json] | None, reference: ClaimReference, driver: str
) -> Claim | Refused:
    """What our driver is to prepare for a claim.

    Args:
        body: the ResourceClaim object; None if there is none of that name.
        reference: what was asked for.
        driver: whose results count; those of others are left out.
    """
    if body is None:
        return Refused(reason=f"the claim {reference} does not exist any more")
    metadata = _mapping(body.get("metadata"))
    if metadata.get("uid") != reference.uid:
        return Refused(reason=f"the claim {reference} was made anew since: its uid is another")
    allocation = _mapping(body.get("status")).get("allocation")
    if not isinstance(allocation, dict):
        return Refused(reason=f"the claim {reference} has no allocation")
    not_understood = Refused(reason=f"the allocation of the claim {reference} is not understood")
    results = _results(allocation)
    if results is None:
        return not_understood
    allocated = []
    for result in results:
        if not isinstance(result, dict):
            return not_understood
        if result.get("driver") != driver:
            continue
        request, pool, device = (result.get(key) for key in ("request", "pool", "device"))
        if not (isinstance(request, str) and isinstance(pool, str) and isinstance(device, str)):
            return not_understood
        if not is_device_name(device):
            return Refused(reason=f"'{printable(device)}' in the claim {reference} is no device")
        share = result.get("shareID")
        allocated.append(
            Allocated(
                request=request.partition("/")[0],
                pool=pool,
                device=device,
                share_id=share if isinstance(share, str) else None,
                is_admin=result.get("adminAccess") is True,
            )
        )
    return Claim(reference=reference, allocated=tuple(allocated))


def _results(allocation: Mapping[str, Json]) -> list[Json] | None:
    """The allocated devices; None if there is something else in their place. What is not
    understood must not pass for nothing: a pod would start without its device."""
    devices = allocation.get("devices")
    results = devices.get("results") if isinstance(devices, dict) else devices
    if results is None:
        return []
    return results if isinstance(devices, dict) and isinstance(results, list) else None


def _mapping(value: Json) -> Mapping[str, Json]:
    return value if isinstance(value, dict) else {}
