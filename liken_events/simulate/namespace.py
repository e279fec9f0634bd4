"""A network namespace of our own, in which made-up uevents reach nobody else.

A uevent that is sent in the machine's own network namespace reaches its udevd, which would act on
a device that is not there. In a new namespace only processes of that namespace hear it. Making one
needs `CAP_SYS_ADMIN`; an ordinary user has it in a user namespace of its own, unless the machine
forbids those (`kernel.unprivileged_userns_clone`, AppArmor, the seccomp profile of a container).

Which of that holds cannot be read off reliably, so this file tries: it runs `unshare` and sees
whether a uevent could be sent inside. Then it gives the command line that runs a command of this
program there.

Where none can be had, the reason is said, and uevents are handed over within the process instead.
"""

import os
import subprocess
import sys
from collections.abc import Callable, Sequence

import liken_events
from liken_events.simulate.uevents import Feed, InProcessFeed, UeventSender

OUTSIDE = "LIKEN_SIMULATION_STARTED_FROM"
"""Environment variable that names the network namespace from which this program was started
again."""

LIMIT = 5.0
"""Seconds that one try may take. It takes a tenth; a machine on which it takes longer would not
show the demo well."""

_OWN = "/proc/self/ns/net"
_WAYS = (("unshare", "--net"), ("unshare", "--user", "--map-root-user", "--net"))
"""As root, and as anybody. Root of a container may lack what the first needs and still be allowed
the second."""

_TRY = """
from liken_events.simulate.uevents import can_send
raise SystemExit(None if can_send() else "the kernel takes no uevents there")
"""


class NoNamespace(Exception):
    """No private network namespace can be had; the message says why, for a person."""


def inside(line: Sequence[str], *, limit: float = LIMIT) -> list[str]:
    """The command line that runs another one in a network namespace of its own.

    Args:
        line: program and arguments.
        limit: seconds that each try may take.

    Raises:
        NoNamespace: the machine does not allow one.
    """
    way = _find_way(limit)
    return [*way, "env", f"{OUTSIDE}={os.readlink(_OWN)}", *line]


def command(argv: Sequence[str]) -> list[str]:
    """The command line that runs `liken-events` with these arguments in a network namespace of its
    own.

    Raises:
        NoNamespace: the machine does not allow one.
    """
    return inside([sys.executable, "-m", liken_events.__name__, *argv])


def reexec(argv: Sequence[str]) -> None:
    """Replaces this process with `liken-events` in a namespace of its own. Returns only by an
    exception.

    Raises:
        NoNamespace: the machine does not allow one.
    """
    line = command(argv)
    os.execvp(line[0], line)  # noqa: S606 - a fixed program, found as a shell would find it


def is_inside() -> bool:
    """Whether this process is in another network namespace than the one that `inside` left."""
    outside = os.environ.get(OUTSIDE)
    try:
        return outside is not None and os.readlink(_OWN) != outside
    except OSError:
        return False


def open_feed(take: Callable[[bytes], None]) -> Feed:
    """The way for made-up uevents: through the kernel in a namespace of our own, by `take`
    anywhere else.

    Args:
        take: gets each datagram as a netlink socket would have received it.

    Raises:
        OSError: no netlink socket can be made in the namespace.
    """
    return UeventSender() if is_inside() else InProcessFeed(take)


def _find_way(limit: float) -> tuple[str, ...]:
    ways = _WAYS if os.geteuid() == 0 else _WAYS[1:]
    refusals = []
    for way in ways:
        refusal = _refusal(way, limit)
        if refusal is None:
            return way
        refusals.append(f"{' '.join(way)}: {refusal}")
    raise NoNamespace("; ".join(refusals))


def _refusal(way: tuple[str, ...], limit: float) -> str | None:
    """Why a way does not lead to a namespace in which uevents can be sent; None if it does."""
    package = os.path.dirname(os.path.dirname(os.path.abspath(liken_events.__file__)))
    try:
        tried = subprocess.run(
            [*way, sys.executable, "-c", _TRY],
            env={**os.environ, "PYTHONPATH": package},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=limit,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"no answer within {limit:g} s"
    except OSError as error:
        return error.strerror or str(error)
    if tried.returncode == 0:
        return None
    said = tried.stderr.strip().splitlines()
    return said[-1] if said else f"exit status {tried.returncode}"
