"""A mount namespace with a `/proc` of its own, in which tests mount what they like.

All of it shows below `/proc/<pid>/root` to everybody else, poll conditions of the mount table
included.
"""

import os
import subprocess
from types import TracebackType
from typing import Self

WAYS = (("unshare",), ("unshare", "--user", "--map-root-user"))
"""As root, and as anybody. Root of a container may lack what the first needs."""

SHELL = "read pid rest </proc/self/stat && mount -t proc proc /proc && echo $pid && exec cat"
"""The first process: tells its number outside, and stays."""


class NoMounts(Exception):
    """No mount namespace can be had; the message says why."""


class MountNamespace:
    """Use as a context manager.

    Attributes:
        root: where its root directory shows.

    Raises:
        NoMounts: on entering, if this machine allows none.
    """

    root = ""

    def __enter__(self) -> Self:
        refusals = []
        for way in WAYS if os.geteuid() == 0 else WAYS[1:]:
            line = [*way, "--mount", "--pid", "--fork", "sh", "-c", SHELL]
            keeper = subprocess.Popen(
                line,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
            assert keeper.stdout is not None
            pid = keeper.stdout.readline().strip()
            if pid and os.access(f"/proc/{pid}/root/proc/1/mountinfo", os.R_OK):
                self._keeper, self._pid, self.root = keeper, pid, f"/proc/{pid}/root"
                return self
            refusals.append(f"{' '.join(line[:-3])}: {keeper.communicate()[1].strip()}")
        raise NoMounts("; ".join(refusals))

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._keeper.communicate(timeout=30)

    def run(self, *line: str) -> None:
        """Runs a program in the namespace, such as `mount`, to its end."""
        user = [] if os.geteuid() == 0 else ["--user", "--preserve-credentials"]
        entered = ["nsenter", f"--target={self._pid}", *user, "--mount", "--pid"]
        subprocess.run([*entered, *line], check=True, capture_output=True)
