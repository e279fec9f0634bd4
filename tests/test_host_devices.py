"""The agent's part for host devices, on a made-up `/dev` with real nodes in it."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio
from structlog.typing import EventDict
from trio.testing import wait_all_tasks_blocked

from liken_events.config import Config
from liken_events.core.model.device import Inventory, PublishedDevice
from liken_events.core.model.host_devices import KVM, HostDevice, Presence
from liken_events.core.model.snapshot import Key, Node
from liken_events.host_devices import HostDevicesPart
from liken_events.latest import Latest
from tests.fakes.host_dev import NULL, TUN, ZERO, HostDev, need_nodes
from tests.fakes.waiting import until

PORTS = HostDevice(resource="a.b/ports", paths=("/dev/ttyUSB*", "/dev/serial/*"))
NET = HostDevice(resource="a.b/net", paths=("/dev/net/tun", "/dev/vhost-net"))
FIRST, SECOND, STICK = "/dev/ttyUSB0", "/dev/ttyUSB1", "/dev/serial/stick"
NOTHING = Presence()


def offer(*nodes: Node, name: str = "usb-1-2-1-0") -> Inventory:
    """An inventory of one device with these nodes."""
    device = PublishedDevice(name=name, key=Key(bus="usb", address="1-2:1.0"), nodes=nodes)
    return Inventory(offered=(device,))


def node(path: str, number: tuple[int, int], subsystem: str = "tty") -> Node:
    return Node(path=path, subsystem=subsystem, major=number[0], minor=number[1])


def there(*paths: str, known: Sequence[str] = ()) -> Presence:
    return Presence(present=frozenset(paths), known=frozenset({*paths, *known}))


class Part:
    """One run of the part.

    Attributes:
        dev: the machine's `/dev`.
        inventories: what is published, set by a test.
        part: what is tested.
        plugins: the kubelet's directory of device plugins.
    """

    def __init__(self, top: Path, devices: tuple[HostDevice, ...]) -> None:
        self.dev = HostDev(top / "dev")
        self.inventories: Latest[Inventory] = Latest()
        self.plugins = top / "kubelet" / "device-plugins"
        config = Config(
            dev_root=self.dev.root, device_plugin_dir=str(self.plugins), host_devices=devices
        )
        self.part = HostDevicesPart(config, self.inventories)

    @asynccontextmanager
    async def running(self, offered: Inventory | None = None) -> AsyncIterator[None]:
        self.inventories.set(offered or Inventory())
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self.part.run)
            await wait_all_tasks_blocked(0.01)  # the first look is done
            yield
            nursery.cancel_scope.cancel()

    async def sees(self, device: HostDevice, wanted: Presence) -> None:
        """Waits until exactly this is there of a resource."""
        followed = self.part.resources[device]
        with trio.move_on_after(5):
            while self.now(device) != wanted:
                await followed.wait_newer(followed.number)
        assert self.now(device) == wanted

    def now(self, device: HostDevice) -> Presence:
        followed = self.part.resources[device]
        return followed.get() if followed.number else NOTHING


@pytest.fixture
def top(tmp_path: Path) -> Path:
    """A directory in which nodes can be made."""
    need_nodes(tmp_path)
    return tmp_path


def said(logs: list[EventDict], event: str) -> list[EventDict]:
    """The fields of each line about one event, without those that all have."""
    return [
        {key: value for key, value in line.items() if key not in ("event", "log_level")}
        for line in logs
        if line["event"] == f"host_device.{event}"
    ]


async def test_what_is_told_follows_the_node(top: Path, logs: list[EventDict]) -> None:
    """DP-9: away, there, away, there; no restart."""
    machine = Part(top, (KVM,))
    async with machine.running():
        assert not machine.now(KVM).is_offered
        for _ in range(2):
            machine.dev.char("kvm")
            await machine.sees(KVM, there("/dev/kvm"))
            machine.dev.remove("kvm")
            await machine.sees(KVM, there(known=["/dev/kvm"]))
    line = {"resource": "ate.dev/kvm", "paths": ["/dev/kvm"]}
    assert said(logs, "appeared") == said(logs, "left") == [line, line]
    assert said(logs, "withheld") == []


async def test_several_nodes_are_offered_once_all_of_them_are_there(top: Path) -> None:
    machine = Part(top, (NET,))
    async with machine.running():
        machine.dev.directory("net")
        machine.dev.char("net/tun", TUN)
        await machine.sees(NET, Presence(present=frozenset({"/dev/net/tun"})))
        assert not machine.now(NET).is_offered
        machine.dev.char("vhost-net")
        await machine.sees(NET, there(*NET.paths))
        assert machine.now(NET).is_offered
        machine.dev.remove("net/tun")
        await machine.sees(NET, there("/dev/vhost-net", known=NET.paths))


async def test_each_match_of_a_pattern_is_told_of(top: Path, logs: list[EventDict]) -> None:
    machine = Part(top, (PORTS,))
    async with machine.running():
        machine.dev.char("ttyUSB0")
        await machine.sees(PORTS, there(FIRST))
        machine.dev.char("ttyUSB1", ZERO)
        await machine.sees(PORTS, there(FIRST, SECOND))
        machine.dev.remove("ttyUSB0")
        await machine.sees(PORTS, there(SECOND, known=[FIRST]))
    assert said(logs, "appeared") == [
        {"resource": "a.b/ports", "paths": [FIRST]},
        {"resource": "a.b/ports", "paths": [SECOND]},
    ]
    assert said(logs, "left") == [{"resource": "a.b/ports", "paths": [FIRST]}]


async def test_a_node_that_a_published_device_delivers_is_not_offered_twice(
    top: Path, logs: list[EventDict]
) -> None:
    machine = Part(top, (PORTS,))
    machine.dev.char("ttyUSB0", NULL)
    machine.dev.char("ttyUSB1", ZERO)
    async with machine.running(offer(node(FIRST, NULL))):
        await machine.sees(PORTS, there(SECOND))
        machine.inventories.set(offer(node(FIRST, NULL), node("/dev/other", (188, 7))))
        machine.inventories.set(Inventory())
        await machine.sees(PORTS, there(FIRST, SECOND))
        machine.inventories.set(offer(node(SECOND, ZERO), name="usb-9"))
        await machine.sees(PORTS, there(FIRST, known=[SECOND]))
    assert said(logs, "withheld") == [
        {
            "resource": "a.b/ports",
            "path": FIRST,
            "reason": "it belongs to the device usb-1-2-1-0",
        },
        {"resource": "a.b/ports", "path": SECOND, "reason": "it belongs to the device usb-9"},
    ]


async def test_a_node_is_its_owner_s_under_each_of_its_names(top: Path) -> None:
    machine = Part(top, (PORTS,))
    machine.dev.char("ttyUSB0", NULL)
    machine.dev.directory("serial")
    machine.dev.link("serial/stick", "../ttyUSB0")
    machine.dev.char("serial/copy", NULL)
    machine.dev.char("serial/free", ZERO)
    async with machine.running(offer(node(FIRST, NULL))):
        await machine.sees(PORTS, there("/dev/serial/free"))
        machine.inventories.set(Inventory())
        await machine.sees(PORTS, there(FIRST, STICK, "/dev/serial/copy", "/dev/serial/free"))


@pytest.mark.parametrize(
    ("owned", "is_free"),
    [
        (node("/dev/ttyUSB7", NULL), False),
        (node("/dev/sdz", NULL, "block"), True),  # a block device of that number is another
        (node(FIRST, (188, 0)), False),  # made anew just now, and not read yet
    ],
)
async def test_an_owner_is_told_by_number_or_path(top: Path, owned: Node, is_free: bool) -> None:
    machine = Part(top, (PORTS,))
    machine.dev.char("ttyUSB0", NULL)
    async with machine.running(offer(owned)):
        await machine.sees(PORTS, there(FIRST) if is_free else NOTHING)


async def test_one_node_of_several_that_has_an_owner_keeps_the_resource_away(
    top: Path,
) -> None:
    machine = Part(top, (NET, KVM))
    machine.dev.directory("net")
    for name in ("net/tun", "vhost-net", "kvm"):
        machine.dev.char(name, {"net/tun": TUN}.get(name, ZERO))
    async with machine.running(offer(node("/dev/net/tun", TUN))):
        await machine.sees(NET, Presence(present=frozenset({"/dev/vhost-net"})))
        await machine.sees(KVM, there("/dev/kvm"))
        machine.inventories.set(Inventory())
        await machine.sees(NET, there(*NET.paths))


async def test_why_something_is_not_offered_is_said_once(top: Path, logs: list[EventDict]) -> None:
    machine = Part(top, (KVM, PORTS))
    machine.dev.file("kvm")
    async with machine.running():
        for number in range(3):
            machine.dev.char(f"ttyUSB{number}")
            await machine.sees(PORTS, there(*(f"/dev/ttyUSB{n}" for n in range(number + 1))))
        machine.dev.remove("kvm")
        machine.dev.char("kvm")
        await machine.sees(KVM, there("/dev/kvm"))
    assert said(logs, "withheld") == [
        {"resource": "ate.dev/kvm", "path": "/dev/kvm", "reason": "it is a regular file"}
    ]


async def test_the_right_to_make_nodes_is_warned_about(
    tmp_path: Path, logs: list[EventDict]
) -> None:
    maker = HostDevice(resource="a.b/maker", paths=("/dev/x",), permissions="rwm")
    async with Part(tmp_path, (KVM, maker)).running():
        pass
    assert said(logs, "may_make_nodes") == [{"resource": "a.b/maker", "permissions": "rwm"}]
    (line,) = (line for line in logs if line["event"] == "host_device.may_make_nodes")
    assert line["log_level"] == "warning"


async def test_a_resource_is_served_once_its_node_was_there(top: Path) -> None:
    machine = Part(top, (KVM, NET))
    machine.plugins.mkdir(parents=True)
    async with machine.running():
        assert list(machine.plugins.iterdir()) == []
        machine.dev.char("kvm")
        await until((machine.plugins / "ate.dev-kvm.sock").is_socket)
        assert [path.name for path in machine.plugins.iterdir()] == ["ate.dev-kvm.sock"]
        machine.part.close()
        assert machine.part.resources[KVM].closed
    assert list(machine.plugins.iterdir()) == []
