"""What a real API server refuses in a ResourceSlice, and how it applies a JSON Patch.

Taken from the validation of resource.k8s.io/v1 and from what a server of version 1.37.2 was seen
to answer. The fake answers in the same words where the agent could depend on them: codes, reasons,
field paths, and what a message quotes.
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
DOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
MAX_IDENTIFIER_BYTES = 32
EMPTY_IS_ABSENT = ("devices", "sharedCounters")
EMPTY_OF_A_DEVICE = ("attributes", "capacity", "taints", "consumesCounters")
IMMUTABLE = (("driver",), ("nodeName",), ("pool", "name"))
GROUP = "resource.k8s.io"
PREFIX = f"ResourceSlice.{GROUP}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One cause of a Status."""

    field: str
    message: str
    reason: str = "FieldValueInvalid"

    def to_json(self) -> Json:
        whole = {"field": self.field, "message": self.message, "reason": self.reason}
        return {name: value for name, value in whole.items() if value}


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


def denial(name: str, policy: str, message: str, *, code: int, reason: str) -> ApiError:
    """What a ValidatingAdmissionPolicy answers: 422 `Invalid`, or what it was made to give as the
    reason. It names no field."""
    said = (
        f"ValidatingAdmissionPolicy '{policy}' with binding '{policy}' denied request: {message}"
    )
    return ApiError(
        code,
        reason,
        f'resourceslices.resource.k8s.io "{name}" is forbidden: {said}',
        (Problem(field="", message=said, reason=""),),
        details={"name": name, "group": GROUP, "kind": "resourceslices"},
    )


def lacks_right(verb: str, resource: str, group: str = "", name: str = "") -> ApiError:
    """What RBAC answers; `name` where the request has one in its path."""
    what = f"{resource}.{group}" if group else resource
    named = f'{what} "{name}"' if name else what
    return ApiError(
        403,
        "Forbidden",
        f'{named} is forbidden: User "system:serviceaccount:default:agent" cannot {verb}'
        f' resource "{resource}" in API group "{group}" at the cluster scope',
        details=details(name, group, resource),
    )


def details(name: str, group: str, kind: str) -> dict[str, Json]:
    """What a `Status` is about; what is empty is absent."""
    whole = {"name": name, "group": group, "kind": kind}
    return {key: value for key, value in whole.items() if value}


def without_empty(body: Mapping[str, Any]) -> dict[str, Any]:
    """A slice as it is kept: an empty list or map is absent."""
    spec = _without(body["spec"], EMPTY_IS_ABSENT)
    if "devices" in spec:
        spec["devices"] = [_without(device, EMPTY_OF_A_DEVICE) for device in spec["devices"]]
    return {**body, "spec": spec}


def _without(body: Mapping[str, Any], names: tuple[str, ...]) -> dict[str, Any]:
    return {key: value for key, value in body.items() if value or key not in names}


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
        target[key] = operation["value"]  # in a map it need not be there
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
        if len(problems) > 1:
            all_of_it = f"[{all_of_it}]"
        raise ApiError(
            422,
            "Invalid",
            f'{PREFIX} "{name}" is invalid: {all_of_it}',
            tuple(problems),
            details=details(name, GROUP, "ResourceSlice"),
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
    limited = any(device.get("taints") or device.get("consumesCounters") for device in devices)
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
                    field=where,
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
        message = f"Invalid value: {count}: the total number of attributes and capacities must not"
        out.append(Problem(field=where, message=f"{message} exceed {MAX_ATTRIBUTES}"))
    for name, value in attributes.items():
        out += _name_problems(f"{where}.attributes", name)
        field_ = f"{where}.attributes[{name}]"
        if not value:
            message = 'Invalid value: "": must specify one of: `int`, `bool`, `string`, ...'
            out.append(Problem(field=field_, message=message))
        elif len(value) != 1:
            given = ", ".join(sorted(value))
            message = f'Invalid value: "{{{given}}}": must specify exactly one of: `int`, ...'
            out.append(Problem(field=field_, message=message))
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


def _name_problems(where: str, name: str) -> list[Problem]:
    """Problems with an attribute's name. They are reported for the whole map; the message quotes
    the part that is wrong, or tells a length."""
    domain, slash, identifier = name.rpartition("/")
    if slash and not DOMAIN.fullmatch(domain):
        message = f'Invalid value: "{domain}": a lowercase RFC 1123 subdomain must consist of ...'
        return [Problem(field=where, message=message)]
    if len(identifier.encode()) > MAX_IDENTIFIER_BYTES:
        message = f"Too long: may not be more than {MAX_IDENTIFIER_BYTES} bytes"
        return [Problem(field=where, message=message, reason="FieldValueTooLong")]
    if not IDENTIFIER.fullmatch(identifier):
        message = f'Invalid value: "{identifier}": a valid C identifier must start with ...'
        return [Problem(field=where, message=message)]
    return []


def _at(body: Mapping[str, Any], path: tuple[str, ...]) -> Any:
    value: Any = body.get("spec", {})
    for step in path:
        value = value.get(step) if isinstance(value, Mapping) else None
    return value
