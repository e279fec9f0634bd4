"""Requests that the fake API server got, and what a test may let happen to them instead."""

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from tests.fakes.apirules import ApiError

SLICES = "/apis/resource.k8s.io/v1/resourceslices"
CLAIM = "/resourceclaims/"
"""In the path of one claim, which begins with its namespace."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One request as it arrived; `path` with its query, `size` in bytes with head and body."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes
    size: int

    @property
    def is_watch(self) -> bool:
        return "watch=1" in self.path

    @property
    def is_list(self) -> bool:
        return self.method == "GET" and self.path.startswith(SLICES) and not self.is_watch

    @property
    def is_claim(self) -> bool:
        return self.method == "GET" and CLAIM in self.path


@dataclass(frozen=True, slots=True, kw_only=True)
class Close:
    """Fault: the connection ends without an answer; `after` what was asked is done."""

    after: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Raw:
    """Fault: this body with this status, whatever was asked."""

    body: bytes
    status: int = 200
    content_type: str = "application/json"
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Lines:
    """Fault: a watch gets these bytes, and then its end: in order, broken off, or silence."""

    chunks: tuple[bytes, ...] = ()
    end: Literal["order", "break", "silence"] = "order"
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Hold:
    """Fault: nothing happens until `released` is set; then what is asked for, or another fault."""

    released: threading.Event = field(default_factory=threading.Event)
    then: "Fault | None" = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Late:
    """Fault: what is asked for is `done` at once, and answered when `released` is set."""

    done: threading.Event = field(default_factory=threading.Event)
    released: threading.Event = field(default_factory=threading.Event)


Fault: TypeAlias = ApiError | Close | Hold | Late | Raw | Lines
