"""When the kernel sent each uevent, and when it had done each rename, by its own clock.

A uevent carries no time, and whoever receives it reads the clock late. So the kernel is asked for
its own: it can be told to note each call of a function of its own, with arguments, in its trace
buffer (kprobe events). What makes uevents (`lib/kobject_uevent.c`) is the one place where it takes
no notes. But for each event of a device that calls `dev_uevent`, whose second argument holds what
is sent, with `ACTION=…` and `DEVPATH=…` first, and then, in the same thread, `netlink_broadcast`
to group 1. That call is the moment. A rename is `do_renameat2`, whose fourth argument holds the
new name; it is over when that returns.

The notes are in microseconds of the monotonic clock, which is the one that Python reads.

This file starts the notes in a guest and reads them. What they are compared with is in `changes`.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from tests.vm.control import Control

TRACING = "/sys/kernel/tracing"
GROUP = "liken"

PROBES = (
    f"p:{GROUP}/uevent dev_uevent action=+0(+24($arg2)):string path=+0(+32($arg2)):string",
    f"p:{GROUP}/sent netlink_broadcast group=$arg4:u32",
    f"p:{GROUP}/rename do_renameat2 to=+0(+0($arg4)):string",
    f"r:{GROUP}/renamed do_renameat2 outcome=$retval:s32",
)
"""What is noted. `struct kobj_uevent_env` begins with three pointers to the words of a helper's
command line, then come those to the variables; `struct filename` begins with the name."""

SENT_TO_LISTENERS = "group == 1"
"""What the kernel and udevd send to other groups is another matter."""

BUFFER_KB = 4096
"""For each CPU. A hundred plugs make some 10,000 notes of 150 bytes."""

_NOTE = re.compile(r"-(\d+) +\[\d+\] \S+ +(\d+\.\d+): (\w+): \(.*?\) (.*)")
"""`udevd-212     [001] d..1.    61.230512: uevent: (dev_uevent+0x0/0x2a0) action="…`: thread,
time, probe and arguments."""

_ARGUMENT = re.compile(r'(\w+)=(?:"(.*?)"|(-?\d+))(?= |$)')
_COUNTS = re.compile(r"entries-in-buffer/entries-written: (\d+)/(\d+)")


@dataclass(frozen=True, slots=True)
class Uevent:
    """A uevent.

    Attributes:
        time: seconds of the monotonic clock, when the kernel began to send it.
        action: `add`, `remove`, …
        path: the device, such as `/devices/pci0000:00/0000:00:10.0/usb1/1-1`.
    """

    time: float
    action: str
    path: str


@dataclass(frozen=True, slots=True)
class Rename:
    """A rename that was done.

    Attributes:
        began, ended: seconds of the monotonic clock.
        to: the new name, as it was given.
    """

    began: float
    ended: float
    to: str


@dataclass(frozen=True, slots=True)
class Notes:
    """What was noted, oldest first."""

    uevents: list[Uevent] = field(default_factory=list)
    renames: list[Rename] = field(default_factory=list)


class NotesLost(Exception):
    """The buffer was too small."""


class KernelTrace:
    """The notes that a guest's kernel takes from now on.

    Raises:
        OSError: this kernel takes none, or has no such function.
    """

    def __init__(self, control: Control) -> None:
        self._control = control
        control.shell(f"mountpoint -q {TRACING} || mount -t tracefs none {TRACING}")
        control.write(f"{TRACING}/trace_clock", "mono")
        control.write(f"{TRACING}/buffer_size_kb", str(BUFFER_KB))
        control.write(f"{TRACING}/kprobe_events", "\n".join(PROBES) + "\n")
        control.write(f"{TRACING}/events/{GROUP}/sent/filter", SENT_TO_LISTENERS)
        control.write(f"{TRACING}/events/{GROUP}/enable", "1")

    def take(self) -> Notes:
        """What was noted since the last time. To be called when nothing happens.

        Raises:
            NotesLost: some were overwritten.
        """
        text = self._control.read(f"{TRACING}/trace").decode(errors="replace")
        self._control.write(f"{TRACING}/trace", "")
        return parse(text.splitlines())


def parse(lines: Iterable[str]) -> Notes:
    """The notes in a trace, as `trace` has them.

    Raises:
        NotesLost: the kernel says that some are missing.
    """
    notes = Notes()
    made: dict[str, tuple[str, str]] = {}
    renaming: dict[str, tuple[float, str]] = {}
    for line in lines:
        counts = _COUNTS.search(line)
        if counts and counts[1] != counts[2]:
            raise NotesLost(f"{counts[1]} of {counts[2]} notes were kept")
        found = _NOTE.search(line)
        if found is None:
            continue
        thread, time, probe, rest = found[1], float(found[2]), found[3], found[4]
        given = {name: text or number for name, text, number in _ARGUMENT.findall(rest)}
        match probe:
            case "uevent" if "action" in given:  # none if a `uevent` file was read
                action = given["action"].removeprefix("ACTION=")
                made[thread] = (action, given["path"].removeprefix("DEVPATH="))
            case "sent" if thread in made:
                notes.uevents.append(Uevent(time, *made.pop(thread)))
            case "rename":
                renaming[thread] = (time, given["to"])
            case "renamed" if thread in renaming:
                began, to = renaming.pop(thread)
                if given["outcome"] == "0":
                    notes.renames.append(Rename(began, time, to))
    return notes
