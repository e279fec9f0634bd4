"""A kubelet in the guest: `python -m tests.vm.soak.inside.kubelet DIRECTORY`.

It takes plugins of both kinds. Signals are its orders: SIGHUP restarts it, SIGUSR1 the same with
the plugins' directories deleted in between, SIGUSR2 has it say how things stand. After `kill -9`
its sockets stay, and the next one removes them at its start.
"""

import json
import signal
import sys
import time
from pathlib import Path

import trio

from tests.fakes.device_kubelet import DeviceKubelet
from tests.fakes.kubelet import Kubelet

ORDERS = (signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)


class Node:
    """Both halves of a kubelet, as one.

    Args:
        root: its directory.
        nursery: where it lives.
    """

    def __init__(self, root: Path, nursery: trio.Nursery) -> None:
        self._plugins = Kubelet(root)
        self._devices = DeviceKubelet(root)
        self._nursery = nursery
        self._before = 0

    async def start(self) -> None:
        await self._nursery.start(self._plugins.run)
        await self._devices.start(way="bind")
        tell({"started": time.monotonic()})

    async def restart(self, *, wipe: bool) -> None:
        await self._devices.stop()
        self._before = len(self._plugins.events)
        await self._plugins.restart(wipe=wipe)
        await self._devices.start(way="bind")
        tell({"started": time.monotonic()})

    def say(self) -> None:
        """Tells what is registered, how often that happened in this life, and the newest list."""
        events = self._plugins.events[self._before :]
        life = self._devices.life
        tell(
            {
                "plugins": sorted(
                    Path(path).name
                    for path, plugin in self._plugins.plugins.items()
                    if plugin.is_connected
                ),
                "plugin_registrations": [name for what, name in events if what == "registered"],
                "refusals": self._plugins.refusals,
                "resources": {
                    name: sorted({*client.lists[-1].values()})
                    for name, client in list(life.clients.items())
                    if client.is_watching
                },
                "resource_registrations": [
                    item.request.resource_name for item in life.registrations
                ],
            }
        )


def tell(facts: dict[str, object]) -> None:
    sys.stdout.write(json.dumps(facts) + "\n")
    sys.stdout.flush()


async def main(root: Path) -> None:
    with trio.open_signal_receiver(*ORDERS) as orders:
        async with trio.open_nursery() as nursery:
            node = Node(root, nursery)
            await node.start()
            async for order in orders:
                if order == signal.SIGUSR2:
                    node.say()
                else:
                    await node.restart(wipe=order == signal.SIGUSR1)


trio.run(main, Path(sys.argv[1]))
