"""The kernel's objects: what a directory of sysfs shows, and what is said of it.

For each device, each level of a driver's own structure and each node the kernel keeps one object.
Its directory in sysfs and its uevents show the same facts: numbers, name, driver, ids.

This file holds that object as a value, and knows the order in which the kernel speaks of several.

Which objects a device has is said in `simulate.hardware`; directories are made and removed in
`simulate.directories`.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from liken_events.simulate.uevents import Uevent

BLOCK = "block"

_BUSES = frozenset({"pci", "usb", "hid", "i2c", "media", "scsi", "usb-serial", "virtio"})
"""Subsystems that are buses and lie in `/sys/bus`; all others here are classes and lie in
`/sys/class`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kobject:
    """One object of the kernel's device model.

    Attributes:
        path: kernel path, `/devices/…`.
        subsystem: its bus or class; None for an object that has none.
        driver: the driver that is bound to it.
        number: `major:minor` of its node.
        devname: path of its node below `/dev`.
        devtype: kind within the subsystem, such as `usb_interface`.
        variables: what only its bus says in uevents, name and value.
        attributes: files of its directory, name and text (without the final newline).
    """

    path: str
    subsystem: str | None = None
    driver: str | None = None
    number: str | None = None
    devname: str | None = None
    devtype: str | None = None
    variables: tuple[tuple[str, str], ...] = ()
    attributes: tuple[tuple[str, str], ...] = ()

    @property
    def name(self) -> str:
        """Name of its directory."""
        return self.path.rpartition("/")[2]

    @property
    def home(self) -> str | None:
        """Its subsystem's directory in sysfs: `/bus/usb`, `/class/tty`."""
        if self.subsystem is None:
            return None
        return f"/{'bus' if self.subsystem in _BUSES else 'class'}/{self.subsystem}"

    @property
    def on_bus(self) -> bool:
        """Whether its subsystem is a bus."""
        return self.subsystem in _BUSES

    def lines(self) -> tuple[tuple[str, str], ...]:
        """Name and value of each line of its `uevent` file."""
        return self._facts(driver=self.driver)

    def uevent(self, action: str) -> Uevent:
        """What the kernel says about it. An object is added before and removed after it has a
        driver."""
        subsystem = () if self.subsystem is None else (("SUBSYSTEM", self.subsystem),)
        facts = self._facts(driver=self.driver if action == "bind" else None)
        return Uevent(action=action, devpath=self.path, properties=subsystem + facts)

    def _facts(self, *, driver: str | None) -> tuple[tuple[str, str], ...]:
        major, _, minor = (self.number or "").partition(":")
        first = {
            "MAJOR": major,
            "MINOR": minor,
            "DEVNAME": self.devname,
            "DEVTYPE": self.devtype,
            "DRIVER": driver,
        }
        return tuple((name, value) for name, value in first.items() if value) + self.variables


def arrival(objects: Iterable[Kobject]) -> list[Uevent]:
    """What the kernel says when objects come: of each before what is below it, its `bind` after
    that."""
    said: list[Uevent] = []
    for item, entered in _visits(objects):
        said += [item.uevent("add")] if entered else binding(item)
    return said


def departure(objects: Iterable[Kobject]) -> list[Uevent]:
    """What the kernel says when objects go: of each after what is below it, its `unbind` first."""
    said: list[Uevent] = []
    for item, entered in _visits(objects):
        if not entered:
            said += [] if item.driver is None else [item.uevent("unbind")]
            said.append(item.uevent("remove"))
    return said


def binding(item: Kobject) -> list[Uevent]:
    """What the kernel says when an object got its driver: nothing if it has none."""
    return [] if item.driver is None else [item.uevent("bind")]


def in_order(objects: Iterable[Kobject]) -> list[Kobject]:
    """Sorted so that each object comes before what is below it, and families stay together."""
    return sorted(objects, key=lambda item: item.path.split("/"))


def is_below(path: str, top: str) -> bool:
    """Whether a kernel path is strictly below another."""
    return path.startswith(top + "/")


def is_within(path: str, top: str) -> bool:
    """Whether a kernel path is another one or below it."""
    return path == top or is_below(path, top)


def _visits(objects: Iterable[Kobject]) -> Iterator[tuple[Kobject, bool]]:
    """Each object twice: true when it is entered, false when all below it was visited."""
    above: list[Kobject] = []
    for item in in_order(objects):
        while above and not is_below(item.path, above[-1].path):
            yield above.pop(), False
        yield item, True
        above.append(item)
    while above:
        yield above.pop(), False
