"""Reading sysfs and procfs: small files, links and directories that may vanish under the reader.

An attribute is written by the kernel at the moment it is read, at most one page of it. Reading may
fail at any time because the device is going away, and what it fails with depends on the driver.

This file makes one meaning of all that: a read that fails is an absent attribute. Two things are
different. An unreadable bus is not an empty one; and a machine that has run out of descriptors or
memory says nothing about its devices, so that is an error everywhere.
"""

import errno
import os
import stat

PAGE = 4096
"""Bytes of an attribute at most: sysfs gives one page (`PAGE_SIZE`)."""

EXHAUSTED = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM})
"""What tells that this process or machine has run out of something."""


class Files:
    """What a scan does to the file system. Tests derive from it to make any single step fail.

    Every method raises OSError for what is in `EXHAUSTED`.
    """

    def text(self, path: str) -> str | None:
        """The content of an attribute; None if it cannot be read.

        Bytes that are not UTF-8 become U+FFFD, the same under every locale: the descriptor strings
        of a USB device are whatever its maker put there.
        """
        try:
            handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        except OSError as error:
            _raise_if_exhausted(error)
            return None
        try:
            raw = os.read(handle, PAGE)
        except OSError as error:
            _raise_if_exhausted(error)
            return None
        finally:
            os.close(handle)
        return raw.decode("utf-8", "replace")

    def whole(self, path: str) -> str:
        """The content of a file of any length, for tables such as mountinfo; its bytes are kept.

        Raises:
            OSError: it cannot be read.
        """
        with open(path, encoding="utf-8", errors="surrogateescape", newline="\n") as file:
            return file.read()

    def link(self, path: str) -> str | None:
        """The base name of what a link points to; None if there is no such link."""
        try:
            return os.path.basename(os.readlink(path)) or None
        except OSError as error:
            _raise_if_exhausted(error)
            return None

    def target(self, path: str) -> str | None:
        """The absolute path that an entry of a bus or class stands for; None if there is none.

        sysfs has one link there, to a directory with no further link on its path. Following each
        step by `realpath` would take a third of a scan.
        """
        try:
            to = os.readlink(path)
        except OSError as error:
            _raise_if_exhausted(error)
            # In a made-up tree the directory itself may stand where the kernel has a link.
            return path if error.errno == errno.EINVAL and os.path.isdir(path) else None
        return os.path.normpath(os.path.join(os.path.dirname(path), to))

    def entries(self, path: str) -> list[os.DirEntry[str]] | None:
        """The entries of a directory; None if it cannot be read."""
        try:
            with os.scandir(path) as found:
                return list(found)
        except OSError as error:
            _raise_if_exhausted(error)
            return None

    def names(self, path: str) -> list[str]:
        """The names in a directory, sorted; empty if there is no such directory.

        Raises:
            OSError: it is there and cannot be read: that must not pass for an empty one.
        """
        try:
            return sorted(os.listdir(path))
        except FileNotFoundError:
            return []

    def inodes(self, path: str) -> dict[str, int]:
        """The names in a directory, each with its inode number; empty if there is no such
        directory.

        sysfs never gives a number twice, so an entry that was removed and made again has another
        one.

        Raises:
            OSError: it is there and cannot be read.
        """
        try:
            with os.scandir(path) as found:
                return {entry.name: entry.inode() for entry in found}
        except FileNotFoundError:
            return {}

    def block_number(self, path: str) -> str | None:
        """`major:minor` of a block device node, links followed; None if it is none."""
        try:
            found = os.stat(path)
        except OSError as error:
            _raise_if_exhausted(error)
            return None
        if not stat.S_ISBLK(found.st_mode):
            return None
        return f"{os.major(found.st_rdev)}:{os.minor(found.st_rdev)}"


def _raise_if_exhausted(error: OSError) -> None:
    """A failed read means that there is no such thing, unless nothing could be read."""
    if error.errno in EXHAUSTED:
        raise error
