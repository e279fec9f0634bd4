"""Reading sysfs and procfs: small files, links and directories that may vanish under the reader.

An attribute is written by the kernel at the moment it is read, at most one page of it. Reading may
fail at any time because the device is going away, and what it fails with depends on the driver.

This file makes one meaning of all that: a read that fails is an absent attribute. Only listing a
whole bus is different, because an unreadable bus is not an empty one.
"""

import os
import stat

PAGE = 4096
"""Bytes of an attribute at most: sysfs gives one page (`PAGE_SIZE`)."""


class Files:
    """What a scan does to the file system. Tests derive from it to make any single step fail."""

    def text(self, path: str) -> str | None:
        """The content of an attribute; None if it cannot be read.

        Bytes that are not UTF-8 become U+FFFD, the same under every locale: the descriptor strings
        of a USB device are whatever its maker put there.
        """
        try:
            handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        except OSError:
            return None
        try:
            raw = os.read(handle, PAGE)
        except OSError:
            return None
        finally:
            os.close(handle)
        return raw.decode("utf-8", "replace")

    def whole(self, path: str) -> str:
        """The content of a file of any length, for tables such as mountinfo.

        Raises:
            OSError: it cannot be read.
        """
        with open(path, encoding="utf-8", errors="surrogateescape") as file:
            return file.read()

    def link(self, path: str) -> str | None:
        """The base name of what a link points to; None if there is no such link."""
        try:
            return os.path.basename(os.readlink(path)) or None
        except OSError:
            return None

    def target(self, path: str) -> str | None:
        """The absolute path that an entry stands for, with all links followed; None if it is
        gone."""
        try:
            return os.path.realpath(path, strict=True)
        except OSError:
            return None

    def entries(self, path: str) -> list[os.DirEntry[str]]:
        """The entries of a directory; empty if it cannot be read."""
        try:
            with os.scandir(path) as found:
                return list(found)
        except OSError:
            return []

    def names(self, path: str) -> list[str]:
        """The names in a directory, sorted; empty if there is no such directory.

        Raises:
            OSError: it is there and cannot be read: that must not pass for an empty one.
        """
        try:
            return sorted(os.listdir(path))
        except FileNotFoundError:
            return []

    def block_number(self, path: str) -> str | None:
        """`major:minor` of a block device node, links followed; None if it is none."""
        try:
            found = os.stat(path)
        except OSError:
            return None
        if not stat.S_ISBLK(found.st_mode):
            return None
        return f"{os.major(found.st_rdev)}:{os.minor(found.st_rdev)}"
