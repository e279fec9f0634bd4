"""What an event costs on a large machine, measured against a small one.

An event is about one device. If its cost grows with the number of devices, the agent is a poller
that events trigger.

This file does the same to one device on a machine of 20 and on one of 1,000 devices and compares
the CPU time of the whole agent, from reading the events to writing the slice. The large machine
offers 120 devices, nearly as many as a slice holds, and withholds the others. Both agents run at
the same time and have their turns one after the other, so that whatever else runs meets both.
Settling is short: only waiting is left out.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass

from bench.agent_process import SLICE, AgentProcess
from bench.crowd import disk, stick
from bench.effort import Effort
from bench.measurement import Measurement, measured
from bench.network import another_network
from bench.slice_file import SliceFile, has, lacks
from bench.trees import Trees
from liken_events.core.model.names import device_name
from liken_events.simulate.tree import MachineTree
from liken_events.simulate.uevents import Uevent, UeventSender

GROUP = "scale"
BOUND = 1.3
"""How many times as much an event may cost on the large machine."""

SETTLE = 0.02
"""Seconds of settling here."""

OTHER_BLOCKS = (
    *("9-*", "[1-9][0-9]-*"),
    *("0000:0[89a-f]:*", "0000:[1-3]?:*", "0000:8[89a-f]:*", "0000:[9ab]?:*"),
)
"""Addresses of all but the first 8 blocks."""

GRAPHICS_AND_DISKS = ("driver=i915", "driver=nvme", "driver=snd_hda_intel")
"""What comes before all USB devices in the order of names."""

ADAPTER, DISK = stick(0, 1), disk(0)
NAME, DISK_NAME = device_name(ADAPTER.key), device_name(DISK.key)

REPLUG = "a replug"


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """A machine, what the agent is told to ignore of it, and what is done to it."""

    what: str
    devices: int
    ignore: tuple[str, ...]
    acts: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """One setting at work: the agent on its machine, and the way for events."""

    setting: Setting
    tree: MachineTree
    file: SliceFile
    agent: AgentProcess
    sender: UeventSender


def measure(trees: Trees, effort: Effort) -> Iterator[Measurement]:
    """All numbers of this group."""
    costs: dict[tuple[Setting, str], list[float]] = {}
    with ExitStack() as stack:
        scenes = [_open(stack, trees, setting) for setting in (SMALL, LARGE, CROWDED)]
        for scene in scenes:
            scene.file.wait(has(NAME))
        for what in ACTS:
            there = [scene for scene in scenes if what in scene.setting.acts]
            for scene in there:
                _cost(scene, what)  # the first time fills caches
            for _ in range(effort.rounds * effort.repeats // 2):
                for scene in there:
                    costs.setdefault((scene.setting, what), []).append(_cost(scene, what))
    for scene in scenes:
        scene.tree.unplug(ADAPTER.key)
        scene.tree.plug(ADAPTER)
    for (setting, what), found in costs.items():
        yield measured(GROUP, f"CPU of {what}, {setting.what}", "ms", found, scale=1000)
    for setting, bound in ((LARGE, BOUND), (CROWDED, None)):
        for what in setting.acts:
            pairs = zip(costs[setting, what], costs[SMALL, what], strict=True)
            ratios = [one / other for one, other in pairs]
            label = f"{what}: {setting.what} against {SMALL.what}"
            yield measured(GROUP, label, "x", ratios, bound=bound)


def _open(stack: ExitStack, trees: Trees, setting: Setting) -> Scene:
    directory, tree = trees.directory(), trees.machine(setting.devices)
    options = [f"--settle-quiet={SETTLE}", *(f"--ignore={item}" for item in setting.ignore)]
    file = stack.enter_context(SliceFile(directory, SLICE))
    with another_network():
        sender = stack.enter_context(UeventSender())
        agent = stack.enter_context(AgentProcess(tree, directory, options))
    return Scene(setting=setting, tree=tree, file=file, agent=agent, sender=sender)


def _cost(scene: Scene, what: str) -> float:
    """Seconds of CPU that an act takes."""
    act, rest = ACTS[what]
    before = scene.agent.cpu()
    act(scene)
    scene.agent.rest(rest)
    return scene.agent.cpu() - before


def _change(scene: Scene) -> None:
    """An event after which the device is as it was: it is looked at, and nothing is written."""
    before = scene.agent.cpu()
    properties = (("SUBSYSTEM", "usb"), ("DEVTYPE", "usb_interface"))
    scene.sender.send([Uevent(action="change", devpath=ADAPTER.path, properties=properties)])
    while scene.agent.cpu() == before:
        pass


def _replug(scene: Scene) -> None:
    """The adapter is pulled out and plugged in: the slice is written twice."""
    scene.sender.send(scene.tree.unplug(ADAPTER.key))
    scene.file.wait(lacks(NAME))
    scene.sender.send(scene.tree.plug(ADAPTER))
    scene.file.wait(has(NAME))


def _exchange(scene: Scene) -> None:
    """Another adapter is in its place before anybody looked: the slice is written once."""
    serial = "0002" if "0001" in _own_part(scene.file.text()) else "0001"
    scene.sender.send(
        [*scene.tree.unplug(ADAPTER.key), *scene.tree.plug(stick(0, 1, serial=serial))]
    )
    scene.file.wait(lambda text: serial in _own_part(text))


def _own_part(text: str) -> str:
    """What a slice's text says of the adapter."""
    return text.partition(f"- name: {NAME}\n")[2].partition("- name: ")[0]


def _visit(scene: Scene) -> None:
    """A USB stick is plugged in and pulled out: what the machine stands on is looked at, too."""
    scene.sender.send(scene.tree.plug(DISK))
    scene.file.wait(has(DISK_NAME))
    scene.sender.send(scene.tree.unplug(DISK.key))
    scene.file.wait(lacks(DISK_NAME))


ACTS: dict[str, tuple[Callable[[Scene], None], float]] = {
    "an event that changes nothing": (_change, SETTLE * 2),
    REPLUG: (_replug, SETTLE * 2),
    "an exchange": (_exchange, SETTLE * 2),
    "a disk's visit": (_visit, 0.15),  # storage is looked at every 0.1 s at most
}
"""What is done, and seconds without CPU time after which it is over."""

SMALL = Setting(what="20 devices", devices=20, ignore=OTHER_BLOCKS, acts=tuple(ACTS))
LARGE = Setting(what="1,000 devices", devices=1000, ignore=OTHER_BLOCKS, acts=tuple(ACTS))
CROWDED = Setting(
    what="more than a slice holds", devices=1000, ignore=GRAPHICS_AND_DISKS, acts=(REPLUG,)
)
"""Here a device that comes pushes another one out of the slice: two changes for one event."""
