"""What a real API server refuses in a ResourceSlice, and how it applies a JSON Patch.

Taken from the validation of resource.k8s.io/v1 and from what a server of version 1.36 was seen to
answer. The fake answers in the same words where the agent could depend on them: codes, reasons
and field paths.
"""

import copy
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from liken_events.core.model.json import Json

MAX_DEVICES = 128
MAX_DEVICES_WITH_TAINTS = 64
MAX_ATTRIBUTES = 32
MAX_STRING_BYTES = 64
LABEL = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
DRIVER = re.compile(r"[a-z0-9]([a-z0-9.-]{0,61}[a-z0-9])?")
ATTRIBUTE = re.compile(r"([a-z0-9][a-z0-9.-]{0,62}/)?[A-Za-z_][A-Za-z0-9_]{0,31}")
IMMUTABLE = (("driver",), ("nodeName",), ("pool", "name"))
PREFIX = "ResourceSlice.resource.k8s.io"


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One cause of a Status."""

    field: str
    message: str
    reason: str = "FieldValueInvalid"

    def to_json(self) -> Json:
        return {"field": self.field, "message": self.message, "reason": self.reason}


@dataclass(eq=False)
class ApiError(Exception):
    """An answer other than success."""

    code: int
    reason: str
    message: str
    problems: tuple[Problem, ...] = ()
    headers: Mapping[str, str] = field(default_factory=dict)
    details: Mapping[str, Json] = field(default_factory=dict)

    def status(self) -> dict[str, Json]:
        details: dict[str, Json] = dict(self.details)
        if self.problems:
            details["causes"] = [problem.to_json() for problem in self.problems]
        return {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": self.message,
            "reason": self.reason,
            **({"details": details} if details else {}),
            "code": self.code,
        }


def bad_patch() -> ApiError:
    """A stale `test` and a wrong index alike: nothing tells them apart."""
    message = "the server rejected our request due to an error in our request"
    return ApiError(422, "Invalid", message)


def apply_patch(body: Mapping[str, Any], operations: Any) -> dict[str, Any]:
    """The body after a JSON Patch (RFC 6902) of `add`, `remove`, `replace` and `test`."""
    new: dict[str, Any] = copy.deepcopy(dict(body))
    if not isinstance(operations, list):
        raise ApiError(400, "BadRequest", "the body is no JSON Patch")
    for operation in operations:
        steps = [
            step.replace("~1", "/").replace("~0", "~") for step in operation["path"].split("/")[1:]
        ]
        target: Any = new
        try:
            for step in steps[:-1]:
                target = target[int(step)] if isinstance(target, list) else target[step]
            _apply_one(target, steps[-1], operation)
        except (LookupError, ValueError, TypeError) as error:
            raise bad_patch() from error
    return new


def _apply_one(target: Any, last: str, operation: Mapping[str, Any]) -> None:
    kind = operation["op"]
    if isinstance(target, list):
        index = len(target) if last == "-" else int(last)
        if not 0 <= index <= len(target) - (kind != "add"):
            raise IndexError(last)
        if kind == "add":
            target.insert(index, operation["value"])
            return
        key: Any = index
    else:
        key = last
        if kind == "add":
            target[key] = operation["value"]
            return
    if kind == "remove":
        del target[key]
    elif kind == "replace":
        target[key]  # it has to be there
        target[key] = operation["value"]
    elif kind != "test" or target[key] != operation["value"]:
        raise ValueError(kind)


def check(body: Mapping[str, Any], old: Mapping[str, Any] | None) -> None:
    """Raises ApiError 422 if a slice is invalid, or is no allowed successor of `old`."""
    problems = _problems(body)
    if old is not None:
        for path in IMMUTABLE:
            if _at(body, path) != _at(old, path):
                where = "spec." + ".".join(path)
                problems.append(Problem(field=where, message="field is immutable"))
    if problems:
        name = body.get("metadata", {}).get("name", "")
        all_of_it = ", ".join(f"{item.field}: {item.message}" for item in problems)
        raise ApiError(
            422, "Invalid", f'{PREFIX} "{name}" is invalid: {all_of_it}', tuple(problems)
        )


def _problems(body: Mapping[str, Any]) -> list[Problem]:
    spec = body.get("spec", {})
    devices = spec.get("devices") or []
    out = []
    if not DRIVER.fullmatch(str(spec.get("driver", ""))):
        out.append(Problem(field="spec.driver", message="Required value: a DNS subdomain"))
    if not _at(body, ("pool", "name")):
        out.append(Problem(field="spec.pool.name", message="Required value"))
    if not (_at(body, ("pool", "resourceSliceCount")) or 0) > 0:
        message = "Invalid value: must be greater than zero"
        out.append(Problem(field="spec.pool.resourceSliceCount", message=message))
    limited = any("taints" in device or "consumesCounters" in device for device in devices)
    limit = MAX_DEVICES_WITH_TAINTS if limited else MAX_DEVICES
    if len(devices) > limit:
        message = f"Too many: {len(devices)}: must have at most {limit} items"
        out.append(Problem(field="spec.devices", message=message, reason="FieldValueTooMany"))
    names = set()
    for index, device in enumerate(devices):
        where = f"spec.devices[{index}]"
        name = device.get("name", "")
        if not LABEL.fullmatch(name):
            message = f'Invalid value: "{name}": a lowercase RFC 1123 label must consist of ...'
            out.append(Problem(field=f"{where}.name", message=message))
        if name in names:
            out.append(
                Problem(
                    field=f"{where}.name",
                    message=f'Duplicate value: "{name}"',
                    reason="FieldValueDuplicate",
                )
            )
        names.add(name)
        out += _attribute_problems(where, device)
    return out


def _attribute_problems(where: str, device: Mapping[str, Any]) -> list[Problem]:
    attributes = device.get("attributes") or {}
    out = []
    count = len(attributes) + len(device.get("capacity") or {})
    if count > MAX_ATTRIBUTES:
        message = f"Too many: {count}: the total number of attributes and capacities must not"
        message += f" exceed {MAX_ATTRIBUTES}"
        out.append(Problem(field=where, message=message, reason="FieldValueTooMany"))
    for name, value in attributes.items():
        field_ = f"{where}.attributes[{name}]"
        if not ATTRIBUTE.fullmatch(name):
            message = f'Invalid value: "{name}": must be a C identifier'
            out.append(Problem(field=field_, message=message))
        if len(value) != 1:
            message = "Required value: exactly one value must be specified"
            out.append(Problem(field=field_, message=message, reason="FieldValueRequired"))
        text = value.get("string", value.get("version"))
        if isinstance(text, str) and len(text.encode()) > MAX_STRING_BYTES:
            out.append(
                Problem(
                    field=f"{field_}.string",
                    message=f"Too long: may not be more than {MAX_STRING_BYTES} bytes",
                    reason="FieldValueTooLong",
                )
            )
    return out


def _at(body: Mapping[str, Any], path: tuple[str, ...]) -> Any:
    value: Any = body.get("spec", {})
    for step in path:
        value = value.get(step) if isinstance(value, Mapping) else None
    return value
