"""What can happen to the machine, as values.

The kernel tells of changes in many ways: a uevent for a device, a poll condition on the mount
table, an inotify record for a file. All of them say the same thing: something that was known may
be stale.

This file names what may be stale. A trigger carries no truth; it says where to look again. So
triggers may be lost, merged and repeated without harm, and the snapshot that is read afterwards
decides.

Who turns bytes into triggers is `core.decode`; who waits for quiet is `core.timing`; who looks is
`sources.sysfs`.
"""

from dataclasses import dataclass
from typing import TypeAlias


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceChanged:
    """A uevent named a device below `/sys/devices` that may matter.

    Attributes:
        path: kernel path without the mount point of sysfs, such as
            `/devices/pci0000:00/0000:00:14.0/usb1/1-2`.
        action: the uevent's action: `add`, `remove`, `change`, `bind`, `unbind`, `move`, `online`,
            `offline`.
        subsystem: the uevent's subsystem, `""` when it named none.
        synthetic: true when somebody wrote to the device's `uevent` file (the kernel then adds
            `SYNTH_UUID`): such an `add` tells of no new device and is followed by no `bind`.
        node: path of the device node that came with an `add`, `""` if none did.
        awaits_driver: it is the `add` of a part of a device that has its nodes only when a driver
            of its own has taken it, of which a `bind` will tell: a SCSI disk, drive or tape.
    """

    path: str
    action: str
    subsystem: str = ""
    synthetic: bool = False
    node: str = ""
    awaits_driver: bool = False

    @property
    def cause(self) -> str:
        """One line for logs: what the kernel said."""
        return f"{self.action} {self.path.rpartition('/')[2]}"


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeAdded:
    """A device that is of no bus that is published came with a device node: one made by a program
    (uinput, uhid, v4l2loopback). Its path may be one that a prepared claim still names.

    Attributes:
        path: kernel path of the device, as in `DeviceChanged`.
        node: path of the node.
    """

    path: str
    node: str

    @property
    def cause(self) -> str:
        """One line for logs."""
        return f"add {self.node}"


@dataclass(frozen=True, slots=True, kw_only=True)
class MountsChanged:
    """The mount table or the list of swap areas changed. No uevent tells of that."""

    source: str

    @property
    def cause(self) -> str:
        """One line for logs."""
        return f"{self.source} changed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Resync:
    """Events were lost, or may have been: the whole machine has to be read again."""

    source: str
    reason: str

    @property
    def cause(self) -> str:
        """One line for logs."""
        return f"resync of {self.source}: {self.reason}"


Trigger: TypeAlias = DeviceChanged | NodeAdded | MountsChanged | Resync
