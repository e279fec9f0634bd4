"""podman as a real consumer of CDI specs: starts a container without image, daemon or network.

It reads specs from `/var/run/cdi` alone. So it runs in a mount namespace of its own in which that
is the directory of the test.
"""

import os
import re
import shutil
import subprocess
from dataclasses import dataclass

SECONDS = 60
"""For one container. It takes a fifth of a second on an idle machine."""

_MOUNTS = """
set -e
mount -t tmpfs tmpfs /run
mkdir /run/cdi
mount --bind "$0" /run/cdi
exec "$@"
"""

_DEVICE = re.compile(r"[bc][rwx-]{9}\s+\d+\s+\d+\s+\d+\s+(\d+),\s*(\d+)\s.*\s(\S+)")
"""A device node as busybox's `ls -l` prints it."""


class NoPodman(Exception):
    """podman cannot be tried here; the message says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """What became of a container: its exit status, the device nodes that it saw besides those that
    every container has (path to numbers), and what was complained of."""

    status: int
    nodes: dict[str, tuple[int, int]]
    error: str


class Podman:
    """Starts containers with devices from one directory of specs.

    Args:
        directory: for the container's files and podman's own.
        specs: the directory that stands for `/var/run/cdi`.

    Raises:
        NoPodman: this machine or user cannot.
    """

    def __init__(self, directory: str, specs: str) -> None:
        for program in ("podman", "runc", "busybox", "unshare"):
            if shutil.which(program) is None:
                raise NoPodman(f"{program} is not installed (Debian: podman runc busybox-static)")
        if os.geteuid() != 0:
            raise NoPodman("it takes root to mount a directory of specs where podman looks")
        self._specs = specs
        self._root = os.path.join(directory, "root")
        self._own = os.path.join(directory, "podman")
        for name in ("bin", "dev", "proc", "sys", "etc"):
            os.makedirs(os.path.join(self._root, name), exist_ok=True)
        busybox = shutil.which("busybox") or ""
        shutil.copy(busybox, os.path.join(self._root, "bin/busybox"))
        plain = self.run()
        if plain.status != 0:
            raise NoPodman(f"a plain container does not start: {plain.error.strip()}")
        self._usual = plain.nodes

    def run(self, *ids: str) -> Ran:
        """Starts a container with these devices and looks at its `/dev`."""
        devices = [word for name in ids for word in ("--device", name)]
        line = [
            "podman",
            *(
                "--root",
                f"{self._own}/storage",
                "--runroot",
                "/run/podman",
            ),  # at most 50 characters
            *("--tmpdir", f"{self._own}/tmp", "--runtime", "runc"),
            *("--cgroup-manager", "cgroupfs", "run", "--rm", "--network", "host"),
            *("--ulimit", "nofile=1024:1024", "--ulimit", "nproc=1024:1024"),
            *devices,
            *("--rootfs", self._root, "/bin/busybox", "find", "/dev"),
            *("(", "-type", "c", "-o", "-type", "b", ")"),
            *("-exec", "/bin/busybox", "ls", "-l", "{}", ";"),
        ]
        done = subprocess.run(
            ["unshare", "--mount", "sh", "-c", _MOUNTS, self._specs, *line],
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )
        found = map(_DEVICE.fullmatch, done.stdout.splitlines())
        nodes = {m[3]: (int(m[1]), int(m[2])) for m in found if m is not None}
        usual = getattr(self, "_usual", {})
        return Ran(
            status=done.returncode,
            nodes={path: numbers for path, numbers in nodes.items() if path not in usual},
            error=done.stderr,
        )
