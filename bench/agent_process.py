"""The agent as its users run it: a process of its own, looked at from outside.

The kernel keeps account of every process: CPU time by the nanosecond in a clock that anybody may
read, switches and memory in `/proc`. Reading them does not disturb the process.

This file starts an agent on a tree and reads these accounts. Nothing inside the agent is changed
for it, but for the two variants in `bench.variants`.
"""

import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from bench.uevent_queue import UeventQueue
from liken_events.core.plan.slice_body import slice_name
from liken_events.simulate.tree import MachineTree

NODE = "bench"
SLICE = slice_name(NODE)

STOP_SECONDS = 10.0
LOG_CHARACTERS = 2000
"""How much of an agent's log is shown when a measurement fails."""

_POLL_SECONDS = 0.02

_CPU_CLOCK_SCHED = 2
"""Which of a process's clocks: `CPUCLOCK_SCHED` of `linux/posix-timers_types.h`, as
`clock_getcpuclockid` makes it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """Which program is run: the agent itself, or one of `bench.variants`."""

    module: str = "liken_events"
    words: tuple[str, ...] = ()


AGENT = Variant()


class AgentProcess:
    """One running agent. Use as a context manager; leaving it ends the process.

    Args:
        tree: the machine it looks at.
        directory: for its slices and its log; made if need be.
        options: further options of `run`.
        variant: the program.
        kubeconfig: publish to this cluster, and not to the directory.
        environment: further variables.
    """

    def __init__(
        self,
        tree: MachineTree,
        directory: str,
        options: Sequence[str] = (),
        *,
        variant: Variant = AGENT,
        kubeconfig: str | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        os.makedirs(directory, exist_ok=True)
        self.log_path = os.path.join(directory, "log")
        self.started = time.monotonic()
        roots = (
            *("--cdi-dir", os.path.join(tree.root, "cdi")),
            *("--sys-root", tree.sys, "--dev-root", tree.dev, "--proc-root", tree.proc),
            *("--pci-ids", tree.pci_ids, "--uevents", "kernel", "--node-name", NODE),
            *("--cluster-dir", directory, "--log-format", "json"),
            *("--cluster", "directory" if kubeconfig is None else "kubernetes"),
        )
        line = [sys.executable, "-m", variant.module, *variant.words, "run", *roots, *options]
        with open(self.log_path, "w", encoding="utf-8") as log:
            self._process = subprocess.Popen(
                line,
                env={**_environment(kubeconfig), **(environment or {})},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if isinstance(error, Exception):  # and not: told to end
            sys.stderr.write(
                f"the agent's log, which ends here:\n{self.log()[-LOG_CHARACTERS:]}\n"
            )
        self._process.terminate()
        try:
            self._process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    @property
    def pid(self) -> int:
        """The process's number."""
        return self._process.pid

    def cpu(self) -> float:
        """Seconds of CPU that the process took so far, user and system, ended threads
        included."""
        return time.clock_gettime((~self.pid << 3) | _CPU_CLOCK_SCHED)

    def wake_ups(self) -> int:
        """How often its threads went to sleep so far, and so how often they woke up."""
        found = 0
        for thread in os.listdir(f"/proc/{self.pid}/task"):
            found += int(_status(f"/proc/{self.pid}/task/{thread}", "voluntary_ctxt_switches"))
        return found

    def threads(self) -> int:
        """How many threads it has."""
        return int(_status(f"/proc/{self.pid}", "Threads"))

    def resident(self) -> float:
        """Resident memory now, in MB (10⁶ bytes)."""
        return _megabytes(_status(f"/proc/{self.pid}", "VmRSS"))

    def most_resident(self) -> float:
        """The most resident memory it ever had, in MB."""
        return _megabytes(_status(f"/proc/{self.pid}", "VmHWM"))

    def queue(self) -> UeventQueue:
        """Its uevent sockets."""
        return UeventQueue(self.pid)

    def log(self) -> str:
        """What it wrote so far."""
        with open(self.log_path, encoding="utf-8") as file:
            return file.read()

    def rest(self, quiet: float, *, seconds: float = 30.0) -> float:
        """Waits until the process took no CPU for `quiet` seconds.

        Returns:
            When it last took some, in seconds of the monotonic clock, to 20 ms.

        Raises:
            TimeoutError: it never rests.
        """
        until = time.monotonic() + seconds
        used, last = self.cpu(), time.monotonic()
        while (now := time.monotonic()) < last + quiet:
            if now > until:
                raise TimeoutError(f"the agent is still busy after {seconds:g} s")
            time.sleep(_POLL_SECONDS)
            if self.cpu() > used:
                used, last = self.cpu(), time.monotonic()
        return last


def _environment(kubeconfig: str | None) -> dict[str, str]:
    """Ours without what would configure the agent, or lead it past loopback."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("LIKEN_EVENTS_", "KUBE")) and not name.lower().endswith("_proxy")
    }
    return kept if kubeconfig is None else {**kept, "KUBECONFIG": kubeconfig}


def _status(directory: str, name: str) -> str:
    with open(f"{directory}/status", encoding="utf-8", errors="replace") as file:
        for line in file:
            key, _, value = line.partition(":")
            if key == name:
                return value.strip()
    raise LookupError(f"{directory}/status has no {name}")


def _megabytes(text: str) -> float:
    number, unit = text.split()
    assert unit == "kB", "as the kernel writes it"
    return int(number) * 1024 / 1e6
