"""The host's end of the port to the program in the guest: orders, and records of what happened.

The program in the guest (`inside`) answers orders and tells records on one stream. A thread sorts
them, so that waiting for something is waiting for the next record.

What the records mean is for `desk`.
"""

import base64
import contextlib
import json
import shlex
import socket
import threading
from collections.abc import Callable
from typing import Any

READY_SECONDS = 240.0
"""A guest boots in 20 s here; on a busy machine with two others it took 130."""

ANSWER_SECONDS = 60.0
"""What an answer may take, besides the work in the guest."""


class GuestFailed(Exception):
    """The guest did not do what it was told, or is no more; the message says what."""


class Control:
    """The connection to a guest.

    Args:
        port: the socket that QEMU joins to the guest's port.

    Attributes:
        records: all that the guest told, oldest first.
        changed: notified at each record.
        ended: whether the guest closed it.
    """

    def __init__(self, port: socket.socket) -> None:
        self.records: list[dict[str, Any]] = []
        self.changed = threading.Condition()
        self._socket = port
        self._answers: dict[int, dict[str, Any]] = {}
        self._number = 0
        self.ended = False
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def wait(self, condition: Callable[[], object], seconds: float, what: str) -> None:
        """Waits until a condition holds that only a record can make true.

        Raises:
            GuestFailed: it did not in time, or the guest is no more.
        """
        with self.changed:
            if not self.changed.wait_for(lambda: condition() or self.ended, seconds):
                raise GuestFailed(f"waited {seconds:g} s for {what}")
            if not condition():
                raise GuestFailed(f"the guest ended while it was waited for {what}")

    def wait_ready(self) -> None:
        """Waits until the program in the guest runs."""
        self.wait(
            lambda: any(record["kind"] == "ready" for record in self.records),
            READY_SECONDS,
            "the guest to boot",
        )

    def do(
        self, order: str, *, within: float = ANSWER_SECONDS, **arguments: Any
    ) -> dict[str, Any]:
        """Has the guest do something, and returns its answer, which must come within so many
        seconds.

        Raises:
            OSError: a file there could not be read or written.
            GuestFailed: there was no answer in time.
        """
        with self.changed:
            self._number += 1
            number = self._number
        line = json.dumps({"number": number, "do": order, **arguments}).encode()
        self._socket.sendall(line + b"\n")
        what = f"{order} {arguments}"
        self.wait(lambda: number in self._answers, within, what)
        answer = self._answers.pop(number)
        if "error" in answer:
            raise OSError(answer["errno"], f"{what}: {answer['error']}")
        return answer

    def run(self, *argv: str, seconds: float = 60.0) -> str:
        """Runs a program in the guest to its end and returns what it printed.

        Raises:
            GuestFailed: it failed.
        """
        within = seconds + ANSWER_SECONDS
        answer = self.do("run", within=within, argv=list(argv), seconds=seconds)
        if answer["status"]:
            raise GuestFailed(f"{shlex.join(argv)}: {answer['status']}: {answer['text']}")
        text: str = answer["text"]
        return text

    def shell(self, script: str, seconds: float = 60.0) -> str:
        """Runs a script in the guest, which stops at the first command that fails."""
        return self.run("sh", "-euc", script, seconds=seconds)

    def write(self, path: str, data: str | bytes) -> None:
        """Writes a file of the guest in one call."""
        raw = data.encode() if isinstance(data, str) else data
        self.do("write", path=path, data=base64.b64encode(raw).decode())

    def read(self, path: str) -> bytes:
        """A file of the guest."""
        return base64.b64decode(self.do("read", path=path)["data"])

    def names(self, path: str) -> list[str]:
        """The names in a directory of the guest."""
        names: list[str] = self.do("names", path=path)["names"]
        return names

    def close(self) -> None:
        """Ends the connection, which ends the guest."""
        with contextlib.suppress(OSError):  # the guest was ended
            self._socket.shutdown(socket.SHUT_RDWR)
        self._thread.join(timeout=ANSWER_SECONDS)
        self._socket.close()

    def _read(self) -> None:
        with contextlib.suppress(OSError), self._socket.makefile("rb") as lines:  # or it was ended
            for line in lines:
                said = json.loads(line)
                with self.changed:
                    if said["kind"] == "answer":
                        self._answers[said["number"]] = said
                    else:
                        self.records.append(said)
                    self.changed.notify_all()
        with self.changed:
            self.ended = True
            self.changed.notify_all()
