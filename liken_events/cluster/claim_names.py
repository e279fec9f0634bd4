"""Names that a ResourceClaim can have, checked before they become part of a path.

The API server takes DNS names only: a label for a namespace, a subdomain for a claim. In the path
of a URL or of a file, `..` and nothing at all lead elsewhere, and quoting does not help against
either.

This file says which names can be. What is done with others is left to the caller.
"""

import re

from liken_events.cluster import ClusterError
from liken_events.core.model.names import LABEL_LENGTH, printable

NAME_LENGTH = 253
"""Characters of a DNS subdomain (RFC 1123)."""

_LABEL = re.compile(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?")
_SUBDOMAIN = re.compile(rf"{_LABEL.pattern}(\.{_LABEL.pattern})*")


class BadName(ClusterError):
    """No claim can have this name or be in this namespace. `reason` quotes it."""


def is_namespace(text: str) -> bool:
    """Whether a namespace can be called so."""
    return len(text) <= LABEL_LENGTH and _LABEL.fullmatch(text) is not None


def is_claim_name(text: str) -> bool:
    """Whether a claim can be called so."""
    return len(text) <= NAME_LENGTH and _SUBDOMAIN.fullmatch(text) is not None


def check_names(namespace: str, name: str) -> None:
    """Raises BadName if no claim can have these names."""
    if not is_namespace(namespace):
        raise BadName(
            f'"{_short(namespace)}" is no namespace: take lowercase letters, digits and "-",'
            f" at most {LABEL_LENGTH} of them, and none but letters and digits at the ends"
        )
    if not is_claim_name(name):
        raise BadName(
            f'"{_short(name)}" is no name of a claim: take lowercase letters, digits, "-" and ".",'
            f" at most {NAME_LENGTH} of them, and none but letters and digits at the ends"
        )


def _short(text: str) -> str:
    safe = printable(text)
    return safe if len(safe) <= LABEL_LENGTH else safe[: LABEL_LENGTH - 1] + "…"
