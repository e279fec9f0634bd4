"""How the devices fare that prepared claims hold.

A container has the nodes that it was started with. When its device leaves, they are dead; when the
device comes back under other numbers, they stay dead, although the next container will be given
the right ones. Nothing on the node tells which containers were started since.

This file compares what was given with what is there. A device is healthy while what was given
works, and again when the claim is prepared again, which the kubelet does for a new pod. Who is
told is left to `servers.health`.
"""

from collections.abc import Iterable

from liken_events.core.model.claims import DeviceHealth
from liken_events.core.model.names import printable
from liken_events.core.model.prepared import PreparedDevice, Presence, Sight
from liken_events.core.model.snapshot import Node


def health(held: PreparedDevice, sight: Sight) -> DeviceHealth:
    """How one held device fares for those who were given it."""
    message = _trouble(held, sight)
    return DeviceHealth(device=held.name, is_healthy=not message, message=message)


def merged(found: Iterable[DeviceHealth]) -> tuple[DeviceHealth, ...]:
    """One entry for each device, sorted by name: several claims may hold one, and the kubelet
    knows devices. What is wrong for one of them is told."""
    worst: dict[str, DeviceHealth] = {}
    for item in found:
        known = worst.get(item.device)
        if known is None or (known.is_healthy and not item.is_healthy):
            worst[item.device] = item
    return tuple(worst[name] for name in sorted(worst))


def _trouble(held: PreparedDevice, sight: Sight) -> str:
    name = printable(held.name)
    match sight.presence:
        case Presence.AWAY if sight.found:
            return f"{name} is there, but its driver is not bound or gives no device node"
        case Presence.AWAY:
            return f"{name} ({held.model}) is not on this machine now; plug it in again"
        case Presence.REPLACED:
            return f"{name} is another model now: {sight.found} instead of {held.model}"
        case Presence.THERE | Presence.DETACHED:
            return _outdated(held, sight)


def _outdated(held: PreparedDevice, sight: Sight) -> str:
    """Which nodes that were given are no longer the device's. Those of a driver that a program
    detached are not missed."""
    now = {_number(node) for node in sight.nodes}
    given = held.given
    if sight.presence is Presence.DETACHED:
        given = tuple(node for node in given if node.subsystem == "usb")
    dead = [node.path for node in given if _number(node) not in now]
    if not dead:
        return ""
    return (
        f"{printable(held.name)} came back as {_paths(node.path for node in sight.nodes)}; "
        f"containers started before have {_paths(dead)}, which is dead: delete the pod"
    )


def _number(node: Node) -> tuple[str, int, int, bool]:
    return node.path, node.major, node.minor, node.block


def _paths(paths: Iterable[str]) -> str:
    return printable(" ".join(paths))
