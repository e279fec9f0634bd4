"""Fresh looks: what the kubelet's calls and the specs of prepared claims are decided on.

An event only hints, and what was read a second ago may be another device now. A claim is a promise
of one piece of hardware, so what is written for it is read at that very moment.

This file reads one slot and judges it, finds the slot that a published name stands for, and tells
whose a device node's path is. A device that hangs while it is read (the strings of a USB device
wait for its driver's probe) is given up after a while, as others wait behind it. How a slot is
read is said in `sources.sysfs`, how it is judged in `core.model.publish`; what follows from it is
left to `sinks.cdi`.
"""

import errno
import os
import stat
import threading

from liken_events.core.model.delivery import uevent_value
from liken_events.core.model.device import Judgement
from liken_events.core.model.names import printable
from liken_events.core.model.prepared import is_called
from liken_events.core.model.publish import Policy, judge
from liken_events.core.model.snapshot import Key, Node
from liken_events.core.model.storage import Dependence, dependence, has_disks
from liken_events.sources import ScanFailed
from liken_events.sources.attributes import Files
from liken_events.sources.sysfs import Roots, Scanner

LOOK_SECONDS = 5.0
"""For one device. Reading takes less than a millisecond; a USB request that nobody answers takes
the kernel five seconds, and the kubelet's call waits for 45."""

HURRY_SECONDS = 0.2
"""The same while another device hangs. The interfaces of one device hang together, and what is
below one hub does; all of them must not add up to what a call, or another instance, waits for."""


class Looks:
    """Looks at one machine. Methods block, may be called from several threads, and raise OSError
    if the machine cannot be read.

    Args:
        roots: where the machine is.
        policy: what the configuration says about publishing.
        files: reads the machine.
    """

    def __init__(self, roots: Roots, policy: Policy, files: Files | None = None) -> None:
        self._files = files or Files()
        self._scanner = Scanner(roots, self._files)
        self._hanging: dict[Key, _Look] = {}
        self._sys = os.path.realpath(roots.sys)
        self._dev = roots.dev
        self._policy = policy
        self._storage = threading.Lock()

    def at(self, key: Key) -> Judgement | None:
        """What is in a slot now; None if nothing is. Raises TimeoutError once it took
        `LOOK_SECONDS`, or `HURRY_SECONDS` while another one hangs, and at once while that look has
        not ended."""
        hanging = self._hanging.get(key)
        if hanging is not None and hanging.is_alive():
            raise _hangs(key)
        look = _Look(self, key)
        look.start()
        is_late = any(other.is_alive() for other in list(self._hanging.values()))
        look.join(HURRY_SECONDS if is_late else LOOK_SECONDS)
        if look.is_alive():
            self._hanging[key] = look
            raise _hangs(key)
        self._hanging.pop(key, None)
        return look.answer()

    def look(self, key: Key) -> Judgement | None:
        """The same without a bound."""
        device = self._scanner.device(key)
        if device is None:
            return None
        depends = Dependence()
        if has_disks(device):
            with self._storage:  # the scanner remembers disks between looks
                depends = dependence(self._scanner.storage())
        return judge(device, depends, self._policy)

    def named(self, name: str) -> Judgement | None:
        """What is in the slot that a published name belongs to; None if there is none.

        Slots are tried by their bare names and by those with the suffix of a part; of two slots
        with one name, the first that publishes it has it, as in an inventory.
        """
        found: Judgement | None = None
        for key in self._slots():
            if is_called(key, name):
                judgement = self.at(key)
                if judgement is None:
                    continue
                if any(device.name == name for device in judgement.published):
                    return judgement
                found = found or judgement
        return found

    def addressed(self, address: str) -> tuple[str, ...]:
        """The published names of what has an address on either bus."""
        found = (self.at(key) for key in self._slots() if key.address == address)
        return tuple(d.name for item in found if item is not None for d in item.published)

    def _slots(self) -> list[Key]:
        try:
            return list(self._scanner.slots())
        except ScanFailed as error:
            raise OSError(errno.EIO, str(error)) from error

    def owner(self, node: Node, devpath: str | None = None) -> str | None:
        """Who has a node's path now, in a word; None if nobody has.

        The kernel makes the node with the device and removes it with it, so a node under the dev
        root whose number the kernel knows is somebody's. A device that was just announced may
        have none yet.

        Args:
            node: the node that a device had, which is away.
            devpath: kernel path of a device that was announced with this path, if one was.
        """
        if devpath is not None:
            text = self._files.text(f"{self._sys}{devpath}/uevent")
            name = None if text is None else uevent_value(text, "DEVNAME")
            if name is not None and "/dev/" + name.removeprefix("/dev/") == node.path:
                return os.path.basename(devpath)
        path = os.path.join(self._dev, node.path.removeprefix("/dev/"))
        try:
            found = os.lstat(path)
        except OSError:
            return None
        if stat.S_ISBLK(found.st_mode):
            kind = "block"
        elif stat.S_ISCHR(found.st_mode):
            kind = "char"
        else:
            return None
        number = f"{os.major(found.st_rdev)}:{os.minor(found.st_rdev)}"
        target = self._files.target(f"{self._sys}/dev/{kind}/{number}")
        return None if target is None else os.path.basename(target)


class _Look(threading.Thread):
    """One look at a slot, which may hang for ever."""

    def __init__(self, looks: Looks, key: Key) -> None:
        super().__init__(name="liken-look", daemon=True)
        self._looks = looks
        self._key = key
        self._found: tuple[Judgement | None] | None = None
        self._failure: OSError | None = None

    def run(self) -> None:
        try:
            self._found = (self._looks.look(self._key),)
        except ScanFailed as error:
            self._failure = OSError(errno.EIO, str(error))
        except OSError as error:
            self._failure = error

    def answer(self) -> Judgement | None:
        """What was seen, once the thread has ended. Raises OSError."""
        if self._failure is not None:
            raise self._failure
        if self._found is None:
            # One device's trouble, like any other: a bug must not end what is done for the rest.
            raise OSError(errno.EIO, "the look ended with a bug, which is told on standard error")
        return self._found[0]


def _hangs(key: Key) -> TimeoutError:
    text = f"{key.bus} {printable(key.address)} hangs while it is read"
    return TimeoutError(errno.ETIMEDOUT, text)
