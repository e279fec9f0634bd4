"""What the answers of an API server mean, and what it means to get none.

The server says no with a status code and a `Status` object: a message for people, and for an
invalid object one cause for each field. Much that is not the server answers in its place as well:
a proxy with a page of HTML, a load balancer with a redirect, a closed port.

This file turns each of them into one of the errors of `cluster`, with one printable sentence of
bounded length. When to try again is decided by whoever called.
"""

import http.client
import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime

import urllib3.exceptions

from liken_events.cluster import (
    Cause,
    ClusterError,
    Conflict,
    Forbidden,
    Rejected,
    Unavailable,
    Unreachable,
)
from liken_events.core.model.json import Json
from liken_events.core.model.names import printable

MESSAGE_LENGTH = 300
"""Characters that are kept of a server's message. The useful part, what and which field, is first;
a message about an invalid slice may repeat all of it."""

LONGEST_RETRY_AFTER = 600.0
"""Seconds. An API server asks for 1 to 60; a larger number comes from something between that is
wrong, and must not make a node deaf for a day."""

NO_ANSWER = (urllib3.exceptions.HTTPError, OSError)
"""Refused, reset, timed out, not resolved, not trusted: all that a request may end with instead of
an answer. urllib3 wraps most of it; some failures to read a certificate come as they are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """One answer, read to its end.

    Attributes:
        status: the HTTP status.
        headers: by name; asked for in any case.
        body: all of it.
    """

    status: int
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""

    def json(self) -> Mapping[str, Json]:
        """The object in the body; empty if there is none."""
        try:
            value = json.loads(self.body)
        except ValueError:
            return {}
        return value if isinstance(value, dict) else {}

    @property
    def is_missing(self) -> bool:
        """Whether the server says that the very object is not there, and not a proxy something."""
        return self.status == 404 and _names_object(self.json())


def quoted(text: str, length: int = MESSAGE_LENGTH) -> str:
    """Somebody else's text as part of a sentence: on one line, printable, not too long."""
    safe = printable(text.strip())
    return safe if len(safe) <= length else safe[: length - 1] + "…"


def no_answer(error: Exception, host: str) -> Unreachable:
    """From one of `NO_ANSWER` to its meaning.

    The sentence is the same for the same trouble: urllib3's own text holds the address of an
    object in memory, and nobody could tell a new trouble from the old one.
    """
    match error:
        case urllib3.exceptions.NameResolutionError():
            reason = f"the name in {host} cannot be resolved: {_root(error)}"
        case urllib3.exceptions.NewConnectionError():
            reason = f"no connection to {host}: {_root(error)}"
        case urllib3.exceptions.ConnectTimeoutError():
            reason = f"no connection to {host}: it did not answer in time"
        case urllib3.exceptions.ReadTimeoutError():
            reason = f"{host} did not answer in time"
        case urllib3.exceptions.SSLError():
            reason = f"no trusted connection to {host}: {_root(error)}"
        case _:
            reason = f"the connection to {host} broke: {_root(error)}"
    return Unreachable(reason)


def refusal(verb: str, resource: str, answer: Answer) -> ClusterError:
    """From an answer that is not the wished one to its meaning.

    Args:
        verb, resource: what was tried, in the words of RBAC: `patch`, `resourceslices`.
        answer: what came back.
    """
    return said_no(verb, resource, answer.status, answer.json(), _asked_to_wait(answer))


def said_no(
    verb: str,
    resource: str,
    code: int,
    status: Mapping[str, Json],
    retry_after: float | None = None,
) -> ClusterError:
    """As `refusal`, from a code and a `Status` object, which a watch delivers as an event.

    Args:
        verb, resource, code: what was tried, and the HTTP status.
        status: the `Status`; empty if there was none.
        retry_after: seconds that a header asked to wait; the `Status` is asked next.
    """
    details = _mapping(status.get("details"))
    said = _text(status.get("message"))
    message = quoted(said or "no reason given")
    wait = retry_after if retry_after is not None else _seconds(details.get("retryAfterSeconds"))
    match code:
        case 401:
            return Forbidden(
                f"our credentials are not accepted (401): {message}", retry_after=wait
            )
        case 403:
            # In these words (`forbiddenMessage`) a lack of rights is told. Policies, webhooks and
            # other admission say who they are, and no right helps.
            lacks_right = f'cannot {verb} resource "{resource}"' in said
            hint = f" (RBAC: verb {verb}, resource {resource})" if lacks_right else ""
            return Forbidden(
                f"not allowed to {verb} {resource}{hint}: {message}", retry_after=wait
            )
        case 404 if not _names_object(status):
            return Unavailable(
                f"cannot {verb} {resource}: this server does not have them"
                " (resource.k8s.io/v1 comes with Kubernetes 1.34)"
            )
        case 404 | 409:
            return Conflict(f"cannot {verb} {resource} ({code}): {message}")
        case 408 | 410 | 429:
            pass
        case _ if 400 <= code < 500:
            return Rejected(f"cannot {verb} {resource} ({code}): {message}", _causes(details))
    return Unavailable(f"cannot {verb} {resource} ({code}): {message}", retry_after=wait)


def _names_object(status: Mapping[str, Json]) -> bool:
    """Whether a `Status` is about one object. A server that has no such kind of object at all
    answers 404 too, with a `Status` that names none."""
    return bool(_mapping(status.get("details")).get("name"))


def _causes(details: Mapping[str, Json]) -> list[Cause]:
    causes = details.get("causes")
    if not isinstance(causes, list):
        return []
    return [
        Cause(
            field=quoted(_text(_mapping(cause).get("field"))),
            message=quoted(_text(_mapping(cause).get("message"))),
        )
        for cause in causes
    ]


def _asked_to_wait(answer: Answer) -> float | None:
    """`Retry-After`, which is a number of seconds or a date (RFC 9110, section 10.2.3)."""
    text = next((v for k, v in answer.headers.items() if k.lower() == "retry-after"), "").strip()
    if text.isascii() and text.isdecimal():
        return _seconds(float(text))
    try:
        return _seconds(parsedate_to_datetime(text).timestamp() - time.time())
    except (ValueError, OverflowError):
        return None


def _seconds(value: Json) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return min(float(value), LONGEST_RETRY_AFTER) if value > 0 else 0.0


def _root(error: BaseException) -> str:
    """What went wrong at the bottom of it, in the system's own words if it has any."""
    current: BaseException | None = error
    while current is not None:
        error = current
        if isinstance(error, OSError) and error.strerror:
            return quoted(error.strerror)
        if isinstance(error, http.client.IncompleteRead):
            return "it ended in the middle of an answer"
        if isinstance(error, http.client.HTTPException):
            break
        current = error.__cause__ or error.__context__
    return quoted(str(error)) or type(error).__name__


def _mapping(value: Json) -> Mapping[str, Json]:
    return value if isinstance(value, dict) else {}


def _text(value: Json) -> str:
    return value if isinstance(value, str) else ""
