"""A node with a kubelet and whole agents on it, in one process."""

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import trio

from liken_events.agent import run_agent
from liken_events.config import Config
from liken_events.core.events import DeviceChanged
from liken_events.inbox import Inbox
from liken_events.simulate.tree import MachineTree
from liken_events.simulate.uevents import Uevent
from tests.fakes.agents import NODE, STICK, STICK_NAME, Build
from tests.fakes.claims import Specs, claim_body, uid_of
from tests.fakes.cluster import FakeCluster
from tests.fakes.kubelet import Kubelet
from tests.fakes.kubelet_plugin import Plugin
from tests.fakes.machines import homelab, machine
from tests.fakes.registered import short_root
from tests.fakes.waiting import until

HEALTHY, UNHEALTHY = 1, 2
"""As the messages of health have it."""


class Node:
    """A machine, a kubelet, an API server in memory, and agents between them.

    Attributes:
        tree: the machine.
        cluster: holds slices and claims.
        kubelet: runs, once `living` is entered.
        specs: what a runtime would read.
    """

    def __init__(self, tree: MachineTree, root: Path) -> None:
        self.tree = tree
        self.cluster = FakeCluster()
        self.kubelet = Kubelet(root)
        self.specs = Specs(f"{tree.root}/cdi")
        self._inboxes: list[Inbox] = []

    @asynccontextmanager
    async def agent(self, instance: str = "", **more: Any) -> AsyncIterator[None]:
        """An agent that is ended without a chance to tidy up, as by a cut of power.

        Args:
            instance: its name, if there are several at a time.
            more: further settings.
        """
        inbox = Inbox()
        self._inboxes.append(inbox)
        config = Config(
            node_name=NODE,
            sys_root=self.tree.sys,
            dev_root=self.tree.dev,
            proc_root=self.tree.proc,
            pci_ids=self.tree.pci_ids,
            cdi_dir=self.specs.directory,
            record_dir=f"{self.tree.root}/records",
            kubelet="on",
            kubelet_dir=str(self.kubelet.root),
            instance=instance,
            device_plugin_dir=str(self.kubelet.root / "device-plugins"),
            settle_quiet=0.05,
            **more,
        )

        async def run(*, task_status: trio.TaskStatus[None]) -> None:
            await run_agent(config, self.cluster, inbox=inbox, sources=[], task_status=task_status)

        async with trio.open_nursery() as nursery:
            await nursery.start(run)
            yield
            nursery.cancel_scope.cancel()
        self._inboxes.remove(inbox)

    def say(self, uevents: list[Uevent]) -> None:
        """Has the kernel say this to all agents."""
        for inbox in self._inboxes:
            for said in uevents:
                inbox.mark(DeviceChanged(path=said.devpath, action=said.action))

    def allocate(self, *devices: str, **more: Any) -> tuple[str, str, str]:
        """Has the scheduler allocate devices to a new claim; returns how the kubelet names it."""
        body = claim_body(*devices, **more)
        metadata = body["metadata"]
        self.cluster.claims[metadata["namespace"], metadata["name"]] = body
        return metadata["namespace"], metadata["name"], uid_of(body)


@contextmanager
def node_with_stick(build: Build) -> Iterator[Node]:
    """A node of which the kubelet's directories are there, and the stick."""
    with short_root() as root:
        made = Node(build(machine([*homelab().devices, STICK])), root)
        made.kubelet.make_directories()
        yield made


async def until_health(plugin: Plugin, state: int) -> str:
    """Waits until an agent told this of the stick; returns what was said about it."""
    await until(lambda: STICK_NAME in plugin.health and plugin.health[STICK_NAME].health == state)
    message: str = plugin.health[STICK_NAME].message
    return message
