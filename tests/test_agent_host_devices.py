"""The whole agent and a kubelet, over real sockets: host devices that come and go."""

import os
import stat
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio
from structlog.typing import EventDict

from liken_events.agent import run_agent
from liken_events.config import Config
from liken_events.core.events import DeviceChanged
from liken_events.core.model.host_devices import KVM, HostDevice
from liken_events.inbox import Inbox
from liken_events.simulate.tree import MachineTree
from liken_events.simulate.uevents import Uevent
from tests.fakes.agents import NODE, STICK, STICK_NAME, Build
from tests.fakes.cluster import FakeCluster
from tests.fakes.device_kubelet import DeviceKubelet
from tests.fakes.host_dev import need_nodes
from tests.fakes.machines import homelab, machine
from tests.fakes.registered import short_root
from tests.fakes.waiting import until

KVM_NUMBER, TTY_NUMBER = (10, 232), (188, 9)
TTY = HostDevice(resource="example.com/tty", paths=("/dev/ttyUSB9",), count=1)


class Host:
    """A machine, a kubelet and the agent between them.

    Attributes:
        tree: the machine.
        dev: what is its `/dev`.
        kubelet: started by a test.
    """

    def __init__(self, tree: MachineTree, root: Path) -> None:
        self.tree = tree
        self.dev = tree.dev
        self.kubelet = DeviceKubelet(root)
        self._inbox = Inbox()

    @asynccontextmanager
    async def agent(self, *devices: HostDevice) -> AsyncIterator[None]:
        """An agent that offers these. It is registered with the kubelet, too."""
        (self.kubelet.root / "plugins_registry").mkdir(parents=True)
        config = Config(
            node_name=NODE,
            sys_root=self.tree.sys,
            dev_root=self.dev,
            proc_root=self.tree.proc,
            pci_ids=self.tree.pci_ids,
            cdi_dir=f"{self.tree.root}/cdi",
            record_dir=f"{self.tree.root}/records",
            kubelet="on",
            kubelet_dir=str(self.kubelet.root),
            device_plugin_dir=str(self.kubelet.root / "device-plugins"),
            host_devices=devices or (KVM,),
            settle_quiet=0.05,
        )

        async def run(*, task_status: trio.TaskStatus[None]) -> None:
            await run_agent(
                config, FakeCluster(), inbox=self._inbox, sources=[], task_status=task_status
            )

        async with self.kubelet.present(), trio.open_nursery() as nursery:
            await nursery.start(run)
            await self.kubelet.start()
            yield
            nursery.cancel_scope.cancel()

    def make(self, name: str, number: tuple[int, int], kind: int = stat.S_IFCHR) -> None:
        """Makes a node, in place of the file that stands for it on a made-up machine."""
        path = os.path.join(self.dev, name)
        if os.path.exists(path):
            os.unlink(path)
        os.mknod(path, kind | 0o600, os.makedev(*number))

    def remove(self, name: str) -> None:
        os.unlink(os.path.join(self.dev, name))

    def say(self, uevents: list[Uevent]) -> None:
        """Has the kernel say this."""
        for said in uevents:
            self._inbox.mark(DeviceChanged(path=said.devpath, action=said.action))


@pytest.fixture
def host(build: Build) -> Iterator[Host]:
    with short_root() as root:
        yield Host(build(machine([*homelab().devices, STICK])), root)


@pytest.fixture
def nodes(tmp_path: Path) -> None:
    need_nodes(tmp_path)


@pytest.fixture
def real_kvm() -> None:
    try:
        is_there = stat.S_ISCHR(os.stat("/dev/kvm").st_mode)
    except OSError:
        is_there = False
    if not is_there:
        pytest.skip("this machine has no /dev/kvm")


def withheld(logs: list[EventDict]) -> list[tuple[str, str]]:
    return [
        (line["path"], line["reason"]) for line in logs if line["event"] == "host_device.withheld"
    ]


@pytest.mark.usefixtures("nodes")
async def test_a_module_that_is_loaded_late_and_unloaded_is_followed(host: Host) -> None:
    async with host.agent():
        assert not (host.kubelet.directory / KVM.socket).exists()
        host.make("kvm", KVM_NUMBER)
        client = await host.kubelet.client()
        states = ["Healthy"]
        for change in (host.remove, lambda name: host.make(name, KVM_NUMBER)) * 2:
            change("kvm")
            states.append("Unhealthy" if len(states) % 2 else "Healthy")
            await until(lambda: len(client.lists) == len(states))
        assert [set(listed.values()) for listed in client.lists] == [{state} for state in states]
        ids = [f"kvm-{index}" for index in range(4096)]
        assert all(list(listed) == ids for listed in client.lists)
        assert await client.allocate(["kvm-7"]) == [[("/dev/kvm", "/dev/kvm", "rw")]]
        assert len(host.kubelet.life.registrations) == 1


@pytest.mark.usefixtures("real_kvm")
async def test_the_kvm_of_this_machine_is_offered(host: Host) -> None:
    host.dev = "/dev"
    async with host.agent():
        client = await host.kubelet.client()
        assert len(client.lists[0]) == 4096
        assert await client.allocate(["kvm-0"], ["kvm-4095"]) == [
            [("/dev/kvm", "/dev/kvm", "rw")],
            [("/dev/kvm", "/dev/kvm", "rw")],
        ]
        await host.kubelet.kill()
        await host.kubelet.start()
        await host.kubelet.client()


@pytest.mark.usefixtures("nodes")
async def test_what_has_the_name_and_is_no_character_device_is_not_offered(
    host: Host, logs: list[EventDict]
) -> None:
    Path(host.dev, "kvm").write_text("")
    async with host.agent():
        await until(lambda: withheld(logs) == [("/dev/kvm", "it is a regular file")])
        host.make("kvm", (8, 0), stat.S_IFBLK)
        await until(lambda: ("/dev/kvm", "it is a block device") in withheld(logs))
        assert not (host.kubelet.directory / KVM.socket).exists()
        assert host.kubelet.life.registrations == []
        host.make("kvm", KVM_NUMBER)
        await host.kubelet.client()


@pytest.mark.usefixtures("nodes")
async def test_a_node_that_a_published_device_delivers_is_not_offered(
    host: Host, logs: list[EventDict]
) -> None:
    host.make("ttyUSB9", TTY_NUMBER)
    async with host.agent(TTY):
        reason = f"it belongs to the device {STICK_NAME}"
        await until(lambda: ("/dev/ttyUSB9", reason) in withheld(logs))
        assert host.kubelet.life.registrations == []

        host.say(host.tree.unplug("1-9"))
        host.make("ttyUSB9", TTY_NUMBER)
        client = await host.kubelet.client(TTY)

        host.say(host.tree.plug(STICK))
        host.make("ttyUSB9", TTY_NUMBER)
        await until(lambda: set(client.lists[-1].values()) == {"Unhealthy"})
