"""A serial adapter of QEMU's that a test plugs into the guest and speaks through."""

from typing import Self

from tests.cluster.real.pods import HAVE
from tests.vm.hardware import Hardware

ANSWER_SECONDS = 30.0
"""Bound for a container's answer; in an emulated machine it takes 0.2 s."""

LISTEN = f"""\
{HAVE}\
echo that is all
trap exit TERM
exec 3<> $(echo /dev/ttyUSB*)
echo opened
while read -r line <&3; do
    echo "heard $line"
    echo "got $line" >&3
done
echo could not
exit 1
"""
"""A shell script that says which devices its container has, and then answers each line that comes
from the adapter, for as long as it can read."""


class Adapter:
    """The adapter. Use as a context manager, which closes the line to it.

    Args:
        hardware: plugs it in.
        port: of the USB controller.
        serial: its serial number.

    Attributes:
        name: of the device that is published.
        address: of its interface.
    """

    def __init__(self, hardware: Hardware, port: int, serial: str) -> None:
        self.name = f"usb-1-{port}-1-0"
        self.address = f"1-{port}:1.0"
        self._hardware = hardware
        self._port = str(port)
        self._serial = serial
        self._line, self._end = hardware.connected_line()
        self._end.settimeout(ANSWER_SECONDS)
        self._id = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._end.close()

    def plug(self) -> None:
        """Plugs it in."""
        self._id = self._hardware.usb_serial(self._port, self._serial, self._line)

    def pull(self) -> None:
        """Pulls it out."""
        self._hardware.pull(self._id)

    def ask(self, word: str) -> None:
        """Sends a word to whoever listens at the adapter, and waits for the answer to it."""
        self._end.sendall(f"{word}\n".encode())
        said = b""
        while f"got {word}".encode() not in said:
            try:
                said += self._end.recv(4096)
            except TimeoutError:
                raise AssertionError(f"no answer to {word}, but {said!r}") from None
