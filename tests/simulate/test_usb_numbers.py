"""Device numbers: counted on as the kernel does, each bus for itself."""

from collections.abc import Iterable

import pytest

from liken_events.core.model.snapshot import Device
from liken_events.simulate.usb_numbers import LAST, UsbNumbers, bus_of, renumbered
from tests.fakes.devices import usb


def on_bus(bus: int, numbers: Iterable[int]) -> list[Device]:
    return [usb(f"{bus}-{n}:1.0", "1234:5678", "ff0000", None, n) for n in numbers]


def test_the_first_number_of_a_bus_is_1() -> None:
    assert UsbNumbers().give(1, []) == 1


def test_a_number_that_became_free_is_not_given_at_once() -> None:
    numbers = UsbNumbers()
    numbers.learn(on_bus(1, [1, 2, 3]))

    assert numbers.give(1, on_bus(1, [1, 2])) == 4


def test_the_highest_of_many_that_came_at_once_counts() -> None:
    numbers = UsbNumbers()
    numbers.learn(on_bus(1, [7, 2, 5]))

    assert numbers.give(1, []) == 8


def test_buses_count_for_themselves() -> None:
    numbers = UsbNumbers()
    numbers.learn(on_bus(1, [9]) + on_bus(2, [4]))

    assert (numbers.give(1, []), numbers.give(2, []), numbers.give(3, [])) == (10, 5, 1)


def test_after_the_last_number_the_lowest_free_one_follows() -> None:
    numbers = UsbNumbers()
    devices = on_bus(1, [1, 2, 4, LAST])
    numbers.learn(devices)

    assert numbers.give(1, devices) == 3


def test_a_full_bus_gives_none() -> None:
    with pytest.raises(LookupError, match="USB bus 1 has no free number"):
        UsbNumbers().give(1, on_bus(1, range(1, LAST + 1)))


def test_a_device_without_a_known_number_takes_none() -> None:
    nameless = usb("1-1:1.0", "1234:5678", "ff0000", None, 1000)
    assert renumbered(None, 5) is None
    assert nameless.bus_node is not None


def test_a_new_number_gives_a_new_node_on_the_same_bus() -> None:
    (device,) = on_bus(3, [2])

    node = renumbered(device.bus_node, 5)

    assert node is not None
    assert (node.path, node.major, node.minor) == ("/dev/bus/usb/003/005", 189, 2 * 128 + 4)


@pytest.mark.parametrize(("address", "bus"), [("1-2", 1), ("12-1.4:1.0", 12)])
def test_an_address_tells_the_bus(address: str, bus: int) -> None:
    assert bus_of(address) == bus
