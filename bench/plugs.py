"""The kinds of devices that are plugged into a guest.

Each kind has a port or a slot of its own, so that all may be there at once. Which uevents belong
to a kind is a matter of paths: a USB device with all that is below it, or a PCI function. A device
is gone when the kernel says `remove` of what is published, an interface or a function: until then
its children go one by one and its driver is unbound, as also happens to a device that stays.
"""

from collections.abc import Callable
from dataclasses import dataclass

from bench.kernel_trace import Uevent
from liken_events.core.model.names import device_name
from liken_events.core.model.snapshot import Key
from tests.vm.desk import Desk
from tests.vm.gadgets import CONFIGFS, HID, Gadget, Gadgets
from tests.vm.hardware import Hardware

REST_SECONDS = 0.4
"""Without an event: longer than any pause in the middle of a plug-in or removal."""

DISK_SECONDS = 3.0
"""The same for a USB disk: the kernel waits a second before it looks what is behind the bridge."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """One kind of device.

    Attributes:
        name: for a person.
        keys: what is published of it.
        plug, pull: plugs it in, pulls it out.
        is_claimed: whether it is also measured with a claim for the first of its keys.
        rest: seconds without an event after which no more come of a plug-in.
    """

    name: str
    keys: tuple[Key, ...]
    plug: Callable[[], None]
    pull: Callable[[], None]
    is_claimed: bool = False
    rest: float = REST_SECONDS

    @property
    def published(self) -> tuple[str, ...]:
        """The names that are published."""
        return tuple(device_name(key) for key in self.keys)

    def owns(self, event: Uevent) -> bool:
        """Whether an event is about one of these devices or what is below it."""
        parts = event.path.split("/")
        return any(_top(key) in parts for key in self.keys)

    def goes(self, event: Uevent) -> bool:
        """Whether an event says that one of these devices is gone."""
        name = event.path.rpartition("/")[2]
        return event.action == "remove" and any(name == key.address for key in self.keys)


def _top(key: Key) -> str:
    """The directory that all its events are below: of an interface, that of the USB device."""
    return key.address if key.bus == "pci" else key.address.partition(":")[0]


def kinds(hardware: Hardware, desk: Desk) -> list[Kind]:
    """All kinds, none of them plugged in. Takes some seconds."""

    def hub() -> str:
        name = hardware.usb("usb-hub", "3")
        hardware.usb("usb-kbd", "3.1", serial="H1")
        hardware.usb("usb-tablet", "3.2", serial="H2")
        hardware.usb_serial("3.4", "H4")
        return name

    def of_qemu(
        name: str,
        keys: tuple[Key, ...],
        put: Callable[[], str],
        *,
        is_claimed: bool = False,
        rest: float = REST_SECONDS,
    ) -> Kind:
        inside: list[str] = []
        return Kind(
            name=name,
            keys=keys,
            plug=lambda: inside.append(put()),
            pull=lambda: hardware.pull(inside.pop()),
            is_claimed=is_claimed,
            rest=rest,
        )

    return [
        of_qemu(
            "USB serial adapter",
            _usb("1-1:1.0"),
            lambda: hardware.usb_serial("1", "S1"),
            is_claimed=True,
        ),
        of_qemu(
            "USB keyboard",
            _usb("1-2:1.0"),
            lambda: hardware.usb("usb-kbd", "2", serial="K1"),
            is_claimed=True,
        ),
        of_qemu(
            "USB sound card",
            _usb("1-4:1.0"),
            lambda: hardware.usb("usb-audio", "4", audiodev="silence", serial="A1"),
            is_claimed=True,
        ),
        of_qemu(
            "USB disk",
            _usb("2-5:1.0"),
            lambda: hardware.usb_disk("5", "D1"),
            is_claimed=True,
            rest=DISK_SECONDS,
        ),
        of_qemu("hub with three devices", _usb("1-3.1:1.0", "1-3.2:1.0", "1-3.4:1.0"), hub),
        _composite(desk),
        of_qemu(
            "NVMe disk",
            (Key(bus="pci", address="0000:01:00.0"),),
            lambda: hardware.pci("nvme", 0, drive=hardware.disk(), serial="N1"),
        ),
        of_qemu(
            "PCI serial card",
            (Key(bus="pci", address="0000:02:00.0"),),
            lambda: hardware.pci("pci-serial", 1, chardev=hardware.line()),
        ),
    ]


def _usb(*addresses: str) -> tuple[Key, ...]:
    return tuple(Key(bus="usb", address=address) for address in addresses)


def _composite(desk: Desk) -> Kind:
    """A gadget with a modem and a keyboard, which is made once: the kernel has few of each."""
    gadgets = Gadgets(desk)
    words = {"serialnumber": "C1", "manufacturer": "Acme", "product": "Two in one"}
    address = gadgets.plug(0, Gadget(functions={"acm.a": {}, "hid.b": HID}, words=words))
    port = desk.control.shell(f"echo {CONFIGFS}/usb_gadget/*/UDC").strip()
    controller = desk.control.read(port).decode()
    gadgets.pull(0)
    return Kind(
        name="composite gadget",
        keys=_usb(f"{address}:1.0", f"{address}:1.2"),
        plug=lambda: desk.control.write(port, controller),
        pull=lambda: desk.control.write(port, "\n"),
    )
