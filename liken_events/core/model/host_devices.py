"""Host devices: nodes of the machine that any number of pods may use, such as `/dev/kvm`.

They lie on no bus and are nobody's alone, so they are no claim's business. A pod asks for them as
an extended resource with a count, and the kubelet's device manager gives it the nodes and the
right to open them. The count means nothing to a device that many may use at once; it only has to
be larger than any number of pods.

This file holds what is configured, checks it, and says which units a resource has of the nodes
that are there. What is there is seen by `sources.host_nodes`; the kubelet is served in
`servers.deviceplugin`.
"""

import hashlib
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase

from liken_events.core.model.names import printable

COUNT = 4096
"""Units of a node that many may use: far above any number of pods on a node, so that counting them
never keeps a pod away."""

MOST_UNITS = 10_000
"""Units of one resource at most. The kubelet holds them all in memory and writes those in use to
its checkpoint; a list of so many is some 200 KB on the wire."""

PERMISSIONS = "rw"
"""Read and write, but not make nodes: a container is given this node, not the right to make
others."""

ID_LENGTH = 63
"""Characters of a unit's id; the device plugin API asks for no more."""

SOCKET_LENGTH = 59
"""Characters of a socket's name: with the kubelet's usual directory the path has 32 more, and 107
is the most that the kernel takes."""

DOMAIN_LENGTH = 253 - len("requests.")
"""Characters of a resource's domain: a quota puts the word before the name, and all before its `/`
has to be a DNS subdomain then (`IsExtendedResourceName` of Kubernetes)."""

_PREFIX = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_NAME = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?")
_WILD = re.compile(r"[*?\[]")
_INDEX = re.compile(r"0|[1-9][0-9]{0,3}")
_ODD = re.compile(r"[^A-Za-z0-9_./-]+")


class BadHostDevice(ValueError):
    """What was configured cannot be; one sentence without its subject."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HostDevice:
    """A resource that pods ask for, and the nodes that it gives.

    Attributes:
        resource: extended resource name, such as `ate.dev/kvm`.
        paths: absolute paths of nodes under `/dev`, or patterns with `*`, `?` and `[...]` in their
            last part.
        count: units, where the paths are no patterns: each unit is all of the nodes.
        permissions: what a container may do: letters of `rwm`.
    """

    resource: str
    paths: tuple[str, ...]
    count: int = COUNT
    permissions: str = PERMISSIONS

    @property
    def is_pattern(self) -> bool:
        """Whether each node that matches is one unit."""
        return any(map(is_wild, self.paths))

    @property
    def socket(self) -> str:
        """Name of the socket that serves the resource: `ate.dev-kvm.sock`, or a shorter one with a
        hash."""
        domain, _, name = self.resource.partition("/")
        plain = f"{domain}-{name}.sock"
        if len(plain) <= SOCKET_LENGTH:
            return plain
        digest = hashlib.sha256(self.resource.encode()).hexdigest()[:16]
        return f"{plain[: SOCKET_LENGTH - 22]}-{digest}.sock"

    def __str__(self) -> str:
        """`ate.dev/kvm=/dev/kvm`, as it is given on the command line."""
        return printable(f"{self.resource}={'+'.join(self.paths)}")


KVM = HostDevice(resource="ate.dev/kvm", paths=("/dev/kvm",))
"""What a runtime of small virtual machines needs to make one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Unit:
    """What a container is given for one id.

    Attributes:
        id: as the kubelet knows it.
        paths: of the nodes, on the host and in the container.
        is_healthy: whether all of them are there.
    """

    id: str
    paths: tuple[str, ...]
    is_healthy: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Presence:
    """Which nodes of a resource are there.

    Attributes:
        present: paths of its character devices that may be given away.
        known: paths that were there at any time since the start.
    """

    present: frozenset[str] = frozenset()
    known: frozenset[str] = frozenset()

    @property
    def is_offered(self) -> bool:
        """Whether there is, or was, anything to offer."""
        return bool(self.known)


def checked(device: HostDevice) -> HostDevice:
    """The device, if it can be.

    Raises:
        BadHostDevice: why it cannot.
    """
    domain, slash, name = device.resource.partition("/")
    if not slash or not _PREFIX.fullmatch(domain):
        raise BadHostDevice("the resource has to be a domain, '/' and a name, such as ate.dev/kvm")
    if len(domain) > DOMAIN_LENGTH:
        raise BadHostDevice(f"the domain before '/' has more than {DOMAIN_LENGTH} characters")
    if not _NAME.fullmatch(name) or len(name) > 63:
        raise BadHostDevice(
            "the name after '/' has to have at most 63 letters, digits, '-', '_' and '.', and to "
            "begin and end with a letter or digit"
        )
    if domain.endswith("kubernetes.io"):
        raise BadHostDevice("domains that end with 'kubernetes.io' are Kubernetes' own")
    if domain.startswith("requests."):
        raise BadHostDevice("a domain that begins with 'requests.' means quotas to Kubernetes")
    if not device.paths:
        raise BadHostDevice("it names no path")
    for path in device.paths:
        _check_path(path)
    if len(set(device.paths)) < len(device.paths):
        raise BadHostDevice("it names a path twice")
    if not 1 <= device.count <= MOST_UNITS:
        raise BadHostDevice(f"the count has to be 1 to {MOST_UNITS}")
    if device.is_pattern and device.count != COUNT:
        raise BadHostDevice("with a pattern each node is one unit, so there is no count to give")
    letters = device.permissions
    if not letters or not set(letters) <= set("rwm") or len(set(letters)) < len(letters):
        raise BadHostDevice("permissions are letters of 'rwm', each once")
    return device


def from_text(text: str) -> HostDevice:
    """A host device as it is given on the command line: `ate.dev/kvm=/dev/kvm`, and several nodes
    with `+` between them.

    Raises:
        BadHostDevice: the text is of another form, or what it says cannot be.
    """
    resource, equals, paths = text.partition("=")
    if not equals:
        raise BadHostDevice("this is not of the form RESOURCE=PATH")
    if "," in paths:
        raise BadHostDevice("give each resource by itself, and a path with ',' in a file's table")
    return checked(HostDevice(resource=resource, paths=tuple(paths.split("+"))))


def from_table(table: Mapping[str, object]) -> HostDevice:
    """A host device as it is given in a file: a table with `resource`, `path` or `paths`, and
    perhaps `count` and `permissions`.

    Raises:
        BadHostDevice: the table is of another form, or what it says cannot be.
    """
    unknown = sorted(set(table) - {"resource", "path", "paths", "count", "permissions"})
    if unknown:
        raise BadHostDevice(f"there is no key '{printable(unknown[0])}'")
    if ("path" in table) == ("paths" in table):
        raise BadHostDevice("it takes either 'path' or 'paths'")
    paths = table.get("paths", [table.get("path")])
    resource, permissions = table.get("resource"), table.get("permissions", PERMISSIONS)
    count = table.get("count", COUNT)
    if not isinstance(resource, str):
        raise BadHostDevice("'resource' has to be a text")
    if not isinstance(paths, list) or not all(isinstance(path, str) for path in paths):
        raise BadHostDevice("'path' has to be a text, 'paths' a list of texts")
    if not isinstance(permissions, str):
        raise BadHostDevice("'permissions' has to be a text")
    if not isinstance(count, int) or isinstance(count, bool):
        raise BadHostDevice("'count' has to be a whole number")
    return checked(
        HostDevice(
            resource=resource, paths=tuple(map(str, paths)), count=count, permissions=permissions
        )
    )


def check_together(devices: Iterable[HostDevice]) -> None:
    """Raises BadHostDevice if two of these are served by one socket, as two of one name are."""
    known: dict[str, HostDevice] = {}
    for device in devices:
        other = known.setdefault(device.socket, device)
        if other is device:
            continue
        if other.resource == device.resource:
            raise BadHostDevice(f"{printable(device.resource)} is given twice")
        raise BadHostDevice(
            f"{printable(other.resource)} and {printable(device.resource)} would share the "
            f"socket {printable(device.socket)}"
        )


def is_wild(path: str) -> bool:
    """Whether a path is a pattern."""
    return _WILD.search(path) is not None


def matches(path: str, pattern: str) -> bool:
    """Whether a path is meant by a pattern, or a plain path, of the configuration."""
    above, _, wild = pattern.rpartition("/")
    directory, _, name = path.rpartition("/")
    return directory == above and (fnmatchcase(name, wild) if is_wild(wild) else name == wild)


def unit_ids(device: HostDevice) -> tuple[str, ...]:
    """The ids of a resource whose units are all alike: `kvm-0`, `kvm-1`, …"""
    base = _base(device)
    return tuple(f"{base}-{index}" for index in range(device.count))


def matching(device: HostDevice, paths: Iterable[str]) -> tuple[str, ...]:
    """Those of these paths that a resource means, sorted."""
    return tuple(
        sorted(
            path for path in set(paths) if any(matches(path, pattern) for pattern in device.paths)
        )
    )


def units(
    device: HostDevice, present: Collection[str], known: Collection[str] = ()
) -> tuple[Unit, ...]:
    """The units of a resource.

    Args:
        device: the resource.
        present: paths of the character devices that are there, of those that it means.
        known: for a pattern, the paths that were there before: a unit that was offered once stays
            in the list, unhealthy, because the kubelet takes one that is missing for a healthy
            one.

    Returns:
        In an order that stays; empty if a pattern matches nothing and never did.
    """
    if not device.is_pattern:
        healthy = all(path in present for path in device.paths)
        return tuple(
            Unit(id=name, paths=device.paths, is_healthy=healthy) for name in unit_ids(device)
        )
    paths = matching(device, {*present, *known})
    return tuple(Unit(id=_id(path), paths=(path,), is_healthy=path in present) for path in paths)


def find_unit(
    device: HostDevice, name: str, present: Collection[str], known: Collection[str] = ()
) -> Unit | None:
    """The unit of an id; None if the resource has no such unit. Arguments as for `units`."""
    if device.is_pattern:
        found = (unit for unit in units(device, present, known) if unit.id == name)
        return next(found, None)
    base, _, number = name.rpartition("-")
    is_index = _INDEX.fullmatch(number) is not None
    if base != _base(device) or not is_index or int(number) >= device.count:
        return None
    healthy = all(path in present for path in device.paths)
    return Unit(id=name, paths=device.paths, is_healthy=healthy)


def _base(device: HostDevice) -> str:
    """What the ids of a resource begin with whose units are all alike: `kvm` of `/dev/kvm`."""
    return _ODD.sub("-", device.paths[0].rpartition("/")[2])[: ID_LENGTH - 6]


def _id(path: str) -> str:
    """The id of a node's unit: what stands below `/dev`, with `:` for `/`, or a hash where that
    could be another's. It follows from the path alone, so that no other node changes it."""
    below = path.removeprefix("/dev/")
    plain = below.replace("/", ":")
    if len(plain) <= ID_LENGTH and not _ODD.search(below):
        return plain
    digest = hashlib.sha256(path.encode(errors="surrogatepass")).hexdigest()[:12]
    return f"{_ODD.sub('-', below).replace('/', ':')[: ID_LENGTH - 13]}-{digest}"


def _check_path(path: str) -> None:
    where = printable(path)
    if where != path:
        raise BadHostDevice(f"'{where}' has a character that cannot be shown")
    if not path.startswith("/dev/") or path == "/dev/":
        raise BadHostDevice(f"'{where}' is no path under /dev")
    *above, _ = parts = path.split("/")[2:]
    if any(part in ("", ".", "..") for part in parts):
        raise BadHostDevice(
            f"'{where}' is no plain path: leave out '.', '..', doubled '/' and a '/' at the end"
        )
    if any(map(is_wild, above)):
        raise BadHostDevice(f"'{where}' has a pattern in another part than its last")
