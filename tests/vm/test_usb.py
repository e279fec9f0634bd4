"""USB devices of QEMU's: what is published of each, in which order, and nothing in between."""

from tests.vm.attributes import FTDI, KEYBOARD, TABLET, usb
from tests.vm.desk import Desk, kinds
from tests.vm.hardware import Hardware

NAME, ADDRESS = "usb-1-1-1-0", "1-1:1.0"


def test_a_serial_adapter_comes_and_goes(desk: Desk, hardware: Hardware) -> None:
    device = hardware.usb_serial("1", "Z1")
    desk.until_offered(NAME)
    nodes = desk.delivered(ADDRESS)
    hardware.pull(device)
    desk.until_gone(NAME)
    assert kinds(nodes) == ["/dev/bus/usb/#/#", "/dev/ttyUSB#"]
    assert desk.nodes(NAME) == [nodes]
    assert desk.states("usb-1-1-") == [{}, {NAME: usb(ADDRESS, FTDI, serial="Z1")}, {}]
    assert desk.why(NAME) == ["gone"]


def test_two_adapters_with_one_serial_number_are_two_devices(
    desk: Desk, hardware: Hardware
) -> None:
    first = hardware.usb_serial("1", "SAME")
    desk.until_offered("usb-1-1-1-0")
    hardware.usb_serial("2", "SAME")
    desk.until_offered("usb-1-2-1-0")
    nodes = [desk.delivered("1-1:1.0"), desk.delivered("1-2:1.0")]
    hardware.pull(first)
    desk.until_gone("usb-1-1-1-0")
    one = {"usb-1-1-1-0": usb("1-1:1.0", FTDI, serial="SAME")}
    two = {"usb-1-2-1-0": usb("1-2:1.0", FTDI, serial="SAME")}
    assert desk.states("usb-1-1-", "usb-1-2-") == [{}, one, one | two, two]
    assert desk.nodes("usb-1-1-1-0") == nodes[:1]
    assert desk.nodes("usb-1-2-1-0") == nodes[1:]
    assert not set(nodes[0]) & set(nodes[1])


def test_a_keyboard_is_published_once_with_its_hidraw_and_input_nodes(
    desk: Desk, hardware: Hardware
) -> None:
    device = hardware.usb("usb-kbd", "1", serial="K1")
    desk.until_offered(NAME)
    nodes = desk.delivered(ADDRESS)
    hardware.pull(device)
    desk.until_gone(NAME)
    assert kinds(nodes) == ["/dev/bus/usb/#/#", "/dev/hidraw#", "/dev/input/event#"]
    assert desk.nodes(NAME) == [nodes]
    assert desk.states("usb-1-1-") == [{}, {NAME: usb(ADDRESS, KEYBOARD, serial="K1")}, {}]


def test_a_sound_card_is_one_device_though_it_has_two_interfaces(
    desk: Desk, hardware: Hardware
) -> None:
    device = hardware.usb("usb-audio", "1", audiodev="silence", serial="A1")
    desk.until_offered(NAME)
    nodes = desk.delivered(ADDRESS)
    hardware.pull(device)
    desk.until_gone(NAME)
    card = {
        "driver": "snd-usb-audio",
        "class": "audio",
        "classCode": "01",
        "subsystem": "sound",
        "sound.liken.sh/supportsSound": True,
        "vendor": "46f4",
        "product": "0002",
        "name": "QEMU QEMU USB Audio",
        "modalias": "usb:v46F4p0002d0000dc00dsc00dp00ic01isc01ip04in00",
    }
    assert kinds(nodes) == ["/dev/bus/usb/#/#", "/dev/snd/controlC#", "/dev/snd/pcmC#D#p"]
    assert desk.nodes(NAME) == [nodes]
    assert desk.states("usb-1-1-") == [{}, {NAME: usb(ADDRESS, card, serial="A1")}, {}]


def test_all_that_hangs_on_a_hub_goes_when_it_is_pulled(desk: Desk, hardware: Hardware) -> None:
    expected = {
        "usb-1-3-1-1-0": usb("1-3.1:1.0", KEYBOARD, serial="H1"),
        "usb-1-3-2-1-0": usb("1-3.2:1.0", TABLET, serial="H2"),
        "usb-1-3-4-1-0": usb("1-3.4:1.0", FTDI, serial="H4"),
    }
    hub = hardware.usb("usb-hub", "3")
    hardware.usb("usb-kbd", "3.1", serial="H1")
    hardware.usb("usb-tablet", "3.2", serial="H2")
    hardware.usb_serial("3.4", "H4")
    desk.until_offered(*expected)
    nodes = {name: desk.delivered(it["address"]) for name, it in expected.items()}
    hardware.pull(hub)
    desk.until_gone(*expected)
    assert {name: desk.nodes(name) for name in expected} == {
        name: [paths] for name, paths in nodes.items()
    }
    states = desk.states("usb-1-3-")
    assert states[0] == states[-1] == {}
    assert expected in states
    for state in states:  # they come and go one by one, but each is whole whenever it is there
        assert state.items() <= expected.items()
    sizes = [len(state) for state in states]
    peak = sizes.index(3)
    assert sizes[:peak] == sorted(sizes[:peak])
    assert sizes[peak:] == sorted(sizes[peak:], reverse=True)
