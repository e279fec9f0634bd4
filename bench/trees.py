"""Where the made-up machines are: trees in memory, each made once.

Real sysfs is in memory, so the trees should be too: on a disk that is busy with something else a
scan would measure the disk.

This file makes the trees that several groups share, and directories for agents, and removes all of
them at the end.
"""

import os
import shutil
import tempfile
from types import TracebackType
from typing import Self

from bench.crowd import crowd
from liken_events.simulate.tree import MachineTree

MEMORY = "/dev/shm"  # a tmpfs on every Linux; files go into a fresh directory


class Trees:
    """Trees and directories below one temporary directory. Use as a context manager."""

    def __init__(self) -> None:
        home = MEMORY if os.access(MEMORY, os.W_OK) else None
        self.root = tempfile.mkdtemp(prefix="liken-events-bench-", dir=home)
        self._trees: dict[int, MachineTree] = {}
        self._directories = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        shutil.rmtree(self.root)

    def machine(self, devices: int) -> MachineTree:
        """A machine of this many devices, with all the clutter of a real one. Whoever changes it
        changes it back."""
        if devices not in self._trees:
            root = os.path.join(self.root, f"machine-{devices}")
            self._trees[devices] = MachineTree.build(crowd(devices), root)
        return self._trees[devices]

    def directory(self) -> str:
        """The path of a directory that nobody else uses."""
        self._directories += 1
        return os.path.join(self.root, f"agent-{self._directories}")
