"""The device plugin API: one resource, its units, and what a container is given for them.

The kubelet asks a plugin for its options, holds a stream of its units open for as long as it knows
the plugin, and calls `Allocate` at a pod's admission. Each message of the stream replaces the
whole list; a unit that is missing counts as healthy in the status of pods, so it is sent as
unhealthy instead. Who has which unit is the kubelet's business: it may ask for one again, after a
restart or for another container.

This file answers for one resource and keeps no account of its own. When it is served and
registered is decided in `servers.device_registration`; what the units are in
`core.model.host_devices`.
"""

import hashlib
from collections.abc import AsyncGenerator, Callable, Iterable

from liken_events._generated import deviceplugin_pb2 as messages
from liken_events.core.model.host_devices import HostDevice, Presence, Unit, find_unit, units
from liken_events.core.model.names import printable
from liken_events.latest import Latest
from liken_events.rpc import BadRequest, Constant, Service, Stream, Unary

SERVICE = "v1beta1.DevicePlugin"
HEALTHY, UNHEALTHY = "Healthy", "Unhealthy"


class DevicePlugin:
    """Answers for one resource.

    Args:
        device: the resource.
        presence: which of its nodes are there; closing it ends the streams.
        on_stream: called when a stream opens or ends.

    Attributes:
        opened, ended: how many streams there were, and how many of them are over.
    """

    def __init__(
        self,
        device: HostDevice,
        presence: Latest[Presence],
        on_stream: Callable[[], None] = lambda: None,
    ) -> None:
        self.opened = 0
        self.ended = 0
        self._device = device
        self._presence = presence
        self._on_stream = on_stream

    @property
    def is_watched(self) -> bool:
        """Whether a kubelet holds a stream."""
        return self.opened > self.ended

    def service(self) -> Service:
        """The methods. The two that the options promise not to need are left out."""
        return Service(
            name=SERVICE,
            methods=(
                Constant(
                    name="GetDevicePluginOptions",
                    request=messages.Empty,
                    answer=messages.DevicePluginOptions(),
                ),
                Stream(name="ListAndWatch", request=messages.Empty, open=self._list_and_watch),
                Unary(name="Allocate", request=messages.AllocateRequest, answer=self._allocate),
            ),
        )

    async def _list_and_watch(self, _: messages.Empty) -> AsyncGenerator[bytes, None]:
        """The list at once, and again when it is another."""
        self.opened += 1
        self._on_stream()
        sent = b""
        try:
            while self._presence.number and not self._presence.closed:
                number = self._presence.number
                listed = self._listed(self._presence.get())
                if (digest := hashlib.sha256(listed).digest()) != sent:
                    sent = digest
                    yield listed
                del listed  # the next may come after days
                await self._presence.wait_newer(number)
        finally:
            self.ended += 1
            self._on_stream()

    def _listed(self, presence: Presence) -> bytes:
        """The list in its wire form, in which lists that stand one behind the other are one. A
        message of 4096 units takes ten times the memory while it is made, and some of it for
        good."""
        listed = bytearray()
        one = messages.ListAndWatchResponse(devices=[messages.Device()])
        for unit in units(self._device, presence.present, presence.known):
            one.devices[0].ID = unit.id
            one.devices[0].health = HEALTHY if unit.is_healthy else UNHEALTHY
            listed += one.SerializeToString()
        return bytes(listed)

    async def _allocate(self, request: messages.AllocateRequest) -> messages.AllocateResponse:
        """One answer for each container. A node that is away just now is no reason to refuse: that
        would fail the pod for good, while the runtime tries again."""
        answer = messages.AllocateResponse()
        for container in request.container_requests:
            given = answer.container_responses.add()
            found = [self._unit(name) for name in container.devices_ids]
            for path in _paths(found):
                given.devices.add(
                    container_path=path, host_path=path, permissions=self._device.permissions
                )
        return answer

    def _unit(self, name: str) -> Unit:
        presence = self._presence.get() if self._presence.number else Presence()
        unit = find_unit(self._device, name, presence.present, presence.known)
        if unit is None:
            raise BadRequest(f"{printable(self._device.resource)} has no unit '{printable(name)}'")
        return unit


def _paths(found: Iterable[Unit]) -> Iterable[str]:
    """The nodes of these units, each once: the units of one node are all the same."""
    return dict.fromkeys(path for unit in found for path in unit.paths)
