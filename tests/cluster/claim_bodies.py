"""Claims as an API server or a file holds them, of one name."""

from functools import partial

from tests.fakes.claims import claim_body as any_claim_body

UID = "6d1b6a1c-0000-4000-8000-000000000001"
OTHER_UID = "6d1b6a1c-0000-4000-8000-000000000002"

claim_body = partial(any_claim_body, name="camera", uid=UID)
"""A claim to which devices of node `n1` are allocated; other names and uids may be given."""
