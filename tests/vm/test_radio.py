"""A Bluetooth radio: it has no node of its own, so its usbfs node stands for it."""

from tests.vm.attributes import usb
from tests.vm.desk import Desk
from tests.vm.gadgets import Gadgets

RADIO = {
    "driver": "btusb",
    "class": "wireless",
    "classCode": "e0",
    "vendor": "1209",
    "product": "0001",
    "serial": "R1",
    "name": "Acme Radio",
}


def test_a_radio_is_its_usbfs_node(desk: Desk, gadgets: Gadgets) -> None:
    words = {"serialnumber": "R1", "manufacturer": "Acme", "product": "Radio"}
    address = gadgets.plug_radio(2, words)
    name = f"usb-{address}-1-0"
    desk.until_offered(name)
    node = desk.usb_node(address)
    assert "hci0" in desk.control.shell("ls /sys/class/bluetooth")
    gadgets.pull(2)
    desk.until_gone(name)
    assert desk.nodes(name) == [[node]]
    before, here, after = desk.states(f"usb-{address}-")
    assert before == after == {}
    modalias = here[name].pop("modalias")
    assert modalias.endswith("icE0isc01ip01in00")
    assert here == {name: usb(f"{address}:1.0", RADIO)}
