"""One kubelet told from the next, by the inode of the socket that it made.

A kubelet that starts makes its socket anew. The number of a file is given to another one as soon
as it is free, so that a new socket may have the number of the one before; and whoever calls a
socket by its name may reach one that came just then.

This file holds the inode of the socket: then its number is not free, and a call by way of the
descriptor reaches no other. When to look and to call is left to `servers.device_registration`.
"""

import os
from types import TracebackType
from typing import Self


class KubeletSocket:
    """The socket of a kubelet. Use as a context manager.

    Args:
        name: its path.

    Attributes:
        number: which one is held, counted from 1; 0 before the first.
    """

    def __init__(self, name: str) -> None:
        self.number = 0
        self._name = name
        self._file = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._hold(-1)

    @property
    def path(self) -> str:
        """Where the one that is held can be called, whatever has its name by then."""
        return f"/proc/self/fd/{self._file}"

    def look(self) -> bool:
        """Holds the one that is there now, and returns whether there is one. While there is none
        the one before is held on: it may come back.

        Raises:
            OSError: nobody can tell, as this process may open nothing more.
        """
        try:
            file = os.open(self._name, os.O_PATH)
        except (FileNotFoundError, NotADirectoryError):
            return False
        if self._file >= 0 and os.path.sameopenfile(file, self._file):
            os.close(file)
        else:
            self._hold(file)
            self.number += 1
        return True

    def is_newest(self) -> bool:
        """Whether the one that is held is there now."""
        try:
            return os.path.samestat(os.stat(self._name), os.fstat(self._file))
        except OSError:
            return False

    def _hold(self, file: int) -> None:
        if self._file >= 0:
            os.close(self._file)
        self._file = file
