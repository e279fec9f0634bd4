"""The program in the guest: it does what the tests say, and tells them all that happens.

A virtio port is one stream between the host and the guest. Requests come as lines of JSON, each
with a number, and each is answered; in between go records of what happened meanwhile (see
`recorders`). The agent is a child of this program.

What the requests are for, and what the records mean, is the tests' affair.
"""

import base64
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

from tests.vm.inside.followed import FollowedFiles
from tests.vm.inside.recorders import Tell, follow_files, follow_uevents, queued

PORT = "/dev/virtio-ports/liken.control"
DEFAULT_SECONDS = 60.0


class Stream:
    """The port. Records and answers of several threads are whole lines."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._lock = threading.Lock()

    def tell(self, **facts: Any) -> None:
        """Sends one record or answer, with the time on this machine's monotonic clock."""
        line = json.dumps({"time": time.monotonic(), **facts}).encode() + b"\n"
        with self._lock:
            while line:
                line = line[os.write(self._descriptor, line) :]


class Programs:
    """The programs that were started and not waited for: the agent, and whatever else."""

    def __init__(self, tell: Tell) -> None:
        self._tell = tell
        self._running: dict[int, subprocess.Popen[bytes]] = {}

    def start(self, argv: list[str]) -> int:
        """Starts one; its lines on either output become records of kind `line`."""
        child = subprocess.Popen(
            argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
        self._running[child.pid] = child
        threading.Thread(target=self._read, args=(child,), daemon=True).start()
        return child.pid

    def stop(self, pid: int, by: int) -> None:
        """Signals one; that it ended becomes a record."""
        self._running[pid].send_signal(by)

    def _read(self, child: subprocess.Popen[bytes]) -> None:
        assert child.stdout is not None
        for line in child.stdout:
            self._tell(kind="line", pid=child.pid, text=line.decode(errors="replace").rstrip("\n"))
        self._tell(kind="ended", pid=child.pid, status=child.wait())


def run(argv: list[str], seconds: float = DEFAULT_SECONDS) -> dict[str, Any]:
    """Runs a program to its end, for at most so long."""
    try:
        done = subprocess.run(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=seconds,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        text = (error.stdout or b"").decode(errors="replace")
        return {"status": -signal.SIGKILL, "text": f"{text}\nended after {seconds} s"}
    return {"status": done.returncode, "text": done.stdout.decode(errors="replace")}


def write(path: str, data: str) -> None:
    """Writes bytes to a file in one call, as files of the kernel's want it."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    try:
        os.write(descriptor, base64.b64decode(data))
    finally:
        os.close(descriptor)


def read(path: str) -> dict[str, Any]:
    """A file's bytes."""
    with open(path, "rb") as file:
        return {"data": base64.b64encode(file.read()).decode()}


def names(path: str) -> dict[str, Any]:
    """What is in a directory."""
    return {"names": os.listdir(path)}


def follow(tell: Tell, files: bool) -> None:
    """Tells every uevent, and what it changed of the machine's files, if that is wanted."""
    if files:
        tell_later = queued(tell)
        followed = FollowedFiles(tell_later)
        follow_uevents(tell_later, followed.look)  # first, so that nothing is missed in between
        followed.start()
    else:
        follow_uevents(tell)


def main() -> None:
    """Answers until the host closes the port."""
    descriptor = os.open(PORT, os.O_RDWR)
    stream = Stream(descriptor)
    programs = Programs(stream.tell)
    orders: dict[str, Callable[..., Any]] = {
        "run": run,
        "read": read,
        "names": names,
        "write": write,
        "start": lambda argv: {"pid": programs.start(argv)},
        "stop": programs.stop,
        "uevents": lambda files=False: follow(stream.tell, files),
        "follow": lambda directory: follow_files(stream.tell, directory),
    }
    stream.tell(kind="ready", executable=sys.executable)
    with open(descriptor, "rb", buffering=0) as port:
        pending = b""
        while received := port.read(65536):
            *lines, pending = (pending + received).split(b"\n")
            for line in lines:
                order = json.loads(line)
                number, what = order.pop("number"), order.pop("do")
                try:
                    answer = orders[what](**order) or {}
                except OSError as error:
                    answer = {"error": str(error), "errno": error.errno}
                stream.tell(kind="answer", number=number, **answer)


main()
