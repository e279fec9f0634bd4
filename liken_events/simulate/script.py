"""What happens to a simulated machine, step by step.

A demonstration and a test want the same thing: hardware that comes, goes and changes in the ways
that matter, one way at a time, and to know of each what should become of it.

This file holds such scripts as data. Each step has a title for a person and a change of the tree.
Which published devices it should change is not written down but worked out: the same rules that
the agent applies to what it reads are applied to what the tree is known to show, before and after.

The files and the uevents are made by `simulate.tree`. Whether the agent comes to the same result,
and how fast, is for the caller of `play` to see.
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import trio

from liken_events.core.model.device import difference
from liken_events.core.model.names import clean, printable
from liken_events.core.model.publish import inventory
from liken_events.core.model.snapshot import Device, Key, Snapshot, Use
from liken_events.simulate.kobjects import is_within
from liken_events.simulate.recordings import desk
from liken_events.simulate.tree import MachineTree
from liken_events.simulate.uevents import Feed, Uevent
from liken_events.simulate.usb_numbers import renumbered

Change: TypeAlias = Callable[[MachineTree], list[Uevent]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One thing that happens. `title` is for a person; `change` does it to the tree and returns
    the uevents."""

    title: str
    change: Change


@dataclass(frozen=True, slots=True, kw_only=True)
class Played:
    """A step that was done.

    Attributes:
        index: its place in the script, from 0.
        title: of the step.
        expected: names of the published devices that it adds, changes or removes, sorted.
        sent: when its last uevent was sent (or its file written, where the kernel sends none), in
            seconds of trio's clock.
    """

    index: int
    title: str
    expected: tuple[str, ...]
    sent: float


async def play(
    tree: MachineTree,
    feed: Feed,
    on_step: Callable[[Played], Awaitable[None]],
    *,
    steps: Sequence[Step],
    pause: float = 0.0,
    spread: float = 0.0,
) -> None:
    """Does one step after the other.

    Args:
        tree: the machine that it happens to.
        feed: takes the uevents of each step.
        on_step: called after each step; the next one waits until it returns.
        steps: what happens, in order.
        pause: seconds before each step.
        spread: seconds over which the uevents of one step are spread. A real stick takes some
            tenths.
    """
    for index, step in enumerate(steps):
        await trio.sleep(pause)
        before = tree.snapshot
        uevents = await trio.to_thread.run_sync(step.change, tree)
        sent = trio.current_time()
        for number, uevent in enumerate(uevents):
            if number and spread:
                await trio.sleep(spread / (len(uevents) - 1))
            feed.send([uevent])
            sent = trio.current_time()
        expected = _changed(before, tree.snapshot)
        await on_step(Played(index=index, title=step.title, expected=expected, sent=sent))


def script_for(snapshot: Snapshot) -> tuple[Step, ...]:
    """The script for a machine: the one about the desk, or one that is made of what the machine
    offers."""
    return desk_script() if snapshot == desk() else generic_script(snapshot)


def desk_script() -> tuple[Step, ...]:
    """What happens on the desk, as a newcomer would try it."""
    machine = desk()
    stick = Key(bus="usb", address="1-1.2:1.0")
    backup = Use(what="/mnt/backup", fstype="ext4", source="/dev/sdb1", number="8:17")
    return (
        Step(title="the Zigbee stick is pulled out", change=_pull("1-1.2")),
        Step(title="the Zigbee stick is plugged in", change=_plug(machine, "1-1.2")),
        Step(title="its plug is loose: it is back under a new number", change=_flap("1-1.2")),
        Step(title="a program takes the stick from its driver", change=_unbind(stick)),
        Step(title="the program ends, and the driver is back", change=_bind(machine, stick)),
        Step(title="the USB disk is mounted, so the machine needs it", change=_mount(backup)),
        Step(title="the USB disk is unmounted", change=_unmount(backup)),
        Step(title="the UPS is pulled out", change=_pull("1-3")),
        Step(title="the Bluetooth radio is pulled out", change=_pull("1-14")),
        Step(title="the Bluetooth radio is plugged in", change=_plug(machine, "1-14")),
        Step(title="the webcam is pulled out", change=_pull("1-4")),
    )


def generic_script(snapshot: Snapshot) -> tuple[Step, ...]:
    """Each device that a machine offers leaves and comes back: by its plug and by its driver on
    USB, by removing it from the bus on PCI.
    """
    offered = {device.key for device in inventory(snapshot).offered}
    steps: list[Step] = []
    pulled: set[str] = set()
    for device in snapshot.devices:
        if device.key not in offered:
            continue
        words = _words(device)
        address = device.key.address.partition(":")[0]
        if device.key.bus == "pci":
            gone, found = _remove(device.key), _rescan(snapshot, device)
            steps.append(Step(title=f"{words} is removed from the bus", change=gone))
            steps.append(Step(title=f"{words} is found again", change=found))
            continue
        if address not in pulled:
            pulled.add(address)
            back = _plug(snapshot, address)
            steps.append(Step(title=f"{words} is pulled out", change=_pull(address)))
            steps.append(Step(title=f"{words} is plugged in", change=back))
            steps.append(Step(title=f"{words} gets a new number", change=_flap(address)))
        bound = _bind(snapshot, device.key)
        steps.append(Step(title=f"{words} loses its driver", change=_unbind(device.key)))
        steps.append(Step(title=f"{words} has its driver back", change=bound))
    return tuple(steps)


def _pull(address: str) -> Change:
    return lambda tree: tree.unplug(address)


def _plug(machine: Snapshot, address: str) -> Change:
    """A USB device as the machine had it, under the number that the kernel would give it now."""
    devices = [device for device in machine.devices if _is_of(device, address)]

    def change(tree: MachineTree) -> list[Uevent]:
        number = tree.next_number(address)
        return tree.plug(*(replace(d, bus_node=renumbered(d.bus_node, number)) for d in devices))

    return change


def _flap(address: str) -> Change:
    return lambda tree: tree.renumber(address, tree.next_number(address))


def _unbind(key: Key) -> Change:
    return lambda tree: tree.unbind(key)


def _bind(machine: Snapshot, key: Key) -> Change:
    """The driver and the nodes that the device had on this machine."""
    device = next(device for device in machine.devices if device.key == key)
    return lambda tree: tree.bind(key, device.driver or "", device.nodes)


def _mount(use: Use) -> Change:
    return lambda tree: tree.mount(use)


def _unmount(use: Use) -> Change:
    return lambda tree: tree.unmount(use.what)


def _remove(key: Key) -> Change:
    return lambda tree: tree.unplug(key)


def _rescan(machine: Snapshot, device: Device) -> Change:
    """A PCI function and all that hung on it."""
    found = [other for other in machine.devices if is_within(other.path, device.path)]
    return lambda tree: tree.plug(*found)


def _is_of(device: Device, address: str) -> bool:
    """Whether a device is an interface of the USB device with this address."""
    return device.key.bus == "usb" and device.key.address.partition(":")[0] == address


def _changed(before: Snapshot, after: Snapshot) -> tuple[str, ...]:
    """Names of the published devices that differ."""
    found = difference(inventory(before).offered, inventory(after).offered)
    changed = (new for _, new in found.changed)
    return tuple(sorted(device.name for device in (*found.added, *changed, *found.removed)))


def _words(device: Device) -> str:
    """How a device is called in a title: its own words as far as it has any, and its place."""
    words = [clean(text) for text in (device.maker, device.model)]
    called = " ".join(word for word in words if word is not None) or device.driver or "a device"
    return printable(f"{called} ({device.key.bus} {device.key.address})")
