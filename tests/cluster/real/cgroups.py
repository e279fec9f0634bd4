"""A part of the machine's cgroups for one node, which is taken away with it.

A kubelet wants the root of its pods' cgroups to be there, in each hierarchy of version 1 or in the
one of version 2, and leaves behind all that it makes below.
"""

import glob
import os
from types import TracebackType
from typing import Self

from tests.cluster.real.polling import poll

MOUNTS = "/sys/fs/cgroup"

EMPTY_SECONDS = 10.0
"""Bound for the processes in it to be gone. They were killed; the kernel takes some time."""

PREFIX = "liken-test-"
"""Of all such parts; the number of the process and a name follow."""


class Cgroups:
    """The part. Use as a context manager, around what starts processes in it.

    Args:
        name: of the part, for this process's only.

    Attributes:
        path: what the kubelet knows it by.

    Raises:
        OSError: on leaving, if there are processes in it.
    """

    def __init__(self, name: str) -> None:
        self.path = f"/{PREFIX}{os.getpid()}-{name}"

    def __enter__(self) -> Self:
        for top in hierarchies():
            for path in glob.glob(f"{top}/{PREFIX}*"):
                pid = path.removeprefix(f"{top}/{PREFIX}").split("-")[0]
                if not os.path.exists(f"/proc/{pid}"):
                    _remove(path)  # it is of a harness that was killed
            os.mkdir(top + self.path)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for top in hierarchies():
            _remove(top + self.path)


def hierarchies() -> list[str]:
    """Where cgroups are made: one directory with version 2, one for each controller with 1."""
    if os.path.exists(f"{MOUNTS}/cgroup.controllers"):
        return [MOUNTS]
    found = glob.glob(f"{MOUNTS}/*/cgroup.procs")
    return sorted({os.path.realpath(os.path.dirname(path)) for path in found})  # some are links


def _remove(path: str) -> None:
    poll(lambda: not _members(path), EMPTY_SECONDS)
    for directory, _, _ in os.walk(path, topdown=False):
        os.rmdir(directory)


def _members(path: str) -> list[str]:
    """Numbers of the processes in a cgroup and those below."""
    found = []
    for directory, _, _ in os.walk(path):
        with open(os.path.join(directory, "cgroup.procs"), encoding="ascii") as file:
            found += file.read().split()
    return found
