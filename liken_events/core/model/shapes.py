"""One physical device, or several published ones: the shapes of hardware.

A device's nodes may be of several kernel subsystems with different authority. A GPU's render node
may be shared by many, because the driver arbitrates; its display node may not, because the kernel
gives modesetting to one; its monitor buses may not, because nobody arbitrates. Only a driver can
say so, and a device that is wrongly marked shareable cannot be corrected by anybody, while one
that is wrongly marked exclusive only waits.

This file is the table of shapes: the first rule that fits is taken. New kinds of hardware are a
new rule here and a recorded machine in the tests. Names and attributes are given in
`core.model.publish`.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from liken_events.core.model.snapshot import Device, Node, sort_nodes

GRAPHICS = frozenset({"drm", "graphics", "i2c-dev", "drm_dp_aux_dev"})
"""All that a GPU's driver registers: DRM, the framebuffer, i2c monitor buses, DisplayPort AUX
channels."""

GRAPHICS_COMPANIONS = ("drm_dp_aux_dev", "i2c-dev")
"""Published beside the render node, each as its own exclusive device. The framebuffer is delivered
to nobody:
holding it grants display takeover."""

PARTS = ("", "-display", *("-" + name.replace("_", "-") for name in GRAPHICS_COMPANIONS))
"""What the name of a published device may end in; the primary's in nothing."""

AUDIO = frozenset({"sound", "input"})
"""A sound card's nodes: ALSA registers an input device for each jack that it can sense."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """One published device to be: which nodes it has, and what they make of it.

    Attributes:
        suffix: what its name ends in; `""` for the primary, which comes first.
        nodes: sorted by path, never empty.
        subsystem: the kind, or None for a mix that is not known.
        shareable, render, display, sound: what it offers.
    """

    suffix: str = ""
    nodes: tuple[Node, ...]
    subsystem: str | None = None
    shareable: bool = False
    render: bool = False
    display: bool = False
    sound: bool = False


def shapes(device: Device) -> tuple[Shape, ...]:
    """The published devices that this physical device makes; empty if a claim on it would deliver
    nothing."""
    for rule in (_bluetooth, _nothing, _unknown, _graphics, _audio, _one_kind):
        found = rule(device)
        if found is not None:
            return found
    return (Shape(nodes=_whole(device), render=_renders(device.nodes)),)


def _bluetooth(device: Device) -> tuple[Shape, ...] | None:
    """A radio registers no node. Its usbfs node stands for it, so that a claim can hold it on its
    machine."""
    if device.key.bus != "usb" or device.driver != "btusb":
        return None
    return () if device.bus_node is None else (Shape(nodes=_whole(device)),)


def _nothing(device: Device) -> tuple[Shape, ...] | None:
    return None if device.nodes else ()


def _unknown(device: Device) -> tuple[Shape, ...] | None:
    """A node of which the kernel does not say what it is: nothing may be concluded from the
    others."""
    if all(node.subsystem is not None for node in device.nodes):
        return None
    return (Shape(nodes=_whole(device)),)


def _graphics(device: Device) -> tuple[Shape, ...] | None:
    render = [node for node in device.nodes if is_render(node)]
    if not render or not _subsystems(device.nodes) <= GRAPHICS:
        return None
    found = [
        Shape(
            nodes=_with_bus_node(device, render),
            subsystem="drm",
            shareable=True,
            render=True,
        )
    ]
    display = [n for n in device.nodes if n.subsystem == "drm" and n not in render]
    if display:
        found.append(
            Shape(suffix="-display", nodes=sort_nodes(display), subsystem="drm", display=True)
        )
    for subsystem in GRAPHICS_COMPANIONS:
        nodes = [n for n in device.nodes if n.subsystem == subsystem and n not in render]
        if nodes:
            suffix = "-" + subsystem.replace("_", "-")
            found.append(Shape(suffix=suffix, nodes=sort_nodes(nodes), subsystem=subsystem))
    return tuple(found)


def _audio(device: Device) -> tuple[Shape, ...] | None:
    subsystems = _subsystems(device.nodes)
    if "sound" not in subsystems or not subsystems <= AUDIO:
        return None
    return (Shape(nodes=_whole(device), subsystem="sound", sound=True),)


def _one_kind(device: Device) -> tuple[Shape, ...] | None:
    subsystems = _subsystems(device.nodes)
    if len(subsystems) != 1:
        return None
    return (
        Shape(nodes=_whole(device), subsystem=subsystems.pop(), render=_renders(device.nodes)),
    )


def _subsystems(nodes: Iterable[Node]) -> set[str]:
    return {node.subsystem for node in nodes if node.subsystem is not None}


def _whole(device: Device) -> tuple[Node, ...]:
    return _with_bus_node(device, device.nodes)


def _with_bus_node(device: Device, nodes: Iterable[Node]) -> tuple[Node, ...]:
    """The primary alone carries the usbfs node."""
    extra = () if device.bus_node is None else (device.bus_node,)
    return sort_nodes((*nodes, *extra))


def is_render(node: Node) -> bool:
    """Whether a node is one by which a graphics driver serves many at a time."""
    return node.path.startswith("/dev/dri/renderD")


def _renders(nodes: Iterable[Node]) -> bool:
    return any(is_render(node) for node in nodes)
