"""A guest on a real kernel, with one agent in it at a time.

The kernel notes uevents and renames by its own clock (`kernel_trace`), `udevadm` tells when udevd
passed each event on, and the harness of the tests tells every version of every file. Nothing else
runs there while something is measured.

Which program is run is the caller's choice; what is plugged in is in `plugs`.
"""

import os
import re
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Self

from bench.agent_process import Variant
from bench.kernel_trace import KernelTrace, Uevent
from bench.plugs import Kind, kinds
from tests.fakes.agents import SLICE
from tests.vm.control import GuestFailed
from tests.vm.desk import CDI, FLAGS, ROOT, SLICES, START_SECONDS, Desk
from tests.vm.hardware import AT_BOOT, Hardware
from tests.vm.machine import Machine

SLICE_FILE = f"{SLICE}.yaml"

SECONDS = 60.0
"""The longest wait for anything that is measured."""

_TOLD = re.compile(r"UDEV +\[(\d+\.\d+)\] (\w+) +(\S+)")
"""A line of `udevadm monitor`: the moment on the monotonic clock, action and path."""


class Guest:
    """The guest. Use as a context manager.

    Args:
        directory: for its sockets and disks; a short path.

    Raises:
        GuestFailed: on entering, if it does not boot.
        OSError: on entering, if its kernel takes no notes.
    """

    def __init__(self, directory: str) -> None:
        os.makedirs(directory, exist_ok=True)
        self._directory = directory
        self.machine = Machine(directory, list(AT_BOOT))

    def __enter__(self) -> Self:
        self.machine.__enter__()
        self.control = self.machine.control
        try:
            self.trace = KernelTrace(self.control)
            self._monitor = self.control.do("start", argv=["udevadm", "monitor", "--udev"])["pid"]
            for directory in (SLICES, CDI):
                self.control.do("follow", directory=directory)
            hardware = Hardware(self.machine, self._directory)
            self.kinds: list[Kind] = kinds(hardware, Desk(self.machine, self._monitor))
        except BaseException as error:
            self.machine.__exit__(type(error), error, error.__traceback__)
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.machine.__exit__(kind, error, trace)

    @property
    def kernel(self) -> str:
        """The kernel's version."""
        return self.control.run("uname", "-r").strip()

    @contextmanager
    def agent(self, variant: Variant, *options: str) -> Iterator[Desk]:
        """In this block an agent runs in the guest, on empty directories.

        Raises:
            GuestFailed: it does not start, or does not end.
        """
        self.control.shell(f"find {ROOT} -type f -delete")
        words = [*variant.words, *FLAGS, "--log-level=info", *options]
        argv = [self.machine.python, "-m", variant.module, *words]
        since = len(self.control.records)
        desk = Desk(self.machine, self.control.do("start", argv=argv)["pid"])
        try:
            desk.until(lambda: self.seen(SLICE_FILE, bool, since), "a slice", START_SECONDS)
        except GuestFailed as error:
            said = [item["text"] for item in desk.records("line")]
            raise GuestFailed("\n".join([f"{error}; it said:", *said])) from error
        yield desk
        self.control.do("stop", pid=desk.pid, by=signal.SIGTERM)
        self.control.wait(lambda: desk.ended, SECONDS, "the agent to end")

    def now(self) -> float:
        """The guest's monotonic clock."""
        moment: float = self.control.do("read", path="/proc/uptime")["time"]
        return moment

    def seen(
        self, name: str, condition: Callable[[str | None], object], since: int
    ) -> float | None:
        """When a version of a file with this name was read that fulfils a condition: the first
        after so many records. None if there was none yet."""
        for record in self.control.records[since:]:
            if record["kind"] == "file" and record["name"] == name and condition(record["text"]):
                moment: float = record["time"]
                return moment
        return None

    def until_seen(
        self, desk: Desk, name: str, condition: Callable[[str | None], object], since: int
    ) -> float:
        """Waits for such a version, and returns when it was read.

        Raises:
            GuestFailed: there was none in time, or the agent ended.
        """
        desk.until(lambda: self.seen(name, condition, since), f"a version of {name}", SECONDS)
        moment = self.seen(name, condition, since)
        assert moment is not None
        return moment

    def rest(self, quiet: float) -> None:
        """Waits until nothing was told for so many seconds, and udevd has nothing left to do.

        Raises:
            GuestFailed: it never rests.
        """
        until = time.monotonic() + SECONDS
        told, last = len(self.control.records), time.monotonic()
        while (now := time.monotonic()) < last + quiet:
            if now > until:
                raise GuestFailed(f"the guest is still busy after {SECONDS:g} s")
            with self.control.changed:
                self.control.changed.wait(last + quiet - now)
            if len(self.control.records) > told:
                told, last = len(self.control.records), time.monotonic()
        self.control.run("udevadm", "settle")

    def told(self, since: int) -> list[Uevent]:
        """The events that udevd passed on, each with the moment at which it was received, after so
        many records."""
        lines: list[dict[str, Any]] = [
            item
            for item in self.control.records[since:]
            if item["kind"] == "line" and item["pid"] == self._monitor
        ]
        found = [_TOLD.match(line["text"]) for line in lines]
        return [Uevent(float(item[1]), item[2], item[3]) for item in found if item is not None]
