"""The file of a unix socket: whether a path is short enough, and what is there already.

The kernel takes 107 bytes of path. A socket's file stays when its process is killed: then it
refuses connections, and nobody can bind there until it is removed. One that accepts them belongs
to somebody who lives.

This file tells these apart, and removes only what is nobody's. It says whether this process can
serve at all; serving is left to `rpc`.
"""

import os
import socket
import stat

MOST_PATH_BYTES = 107
"""Bytes of a unix socket's path: `sun_path` has 108, and grpc and CPython keep one for a NUL."""

SPARE_DESCRIPTORS = 16
"""How many descriptors have to be free before a server is made. One takes five, and grpc ends the
whole process if it cannot have them."""


class PathTooLong(Exception):
    """A socket's path has more bytes than the kernel takes."""


class CannotServe(Exception):
    """The socket cannot be had. The text is one sentence for a person."""


def check_path(path: str) -> None:
    """Raises PathTooLong if the kernel would not take the path of a socket."""
    length = len(os.fsencode(path))
    if length > MOST_PATH_BYTES:
        raise PathTooLong(
            f"the socket path {path} has {length} bytes, and the kernel takes {MOST_PATH_BYTES}"
        )


def check_descriptors(path: str) -> None:
    """Raises CannotServe if this process may open too little to serve at a path."""
    opened: list[int] = []
    try:
        while len(opened) < SPARE_DESCRIPTORS:
            opened.append(os.eventfd(0))
    except OSError as error:
        raise CannotServe(f"cannot serve {path}: {error.strerror}") from None
    finally:
        for descriptor in opened:
            os.close(descriptor)


def remove_stale(path: str) -> bool:
    """Removes a socket that a dead process left. Returns whether there was one.

    Raises:
        CannotServe: somebody serves there, or it is something else, which is left alone.
    """
    try:
        if not stat.S_ISSOCK(os.lstat(path).st_mode):
            raise CannotServe(f"{path} is no socket and is left alone: remove it")
        with socket.socket(socket.AF_UNIX) as probe:
            probe.setblocking(False)  # a full backlog is an answer too
            probe.connect(path)
    except FileNotFoundError:
        return False
    except ConnectionRefusedError:
        _remove(path)
        return True
    except BlockingIOError:
        pass
    except OSError as error:
        raise CannotServe(f"cannot tell who serves {path}: {error.strerror}") from None
    raise CannotServe(f"another instance serves {path}")


def identity(path: str) -> tuple[int, int] | None:
    """Device and inode of what is at a path, or None. The number of a socket's file is not used
    again while the socket is open."""
    try:
        status = os.lstat(path)
    except OSError:
        return None
    return status.st_dev, status.st_ino


def why_not(path: str) -> str:
    """Why a socket cannot be bound at a path, which grpc does not say: it is tried without
    grpc."""
    with socket.socket(socket.AF_UNIX) as probe:
        try:
            probe.bind(path)
        except OSError as error:
            return error.strerror or str(error)
    os.unlink(path)
    return "grpc refuses it"


def _remove(path: str) -> None:
    try:
        os.unlink(path)
    except FileNotFoundError:
        pass
    except OSError as error:
        raise CannotServe(
            f"cannot remove {path}, which a dead process left: {error.strerror}"
        ) from None
