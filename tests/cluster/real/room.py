"""A node's own view of the machine: mounts and processes of its own, the machine's devices.

A kubelet and a container runtime have fixed places in `/etc`, `/run` and `/var`. Here these are
overlays: what is there shows, what is written goes into a directory of the test's, and nothing is
seen from outside. So is `/dev`: nodes of made-up devices can be made in it. All processes have one
ancestor, with which the kernel ends them, those included that containers leave behind when the
kubelet goes away.
"""

import glob
import os
import signal
from collections.abc import Mapping, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Self

from tests.cluster.real.polling import poll
from tests.cluster.real.processes import Process
from tests.cluster.real.programs import Programs

START_SECONDS = 10.0

SYSCTLS = {
    "kernel/keys/root_maxbytes": 25_000_000,
    "kernel/keys/root_maxkeys": 1_000_000,
    "kernel/panic": 10,
    "kernel/panic_on_oops": 1,
    "vm/overcommit_memory": 1,
    "vm/panic_on_oom": 0,
}
"""What a kubelet sets these to (`protectKernelDefaults`). They belong to the whole machine, so it
is shown files that hold these values already."""

PLACES = ("dev", "etc", "run", "var/lib", "var/log")
"""Where the fixed places of a node are, and its devices."""

KEPT = ("dev/pts", "dev/shm", "run/udev")
"""Mounts in them, which an overlay would hide, where they exist."""

BOUND = ("var/lib/containerd", "var/lib/kubelet")
"""Places that may not be on an overlay: containerd has overlays of its own there."""

SCRIPT = """\
set -e
cd "$1"
mkdir sysctls
for place in $KEPT; do
    if [ -d "/$place" ]; then mkdir -p "kept/$place"; mount --bind "/$place" "kept/$place"; fi
done
for place in $PLACES; do
    mkdir -p "layers/$place" "work/$place"
    mount -t overlay overlay -o "lowerdir=/$place,upperdir=layers/$place,workdir=work/$place" \\
        "/$place"
done
for place in $KEPT; do
    if [ -d "kept/$place" ]; then mount --move "kept/$place" "/$place"; fi
done
for place in $BOUND; do
    mkdir -p "$place" "/$place"
    mount --bind "$place" "/$place"
done
mount --make-rshared /var/lib/kubelet
for pair in $SYSCTLS; do
    file="sysctls/$(echo "${pair%=*}" | tr / .)"
    echo "${pair#*=}" > "$file"
    mount --bind "$file" "/proc/sys/${pair%=*}"
done
mkdir -p /etc/cdi /etc/cni/net.d /run/cdi /run/containerd /var/log/pods
exec "$2"
"""
"""The first process: makes the room, and stays as what reaps it."""


class Room:
    """The room. Use as a context manager, as root and in the main thread.

    Args:
        programs: of which `pause` is the first process.
        directory: for all that is written; it must exist, not in one of the `PLACES`.

    Attributes:
        root: where its root directory shows outside.

    Raises:
        ProgramFailed: on entering, if it cannot be made.
    """

    root = ""

    def __init__(self, programs: Programs, directory: str) -> None:
        self._programs = programs
        self._directory = directory

    def __enter__(self) -> Self:
        environment = {
            "PATH": os.environ["PATH"],
            "PLACES": " ".join(PLACES),
            "KEPT": " ".join(KEPT),
            "BOUND": " ".join(BOUND),
            "SYSCTLS": " ".join(f"{name}={value}" for name, value in SYSCTLS.items()),
        }
        line = [
            *("unshare", "--mount", "--propagation=private", "--pid", "--fork", "--mount-proc"),
            *("--kill-child=KILL", "sh", "-c", SCRIPT, "room", self._directory),
            self._programs.pause,
        ]
        self._keeper = Process("room", line, self._directory, environment)
        try:
            self._keeper.until(self._is_made, "making it", seconds=START_SECONDS)
        except BaseException:
            self._keeper.kill()
            raise
        self.root = f"/proc/{self._keeper.child()}/root"
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Ends all processes of the room, and waits until they are gone."""
        self._keeper.kill()
        poll(lambda: not os.path.exists(self.root), START_SECONDS)

    def start(
        self,
        name: str,
        line: Sequence[str],
        environment: Mapping[str, str],
        *,
        network: str | None = None,
    ) -> Process:
        """Starts a program in the room.

        Args:
            name: for its log, which is in the room's directory.
            line: the program and its arguments.
            environment: all of its environment.
            network: path of the network namespace that it is in; None for the machine's.
        """
        other = [] if network is None else [f"--net={network}"]
        target = f"--target={self._keeper.child()}"
        entered = ["nsenter", target, "--mount", "--pid", *other, "--", *line]
        return Process(name, entered, self._directory, environment, is_wrapped=True)

    def read(self, path: str) -> str:
        """The text of a file of the room."""
        with open(self.root + path, encoding="utf-8") as file:
            return file.read()

    def write(self, path: str, text: str) -> None:
        """Writes a file of the room."""
        with open(self.root + path, "w", encoding="utf-8") as file:
            file.write(text)

    def names(self, path: str) -> list[str]:
        """The names in a directory of the room; none if it is none."""
        return os.listdir(self.root + path) if os.path.isdir(self.root + path) else []

    def kill_all(self, container: str) -> None:
        """Ends the processes of a container as a crash does."""
        for path in glob.glob("/proc/[0-9]*/cgroup"):
            with suppress(FileNotFoundError, ProcessLookupError):  # it ended
                with open(path, encoding="ascii") as file:
                    is_its = container in file.read()
                if is_its:
                    os.kill(int(path.split("/")[2]), signal.SIGKILL)

    def _is_made(self) -> bool:
        child = self._keeper.child()
        if child is None:
            return False
        with open(f"/proc/{child}/comm", encoding="utf-8") as file:
            return file.read().strip() == os.path.basename(self._programs.pause)
