"""A guest as the place of a node: its files, and programs that log to files there.

The guest is `tests.vm.machine`'s, with one more disk and with a network that ends at this
machine's loopback.
"""

import importlib.util
import os
import shlex
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence

from tests.cluster.real.control_plane import LOOPBACK
from tests.cluster.real.credentials import HOST_OF_A_GUEST
from tests.cluster.real.polling import poll
from tests.cluster.real.processes import END_SECONDS, ProgramFailed, wait_for
from tests.vm.control import Control
from tests.vm.machine import Machine, search_path

DISK = "node"
"""The serial number of the node's disk. Containers and volumes are on it: containerd's overlays
may not be on the guest's own.

So is what is read much: the guest keeps nothing of this machine's files in memory. The start of a
container's shim took 8 s instead of 0.5 s; to import `kubernetes`, which is 800 files, took 30."""

PACKAGES = ("grpc", "kubernetes", "usb")
"""Python's packages that are of many files, or big ones."""

DISK_BYTES = 4 << 30
"""Of which 500 MB are used; a file with holes."""

DISK_PATH = "/run/disk"

PROGRAMS = f"{DISK_PATH}/programs"

ADDRESS = "10.0.2.15"
"""Of a guest in QEMU's network (`-netdev user`)."""

LOGS = "/run/logs"

SCRIPT = f"""\
modprobe -a virtio_blk virtio_net ext4 overlay
udevadm settle
mkdir {DISK_PATH} {LOGS}
mount /dev/disk/by-id/virtio-{DISK} {DISK_PATH}
for place in containerd kubelet; do
    mkdir -p {DISK_PATH}/$place /var/lib/$place
    mount --bind {DISK_PATH}/$place /var/lib/$place
done
for package in $PACKAGES; do
    mount --bind {DISK_PATH}/packages/"${{package##*/}}" "$package"
done
mount --make-rshared /
mkdir -p /etc/cdi /etc/cni/net.d /run/cdi /run/containerd /var/log/pods
hostname "$NAME"
ip link set lo up
for path in /sys/class/net/e*; do
    ip link set "${{path##*/}}" up
    ip address add {ADDRESS}/24 dev "${{path##*/}}"
    ip route add default via {HOST_OF_A_GUEST}
done
"""

KILL = """\
for file in $(grep -ls {container} /proc/[0-9]*/cgroup); do
    pid=${{file#/proc/}}
    kill -KILL "${{pid%/cgroup}}" || true
done
"""


def make_disk(directory: str, programs: Sequence[str]) -> list[str]:
    """Makes the disk, in a directory, with programs on it; returns QEMU's arguments for it."""
    path = os.path.join(directory, "disk")
    with open(path, "wb") as file:
        file.truncate(DISK_BYTES)
    lazily = "lazy_itable_init=1,lazy_journal_init=1"
    with tempfile.TemporaryDirectory(dir=directory) as content:
        os.mkdir(f"{content}/programs")
        for program in programs:
            shutil.copy(program, f"{content}/programs")
        for package in packages():
            shutil.copytree(package, f"{content}/packages/{os.path.basename(package)}")
        line = ["mkfs.ext4", "-q", "-E", lazily, "-d", content, path]
        subprocess.run(line, check=True, env={"PATH": search_path()})
    return [
        *("-drive", f"file={path},if=none,id=disk,format=raw,cache=unsafe"),
        *("-device", f"virtio-blk-pci,drive=disk,serial={DISK}"),
    ]


def packages() -> list[str]:
    """Where the packages are, here and in the guest."""
    specs = [importlib.util.find_spec(name) for name in PACKAGES]
    return [os.path.dirname(spec.origin) for spec in specs if spec and spec.origin]


def network(port: int, guest_port: int) -> list[str]:
    """QEMU's arguments for a network, in which a port on loopback here leads to one there."""
    forward = f"hostfwd=tcp:{LOOPBACK}:{port}-:{guest_port}"
    return [
        *("-netdev", f"user,id=network,{forward}"),
        *("-device", "virtio-net-pci,netdev=network"),
    ]


class GuestProgram:
    """A program that runs in a guest.

    Args:
        control: the guest.
        name: for its log and for messages.
        line: the program and its arguments.
        environment: all of its environment.
    """

    def __init__(
        self, control: Control, name: str, line: Sequence[str], environment: Mapping[str, str]
    ) -> None:
        self._control = control
        self._name = name
        self._log = f"{LOGS}/{name}.log"
        variables = [f"{key}={value}" for key, value in environment.items()]
        # What it says is much, and as records it would keep the guest busy.
        logging = ["sh", "-c", 'exec "$@" >> "$0" 2>&1', self._log]
        argv = ["env", "-i", *variables, *logging, *line]
        self._pid: int = control.do("start", argv=argv)["pid"]

    @property
    def status(self) -> int | None:
        """What it ended with; None while it runs."""
        for record in reversed(self._control.records):
            if record["kind"] == "ended" and record["pid"] == self._pid:
                status: int = record["status"]
                return status
        return None

    def until(self, condition: Callable[[], object], what: str, *, seconds: float) -> None:
        """Waits for something that this program is to do.

        Raises:
            ProgramFailed: the program ended, or the time is over.
        """
        wait_for(
            condition,
            what,
            seconds=seconds,
            is_running=lambda: self.status is None,
            failure=self._failure,
        )

    def wait(self, *, seconds: float) -> None:
        """Waits for a program that ends by itself.

        Raises:
            ProgramFailed: it failed, or the time is over.
        """
        if not poll(lambda: self.status is not None, seconds):
            raise self._failure(f"took more than {seconds:g} s")
        if self.status != 0:
            raise self._failure(f"ended with status {self.status}")

    def stop(self) -> None:
        """Ends it with SIGTERM, and with SIGKILL if that takes too long. May be repeated."""
        for by in (signal.SIGTERM, signal.SIGKILL):
            if self.status is None:
                self._control.do("stop", pid=self._pid, by=by)
                poll(lambda: self.status is not None, END_SECONDS)

    def log_end(self, lines: int = 30) -> str:
        """The end of its log."""
        if self._control.ended:
            return "the guest is no more"
        return self._control.run("tail", f"--lines={lines}", self._log)

    def _failure(self, reason: str) -> ProgramFailed:
        return ProgramFailed(f"{self._name} {reason}; its log ends with:\n{self.log_end()}")


class Guest:
    """The place.

    Args:
        machine: a guest that has the disk and the network.
    """

    def __init__(self, machine: Machine) -> None:
        self._machine = machine

    def prepare(self, name: str) -> None:
        """Makes the places of a node, which gets a name, and its network."""
        known = f"NAME={name}\nPACKAGES={shlex.quote(' '.join(packages()))}\n"
        self._control.shell(known + SCRIPT, seconds=120)

    def start(
        self, name: str, line: Sequence[str], environment: Mapping[str, str]
    ) -> GuestProgram:
        """Starts a program, with this and no other environment; the name is for its log."""
        return GuestProgram(self._control, name, line, environment)

    def read(self, path: str) -> str:
        """The text of a file of the guest."""
        return self._control.read(path).decode()

    def write(self, path: str, text: str) -> None:
        """Writes a file of the guest."""
        self._control.write(path, text)

    def names(self, path: str) -> list[str]:
        """The names in a directory of the guest; none if it is none."""
        try:
            return self._control.names(path)
        except (FileNotFoundError, NotADirectoryError):
            return []

    def kill_all(self, container: str) -> None:
        """Ends the processes of a container as a crash does."""
        self._control.shell(KILL.format(container=container))

    @property
    def _control(self) -> Control:
        return self._machine.control
