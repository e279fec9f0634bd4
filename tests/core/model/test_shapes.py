from dataclasses import replace

import pytest
from hypothesis import given

from liken_events.core.model.shapes import Shape, shapes
from liken_events.core.model.snapshot import Device, Node
from tests.core import generated
from tests.fakes.devices import (
    dp_aux,
    drm,
    event,
    hiddev,
    hidraw,
    i2c,
    pci,
    scsi_disk,
    snd,
    tty,
    usb,
)

CARD, RENDER, RENDER2 = drm("card0", 0), drm("renderD128", 128), drm("renderD129", 129)
CONTROL = drm("controlD64", 64)
FRAMEBUFFER = Node(path="/dev/fb0", subsystem="graphics", major=29, minor=0, place="graphics/fb0")
BUSES = [i2c(0), i2c(1, "drm/card0/card0-DP-1/")]
AUX = dp_aux(0, "card0-DP-1")
SOUND = [snd(0, "controlC0", 0), snd(0, "pcmC0D0p", 1)]
JACK = event("sound/card0/input", 3, 3)
PORT = tty("ttyUSB0", 0)
HID = "0003:051D:0002.0001"
CAMERA = [
    Node(path=f"/dev/video{n}", subsystem="video4linux", major=81, minor=n, place=f"v/video{n}")
    for n in (0, 1)
]
UNKNOWN = Node(path="/dev/odd", subsystem=None, major=300, minor=0, place="odd")
MISC_RENDER, I2C_RENDER = (replace(RENDER, subsystem=kind) for kind in ("misc", "i2c-dev"))


def card(*nodes: Node, driver: str = "amdgpu") -> Device:
    return pci("0000:03:00.0", "1002:73e3", "030000", driver, nodes=nodes)


def stick(*nodes: Node, driver: str = "cp210x") -> Device:
    return usb("1-2:1.0", "10c4:ea60", "ff0000", driver, 2, nodes=nodes)


BUS = stick().bus_node
assert BUS is not None


@pytest.mark.parametrize(
    ("device", "expected"),
    [
        # A radio has no node of its own; its usbfs node stands for it.
        (stick(driver="btusb"), [Shape(nodes=(BUS,))]),
        (stick(hidraw(HID, 0), driver="btusb"), [Shape(nodes=(BUS, hidraw(HID, 0)))]),
        (stick(RENDER, CARD, driver="btusb"), [Shape(nodes=(BUS, CARD, RENDER))]),
        (replace(stick(PORT, driver="btusb"), bus_node=None), []),
        (card(PORT, driver="btusb"), [Shape(nodes=(PORT,), subsystem="tty")]),
        # Nothing is delivered, or the usbfs node alone: no offer.
        (card(), []),
        (stick(), []),
        (replace(stick(), driver=None), []),
        # A node that nobody knows makes nothing certain.
        (card(UNKNOWN), [Shape(nodes=(UNKNOWN,))]),
        (card(RENDER, CARD, UNKNOWN), [Shape(nodes=(CARD, RENDER, UNKNOWN))]),
        (stick(*SOUND, UNKNOWN), [Shape(nodes=(BUS, UNKNOWN, *SOUND))]),
        # Graphics.
        (card(RENDER), [Shape(nodes=(RENDER,), subsystem="drm", shareable=True, render=True)]),
        (
            card(RENDER2, RENDER),
            [Shape(nodes=(RENDER, RENDER2), subsystem="drm", shareable=True, render=True)],
        ),
        (
            card(RENDER, CONTROL, CARD, *BUSES, AUX, FRAMEBUFFER),
            [
                Shape(nodes=(RENDER,), subsystem="drm", shareable=True, render=True),
                Shape(suffix="-display", nodes=(CARD, CONTROL), subsystem="drm", display=True),
                Shape(suffix="-drm-dp-aux-dev", nodes=(AUX,), subsystem="drm_dp_aux_dev"),
                Shape(suffix="-i2c-dev", nodes=tuple(BUSES), subsystem="i2c-dev"),
            ],
        ),
        (
            card(RENDER, FRAMEBUFFER),
            [Shape(nodes=(RENDER,), subsystem="drm", shareable=True, render=True)],
        ),
        (
            stick(RENDER, CARD, driver="udl"),
            [
                Shape(nodes=(BUS, RENDER), subsystem="drm", shareable=True, render=True),
                Shape(suffix="-display", nodes=(CARD,), subsystem="drm", display=True),
            ],
        ),
        (
            card(I2C_RENDER, *BUSES),
            [
                Shape(nodes=(I2C_RENDER,), subsystem="drm", shareable=True, render=True),
                Shape(suffix="-i2c-dev", nodes=tuple(BUSES), subsystem="i2c-dev"),
            ],
        ),
        # A card without a render node, or with something that no GPU has, is not shared out.
        (card(CARD), [Shape(nodes=(CARD,), subsystem="drm")]),
        (card(CARD, FRAMEBUFFER), [Shape(nodes=(CARD, FRAMEBUFFER))]),
        (card(FRAMEBUFFER), [Shape(nodes=(FRAMEBUFFER,), subsystem="graphics")]),
        (card(*BUSES), [Shape(nodes=tuple(BUSES), subsystem="i2c-dev")]),
        (card(RENDER, CARD, PORT), [Shape(nodes=(CARD, RENDER, PORT), render=True)]),
        (card(RENDER, JACK), [Shape(nodes=(RENDER, JACK), render=True)]),
        (card(MISC_RENDER), [Shape(nodes=(MISC_RENDER,), subsystem="misc", render=True)]),
        # Sound, with its jacks.
        (card(*SOUND), [Shape(nodes=tuple(SOUND), subsystem="sound", sound=True)]),
        (card(JACK, *SOUND), [Shape(nodes=(JACK, *SOUND), subsystem="sound", sound=True)]),
        (stick(*SOUND), [Shape(nodes=(BUS, *SOUND), subsystem="sound", sound=True)]),
        (card(JACK), [Shape(nodes=(JACK,), subsystem="input")]),
        (
            stick(*SOUND, JACK, hidraw(HID, 0)),
            [Shape(nodes=(BUS, hidraw(HID, 0), JACK, *SOUND))],
        ),
        # One kind, or an unknown mix: whole.
        (stick(PORT), [Shape(nodes=(BUS, PORT), subsystem="tty")]),
        (
            stick(*(tty(f"ttyUSB{port}", port) for port in range(4))),
            [Shape(nodes=(BUS, *(tty(f"ttyUSB{p}", p) for p in range(4))), subsystem="tty")],
        ),
        (stick(*CAMERA), [Shape(nodes=(BUS, *CAMERA), subsystem="video4linux")]),
        (
            stick(hiddev(0), hidraw(HID, 0), driver="usbhid"),
            [Shape(nodes=(BUS, hidraw(HID, 0), hiddev(0)))],
        ),
        (
            stick(*scsi_disk("", 0, 0, 1), driver="usb-storage"),
            [
                Shape(
                    nodes=tuple(sorted([BUS, *scsi_disk("", 0, 0, 1)], key=lambda node: node.path))
                )
            ],
        ),
    ],
)
def test_the_first_rule_that_fits_makes_the_shapes(device: Device, expected: list[Shape]) -> None:
    assert shapes(device) == tuple(expected)


GRAPHICS = {"drm", "graphics", "i2c-dev", "drm_dp_aux_dev"}
gpus = generated.devices(found=generated.nodes.filter(lambda node: node.subsystem in GRAPHICS))
hardware = gpus | generated.devices()


@given(hardware)
def test_no_two_shapes_of_one_device_share_a_node(device: Device) -> None:
    delivered = [node for shape in shapes(device) for node in shape.nodes]
    assert len(delivered) == len({node.path for node in delivered})


@given(hardware)
def test_every_node_but_the_framebuffer_is_delivered(device: Device) -> None:
    found = shapes(device)
    if not found:
        assert not device.nodes or device.driver == "btusb"
        return
    delivered = {node for shape in found for node in shape.nodes}
    left = {*device.nodes, *([device.bus_node] if device.bus_node else [])} - delivered
    assert {node.subsystem for node in left} <= {"graphics"}
    assert delivered <= {*device.nodes, device.bus_node}


@given(hardware)
def test_only_the_primary_carries_the_usb_node_or_may_be_shared(device: Device) -> None:
    found = shapes(device)
    for index, shape in enumerate(found):
        assert shape.nodes
        assert list(shape.nodes) == sorted(shape.nodes, key=lambda node: (node.path, node.place))
        assert (shape.suffix == "") == (index == 0)
        assert (device.bus_node in shape.nodes) == (index == 0 and device.bus_node is not None)
        renders = all(
            node.path.startswith("/dev/dri/renderD") or node == device.bus_node
            for node in shape.nodes
        )
        assert not shape.shareable or (index == 0 and shape.render and renders)
    suffixes = [shape.suffix for shape in found]
    assert suffixes == sorted(suffixes, key=lambda text: (text != "", text != "-display", text))
