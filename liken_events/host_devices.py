"""The agent's part for host devices: from the nodes that are there to what the kubelet is told.

A resource is offered while its nodes are there and belong to nobody else: a node that a published
device delivers has its owner, who hands it out by claims. It is the same node under each of its
names: udev makes several links to one.

This file puts the source and the servers together and decides, with each change of either side,
what is there of each resource. In which order it starts and stops relative to the others is
decided in `agent`.
"""

from collections.abc import Mapping

import structlog
import trio

from liken_events.config import Config
from liken_events.core.model.device import Inventory
from liken_events.core.model.host_devices import HostDevice, Presence, matching
from liken_events.latest import Latest
from liken_events.sources.host_nodes import HostNodes, HostNodesSource

log = structlog.get_logger()


class HostDevicesPart:
    """The parts of one agent that have to do with host devices.

    Args:
        config: all settings.
        inventories: what is published; its nodes are not offered once more.

    Attributes:
        resources: what is there of each resource, followed by the servers.
    """

    def __init__(self, config: Config, inventories: Latest[Inventory]) -> None:
        self.resources: Mapping[HostDevice, Latest[Presence]] = {
            device: Latest() for device in config.host_devices
        }
        self._config = config
        self._inventories = inventories
        self._nodes: Latest[HostNodes] = Latest()
        self._told: dict[HostDevice, dict[str, str]] = {}

    async def run(self) -> None:
        """Follows the nodes and serves the resources, for ever."""
        # Loaded here and not at the top: grpc takes 10 MB, and a machine without a kubelet does
        # not need it.
        from liken_events.servers.device_registration import DeviceRegistration

        for device in self._config.host_devices:
            if "m" in device.permissions:
                log.warning(
                    "host_device.may_make_nodes",
                    resource=device.resource,
                    permissions=device.permissions,
                )
        source = HostNodesSource(self._config.dev_root, self._config.host_devices)
        async with trio.open_nursery() as nursery:
            await nursery.start(source.run, self._nodes)
            nursery.start_soon(self._follow, self._nodes)
            nursery.start_soon(self._follow, self._inventories)
            await DeviceRegistration(self._config.device_plugin_dir).run(self.resources)

    def close(self) -> None:
        """Ends the kubelet's streams, so that servers stop at once."""
        for presence in self.resources.values():
            presence.close()

    async def _follow(self, side: Latest[HostNodes] | Latest[Inventory]) -> None:
        number = 0
        while not side.closed:
            self._decide()
            number = await side.wait_newer(number)

    def _decide(self) -> None:
        """Tells each resource what is there of it."""
        if not self._nodes.number:
            return
        nodes = self._nodes.get()
        owners = self._owners(nodes)
        for device, presence in self.resources.items():
            meant = matching(device, nodes.present)
            taken = {path: owners[path] for path in meant if path in owners}
            free = frozenset(meant) - taken.keys()
            before = presence.get() if presence.number else Presence()
            self._tell_withheld(device, nodes, taken)
            self._tell_change(device, before.present, free)
            is_whole = device.is_pattern or len(free) == len(device.paths)
            now = Presence(present=free, known=before.known | (free if is_whole else frozenset()))
            if now != before:
                presence.set(now)

    def _owners(self, nodes: HostNodes) -> Mapping[str, str]:
        """The published device that delivers a node, for each path that has one."""
        offered = self._inventories.get().offered if self._inventories.number else ()
        by_number, by_path = {}, {}
        for device in offered:
            for node in device.nodes:
                by_path[node.path] = device.name
                if not node.block:
                    by_number[node.major, node.minor] = device.name
        return {
            path: by_path.get(path) or by_number[number]
            for path, number in nodes.present.items()
            if path in by_path or number in by_number
        }

    def _tell_withheld(
        self, device: HostDevice, nodes: HostNodes, taken: Mapping[str, str]
    ) -> None:
        """Says once why something that is there is not offered."""
        reasons = {
            **{path: f"it is {nodes.strange[path]}" for path in matching(device, nodes.strange)},
            **{path: f"it belongs to the device {name}" for path, name in taken.items()},
        }
        told = self._told.get(device, {})
        for path, reason in reasons.items():
            if told.get(path) != reason:
                log.warning(
                    "host_device.withheld", resource=device.resource, path=path, reason=reason
                )
        self._told[device] = reasons

    def _tell_change(
        self, device: HostDevice, before: frozenset[str], now: frozenset[str]
    ) -> None:
        for event, paths in (("appeared", now - before), ("left", before - now)):
            if paths:
                log.info(f"host_device.{event}", resource=device.resource, paths=sorted(paths))
