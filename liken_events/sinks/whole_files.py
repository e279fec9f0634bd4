"""Small files that are there whole or not at all.

A reader may look at any moment, and the power may go at any moment. A file that is written in
place is half a file for a while; one that is renamed into place is the old one or the new one.
A directory that cannot be written refuses a removal before it looks whether there is anything to
remove.

This file reads, writes and removes single files so that each step may be the last one. Which files
there are is decided in `sinks.spec_files` and `sinks.record_files`.
"""

import contextlib
import errno
import os
from typing import TypeAlias

ASIDE = ".broken"
"""What is put behind the name of a file that cannot be read: kept for a look, and read by
nobody."""

LONGEST = 1 << 20
"""Characters of a file of ours at most: a claim has 32 devices, and a device some dozen nodes."""

PASSING = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ETIMEDOUT})
"""Errors that say nothing of a file: this process or the machine has run out of something, or
somebody else has the turn."""

PRIVATE_MODE = 0o700
"""Of a directory that is for the agent alone."""

Signature: TypeAlias = tuple[int, int, int]
"""What changes with every write of a file."""

_DRAFT_START, _DRAFT_END = ".liken.sh-", ".tmp"


def read(path: str) -> str:
    """The text of a file.

    Raises:
        OSError: it cannot be read.
        ValueError: it is no text, or too much of it.
    """
    with open(path, encoding="utf-8") as file:
        text = file.read(LONGEST + 1)
    if len(text) > LONGEST:
        raise ValueError("it is too long to be ours")
    return text


def is_passing(error: Exception) -> bool:
    """Whether an error says nothing of the file that was to be read, and passes."""
    return isinstance(error, OSError) and error.errno in PASSING


def raise_if_passing(error: Exception) -> None:
    """Raises an error that must not be taken for a broken file."""
    if is_passing(error):
        raise error


def names(directory: str, start: str, end: str) -> list[str]:
    """The names in a directory that begin and end so, sorted; hidden ones if the beginning is
    hidden. Raises OSError if it is there and cannot be read."""
    try:
        found = os.listdir(directory)
    except (FileNotFoundError, NotADirectoryError):
        return []
    hidden = start.startswith(".")
    return sorted(
        name
        for name in found
        if name.startswith(start) and name.endswith(end) and (hidden or not name.startswith("."))
    )


def draft_name(uid: str) -> str:
    """The name of a claim's file while it is written. No reader takes it for a spec."""
    return f"{_DRAFT_START}{uid}{_DRAFT_END}"


def remove_drafts(directory: str) -> None:
    """Removes what a killed run was just writing. Nobody else may be writing there."""
    for name in names(directory, _DRAFT_START, _DRAFT_END):
        with contextlib.suppress(OSError):
            os.unlink(os.path.join(directory, name))


def make_directory(path: str, mode: int) -> None:
    """Makes a directory of this mode, whatever the umask is; one that is there stays as it is.
    Raises OSError."""
    if not os.path.isdir(path):
        os.makedirs(path, exist_ok=True)
        os.chmod(path, mode)


def replace(path: str, temporary: str, text: str, *, mode: int, directory_mode: int) -> None:
    """Makes a file say this, and its directory if there is none.

    Args:
        path: where it is.
        temporary: name that it has in the same directory while it is written.
        text: what it says.
        mode: of the file, whatever the umask is.
        directory_mode: of its directory, if that has to be made; whatever the umask is.

    Raises:
        OSError: it cannot be written; it names the path. What was there is still there, and
            nothing else.
    """
    directory = os.path.dirname(path)
    draft = os.path.join(directory, temporary)
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW
    try:
        make_directory(directory, directory_mode)
        try:
            with open(os.open(draft, flags, mode), "w", encoding="utf-8") as file:
                os.fchmod(file.fileno(), mode)
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            os.replace(draft, path)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(draft)
            raise
    except OSError as error:
        # A full disk names no file, and the draft's name says nothing to anybody.
        raise OSError(error.errno, error.strerror, path) from error


def remove(path: str) -> None:
    """Removes a file; one that is not there is removed already.

    Raises:
        OSError: it is there, or may be, and cannot be removed.
    """
    try:
        os.unlink(path)
    except OSError:
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            os.lstat(path)
            raise


def set_aside(path: str) -> str:
    """Renames what cannot be read; returns its new path, or the old one if it cannot be moved."""
    try:
        os.replace(path, path + ASIDE)
    except OSError:
        return path
    return path + ASIDE


def signature(path: str) -> Signature | None:
    """A file's inode, time and size; None if there is no such file."""
    try:
        found = os.stat(path, follow_symlinks=False)
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns, found.st_size
