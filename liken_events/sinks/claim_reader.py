"""Reading a claim for a call that waits for it.

The kubelet asks again only after a minute when a claim could not be prepared, and gives up on a
call after 45 seconds. So trouble that passes in seconds is waited out within the call, and an API
server that stays away leads to an error in good time.

This file reads one claim, with retries and a bound. What the object says is understood in
`core.model.claims`.
"""

import random

import trio

from liken_events.cluster import Cluster, ClusterError, Unavailable
from liken_events.core.backoff import Backoff
from liken_events.core.model.claims import Claim, ClaimReference, Refused, read_claim
from liken_events.core.plan.slice_body import DRIVER

READ_SECONDS = 20.0
"""For one claim, all attempts together: less than half of what the kubelet waits for the call."""

RETRY = Backoff(base=0.2, ceiling=3.0)


class ClaimReader:
    """Reads claims from the home of slices and claims."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    async def read(self, reference: ClaimReference) -> Claim | Refused:
        """The claim; or why it cannot be had, the server's own trouble included."""
        reason = "nothing answered in time"
        with trio.move_on_after(READ_SECONDS):
            failures = 0
            while True:
                try:
                    body = await self._cluster.read_claim(reference)
                except ClusterError as error:
                    reason = error.reason
                    failures += 1
                    asked = error.retry_after if isinstance(error, Unavailable) else None
                    chance = random.random()  # noqa: S311  # jitter, no secret
                    await trio.sleep(RETRY.delay(failures, chance, asked))
                    continue
                return read_claim(body, reference, DRIVER)
        return Refused(reason=f"the claim {reference} could not be read: {reason}")

    async def is_over(self, reference: ClaimReference) -> bool | None:
        """Whether the home says that the claim is no more; None if it does not answer."""
        try:
            body = await self._cluster.read_claim(reference)
        except ClusterError:
            return None
        if body is None:
            return True
        metadata = body.get("metadata")
        uid = metadata.get("uid") if isinstance(metadata, dict) else None
        return isinstance(uid, str) and uid != reference.uid
