"""Giving USB hardware back to the kernel's drivers.

A program that works a USB device through libusb detaches the kernel's driver, and when it ends
nobody attaches it again: the keyboard stays dead, the serial port stays away. The kernel looks for
a driver for an interface when its address is written to `drivers_probe`.

This file writes it, for an interface that is still the one that was held and has no driver. When
a claim gives a device back is decided in `sinks.cdi`.
"""

import os

import structlog
import trio

from liken_events.core.model.prepared import Aliases, PreparedDevice, Presence, look_at
from liken_events.sinks.spec_writer import Looks

GIVE_BACK_SECONDS = 10.0
"""For the kernel to find a driver and probe: some hardware takes seconds."""

log = structlog.get_logger()


class UsbDrivers:
    """The drivers of the USB bus.

    Args:
        sys: what is `/sys` on the machine.
        looks: fresh looks at the machine.
        aliases: models that are one.
    """

    def __init__(self, sys: str, looks: Looks, aliases: Aliases) -> None:
        self._path = os.path.join(sys, "bus/usb/drivers_probe")
        self._looks = looks
        self._aliases = aliases

    async def give_back(self, held: PreparedDevice) -> None:
        """Has the kernel drive a USB interface again that a claim's program took for itself.
        Never fails: what goes wrong is logged. Ends within `GIVE_BACK_SECONDS`."""
        if held.key.bus != "usb" or ":" not in held.key.address:
            return
        reason = "the probe takes long"
        with trio.move_on_after(GIVE_BACK_SECONDS):
            try:
                if await trio.to_thread.run_sync(self._give_back, held, abandon_on_cancel=True):
                    log.info("claim.gave_back", device=held.name, address=held.key.address)
            except OSError as error:
                reason = str(error)
            else:
                return
        log.warning("claim.give_back_failed", device=held.name, reason=reason)

    def _give_back(self, held: PreparedDevice) -> bool:
        found = self._looks.at(held.key)
        if found is None or found.device.driver is not None:
            return False
        if look_at(held, found, self._aliases).presence is Presence.REPLACED:
            return False  # somebody else's, who may work it without a driver
        self.probe(held.key.address)
        return True

    def probe(self, address: str) -> None:
        """Has the kernel look for a driver for one interface, such as `1-2:1.0`; blocks until the
        driver's probe returned. For an interface that has a driver nothing happens.

        Raises:
            OSError: the interface is gone, or sysfs cannot be written (a read-only mount).
        """
        handle = os.open(self._path, os.O_WRONLY | os.O_CLOEXEC)
        try:
            os.write(handle, address.encode())
        finally:
            os.close(handle)
