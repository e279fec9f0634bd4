"""A network namespace with nobody else in it, in which made-up uevents reach only what a test
started there."""

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any, Self

import liken_events
from liken_events.simulate.namespace import inside
from liken_events.simulate.uevents import Uevent
from tests.fakes.keeper import LONGEST

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(liken_events.__file__)))
KERNEL_GROUP = 1
"""Netlink group that the kernel broadcasts uevents to; udevd's is 2."""


class PrivateNetwork:
    """The namespace, kept open by a process in it. Use as a context manager.

    Raises:
        NoNamespace: on entering, if this machine allows none; the message says why.
    """

    def __enter__(self) -> Self:
        self._channel, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._channel.settimeout(30)
        with theirs:
            line = [sys.executable, "-m", "tests.fakes.keeper", str(theirs.fileno())]
            self._keeper = subprocess.Popen(
                inside(line),
                cwd=ROOT,
                pass_fds=[theirs.fileno()],
                env={**os.environ, "PYTHONUNBUFFERED": ""},  # as in a shell
            )
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._channel.close()
        self._keeper.wait(timeout=30)

    def send(self, uevents: Iterable[Uevent]) -> None:
        """Has the kernel broadcast these; on return they wait in every listener's buffer."""
        self.send_raw([uevent.to_bytes() for uevent in uevents])

    def send_raw(self, payloads: Sequence[bytes], *, repeat: int = 1) -> None:
        """The same for messages as bytes, several times over."""
        texts = [payload.decode("latin-1") for payload in payloads]
        if texts:
            self._ask(do="send", payloads=texts, repeat=repeat)

    def listen(self, groups: int = KERNEL_GROUP) -> socket.socket:
        """A netlink socket of the namespace, in the groups of this bit mask."""
        _, descriptors = self._ask(do="listen", groups=groups)
        made = socket.socket(fileno=descriptors[0])
        made.setblocking(False)
        return made

    def start(
        self,
        argv: Sequence[str],
        stderr: int,
        stdout: int | None = None,
        *,
        main: str = "liken_events.cli:main",
        environ: Mapping[str, str] | None = None,
    ) -> int:
        """Starts `liken-events`, or another function that takes arguments, in the namespace;
        returns its process id. Standard output may be a terminal."""
        descriptors = [stderr] if stdout is None else [stderr, stdout]
        pid, _ = self._ask(
            *descriptors, do="start", argv=list(argv), main=main, environ=dict(environ or {})
        )
        assert pid is not None
        return pid

    def poll(self, pid: int) -> int | None:
        """The exit status of what `start` started, or minus the signal that ended it; None while
        it runs."""
        return self._ask(do="poll", pid=pid)[0]

    def _ask(self, *descriptors: int, **request: Any) -> tuple[int | None, list[int]]:
        socket.send_fds(self._channel, [json.dumps(request).encode()], descriptors)
        message, received, _, _ = socket.recv_fds(self._channel, LONGEST, 1)
        number: int | None = json.loads(message)
        return number, received
