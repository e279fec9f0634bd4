"""Preparing and ending claims: the calls that make the kubelet wait for a device.

Before it makes a pod's sandbox, and after the pod's last container ended, the kubelet calls the
driver once with all claims of the pod. It waits 45 s. Each claim has to have an entry in the
answer, and an entry that is missing or strange fails the whole pod; the next try comes 60 to 90 s
later. A kubelet speaks v1, or v1beta1, which is the same without shares.

This file asks the keeper of claims for each, all at the same time, so that one that has to wait
holds up no other, and answers in time also for those that are not done. What preparing means is
left to the keeper.
"""

from collections.abc import Awaitable, Callable, Iterable
from types import ModuleType
from typing import Any, TypeVar

import structlog
import trio

from liken_events._generated import dra_v1_pb2, dra_v1beta1_pb2
from liken_events.core.model.claims import ClaimReference, Granted, Refused
from liken_events.rpc import Service, Unary
from liken_events.servers import Claims

CALL_SECONDS = 40.0
"""How long a call may take. The kubelet gives up after 45 s, and then does not know of any claim
what became of it."""

LATE = Refused(reason=f"not done within {CALL_SECONDS:.0f} s; it is tried again")

Answer = TypeVar("Answer")

log = structlog.get_logger()


def dra_services(claims: Claims) -> tuple[Service, ...]:
    """`DRAPlugin` in both versions."""
    return (
        _service("k8s.io.kubelet.pkg.apis.dra.v1", dra_v1_pb2, claims),
        _service("k8s.io.kubelet.pkg.apis.dra.v1beta1", dra_v1beta1_pb2, claims),
    )


def _service(package: str, messages: ModuleType, claims: Claims) -> Service:
    """`DRAPlugin` in the version whose messages these are."""
    has_shares = "share_id" in messages.Device.DESCRIPTOR.fields_by_name

    async def prepare(request: Any) -> Any:  # noqa: ANN401  # a message of either version
        response = messages.NodePrepareResourcesResponse()
        for uid, answer in (await _ask_each(request.claims, claims.prepare)).items():
            entry = response.claims[uid]
            if isinstance(answer, Refused):
                entry.error = answer.reason
            else:
                for granted in answer:
                    entry.devices.add(**_device(granted, has_shares=has_shares))
        return response

    async def unprepare(request: Any) -> Any:  # noqa: ANN401  # a message of either version
        response = messages.NodeUnprepareResourcesResponse()
        for uid, answer in (await _ask_each(request.claims, claims.unprepare)).items():
            response.claims[uid].error = "" if answer is None else answer.reason
        return response

    return Service(
        name=f"{package}.DRAPlugin",
        methods=(
            Unary(
                name="NodePrepareResources",
                request=messages.NodePrepareResourcesRequest,
                answer=prepare,
            ),
            Unary(
                name="NodeUnprepareResources",
                request=messages.NodeUnprepareResourcesRequest,
                answer=unprepare,
            ),
        ),
    )


async def _ask_each(
    asked: Iterable[dra_v1_pb2.Claim], ask: Callable[[ClaimReference], Awaitable[Answer]]
) -> dict[str, Answer | Refused]:
    """The answer for each claim, by uid; one that is named twice is asked for once."""
    references = {
        claim.uid: ClaimReference(namespace=claim.namespace, name=claim.name, uid=claim.uid)
        for claim in asked
    }
    answers: dict[str, Answer | Refused] = {}

    async def ask_one(reference: ClaimReference) -> None:
        try:
            answers[reference.uid] = await ask(reference)
        except OSError as error:  # a full disk, a file that cannot be written
            log.warning("rpc.claim_failed", claim=str(reference), reason=str(error))
            answers[reference.uid] = Refused(reason=f"{reference}: {error.strerror}")

    with trio.move_on_after(CALL_SECONDS) as bound:
        async with trio.open_nursery() as nursery:
            for reference in references.values():
                nursery.start_soon(ask_one, reference)
    if bound.cancelled_caught:
        late = [str(reference) for uid, reference in references.items() if uid not in answers]
        log.warning("rpc.call_late", claims=late, waited_seconds=CALL_SECONDS)
    return {uid: answers.get(uid, LATE) for uid in references}


def _device(granted: Granted, *, has_shares: bool) -> dict[str, object]:
    """The fields of a `Device` message."""
    fields: dict[str, object] = {
        "request_names": [granted.request],
        "pool_name": granted.pool,
        "device_name": granted.device,
        "cdi_device_ids": [granted.cdi_id],
    }
    if has_shares and granted.share_id is not None:
        fields["share_id"] = granted.share_id
    return fields
