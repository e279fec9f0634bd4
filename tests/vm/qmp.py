"""A client of QEMU's machine protocol: one line of JSON for each order, answer and event.

A device that is plugged in is there for the guest when QEMU answers. One of PCI that is pulled out
goes when the guest has let go of it, which QEMU tells with an event.

Which devices there are, and where they go, is for the caller.
"""

import contextlib
import json
import socket
import threading
from typing import Any

ANSWER_SECONDS = 60.0


class Refused(Exception):
    """QEMU did not do what it was told; the message is QEMU's."""


class Qmp:
    """A connection to a QEMU that runs.

    Args:
        path: the socket.
    """

    def __init__(self, path: str) -> None:
        self._socket = socket.socket(socket.AF_UNIX)
        try:
            self._socket.connect(path)
        except OSError:
            self._socket.close()
            raise
        self._lines = self._socket.makefile("rb")
        self._changed = threading.Condition()
        self._answers: list[dict[str, Any]] = []
        self._events: list[dict[str, Any]] = []
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()
        self.do("qmp_capabilities")

    def do(self, order: str, **arguments: Any) -> Any:
        """Gives an order and returns the answer.

        Raises:
            Refused: it was not carried out, or not answered in 60 s.
        """
        line = json.dumps({"execute": order, "arguments": arguments}).encode()
        with self._changed:
            self._socket.sendall(line + b"\n")
            if not self._changed.wait_for(lambda: self._answers, ANSWER_SECONDS):
                raise Refused(f"{order} {arguments}: no answer")
            answer = self._answers.pop(0)
        if "error" in answer:
            raise Refused(f"{order} {arguments}: {answer['error']['desc']}")
        return answer["return"]

    def wait_deleted(self, device: str) -> None:
        """Waits until the guest has let go of a device that was pulled out.

        Raises:
            Refused: it did not in 60 s.
        """
        with self._changed:
            if not self._changed.wait_for(lambda: self._is_deleted(device), ANSWER_SECONDS):
                raise Refused(f"the guest does not let go of {device}")

    def close(self) -> None:
        """Ends the connection."""
        with contextlib.suppress(OSError):  # QEMU was ended, and with it the connection
            self._socket.shutdown(socket.SHUT_RDWR)
        self._thread.join(timeout=ANSWER_SECONDS)
        self._lines.close()
        self._socket.close()

    def _is_deleted(self, device: str) -> bool:
        return any(
            event["event"] == "DEVICE_DELETED" and event["data"].get("device") == device
            for event in self._events
        )

    def _read(self) -> None:
        with contextlib.suppress(OSError):  # QEMU was ended
            for line in self._lines:
                self._sort(json.loads(line))

    def _sort(self, said: dict[str, Any]) -> None:
        with self._changed:
            if "event" in said:
                self._events.append(said)
            elif "QMP" not in said:
                self._answers.append(said)
            self._changed.notify_all()
