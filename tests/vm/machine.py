"""A guest: a distribution kernel in QEMU, by software emulation, on this machine's own files.

virtme-ng boots a kernel of `/boot` with this machine's root as the guest's, read-only with
overlays on `/tmp`, `/etc` and others; so the virtual environment that runs the tests is there too.
The guest runs one program, `tests.vm.inside`, and ends with it; that ends when its port to the
host is closed, which also happens when the host's process dies.

What is plugged in is for `desk`; what is in the guest's command line is here.
"""

import ctypes
import glob
import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from types import TracebackType
from typing import Self

from tests.vm.control import Control, GuestFailed
from tests.vm.qmp import Qmp

PROJECT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

SOCKET_SECONDS = 30.0
END_SECONDS = 20.0

GUEST_SECONDS = 1500.0
"""A guest that nobody ends is ended after the time that all tests may take."""

PACKAGES = {
    "qemu-system-x86_64": "qemu-system-x86",
    "udevadm": "udev",
    "modprobe": "kmod",
    "busybox": "busybox-static",
    "mkfs.ext4": "e2fsprogs",
    "pvcreate": "lvm2",
}
"""Programs that a guest needs, and Debian's packages of them."""

LIBUSB, LIBUSB_PACKAGE = "libusb-1.0.so.0", "libusb-1.0-0"
KERNEL_PACKAGE = "linux-image-amd64"
SBIN = "/usr/local/sbin:/usr/sbin:/sbin"


def search_path() -> str:
    """Where programs are looked for: virtme-ng beside this Python, the rest where root has it."""
    return os.pathsep.join([os.path.dirname(sys.executable), os.environ.get("PATH", ""), SBIN])


def newest_kernel() -> str | None:
    """The newest kernel of `/boot` that has its modules; None if there is none."""
    found = [
        path
        for path in glob.glob("/boot/vmlinuz-*")
        if os.path.isdir("/lib/modules/" + path.removeprefix("/boot/vmlinuz-"))
    ]
    return max(found, key=lambda path: [int(n) for n in re.findall(r"\d+", path)], default=None)


def what_is_missing() -> str | None:
    """One sentence that says what to install; None if nothing is missing."""
    path = search_path()
    packages = [name for tool, name in PACKAGES.items() if shutil.which(tool, path=path) is None]
    try:
        ctypes.CDLL(LIBUSB)
    except OSError:
        packages.append(LIBUSB_PACKAGE)
    if newest_kernel() is None:
        packages.append(KERNEL_PACKAGE)
    if packages:
        return f"Tests on a real kernel need more of Debian: apt install {' '.join(packages)}"
    if shutil.which("vng", path=path) is None:
        return f"virtme-ng is missing: {sys.executable} -m pip install --group vm"
    return None


class Machine:
    """A guest that runs. Use as a context manager.

    Args:
        directory: for the console and the sockets; its path must be short (a socket's path holds
            107 bytes).
        devices: further arguments for QEMU.
        seconds: when a guest is ended that nobody ends.

    Attributes:
        control: the program in the guest.
        qmp: QEMU.
        python: the interpreter there, which is the one that runs the tests.

    Raises:
        GuestFailed: on entering, if it does not boot.
    """

    python = sys.executable

    def __init__(
        self, directory: str, devices: list[str], *, seconds: float = GUEST_SECONDS
    ) -> None:
        self._directory = directory
        self._devices = devices
        self._seconds = seconds
        self._console = os.path.join(directory, "console")

    def __enter__(self) -> Self:
        kernel = newest_kernel()
        assert kernel is not None
        sockets = [os.path.join(self._directory, name) for name in ("qmp", "control")]
        options = [
            *("-qmp", f"unix:{sockets[0]},server=on,wait=off"),
            *("-chardev", f"socket,id=control,path={sockets[1]},server=on,wait=off"),
            *("-device", "virtio-serial-pci"),
            *("-device", "virtserialport,chardev=control,name=liken.control"),
            *self._devices,
        ]
        inside = shlex.join([self.python, "-m", "tests.vm.inside"])
        line = [
            *("timeout", f"--kill-after={END_SECONDS:g}", f"{self._seconds:g}"),
            *("vng", "-r", kernel, "--disable-kvm", "--force-9p", "--user", "root", "--verbose"),
            *("--memory", "2G", "--cpus", "2", "--cwd", PROJECT),
            f"--qemu-opts={shlex.join(options)}",
            *("--", f"{inside} 2>&1"),
        ]
        self._process = subprocess.Popen(
            line,
            cwd=PROJECT,
            env={**os.environ, "PATH": search_path()},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # one group with QEMU, which is ended as one
        )
        self._control: Control | None = None
        try:
            self._copier = threading.Thread(target=self._keep_console, daemon=True)
            self._copier.start()
            self.control = self._control = Control(self._connect(sockets[1]))
            self.control.wait_ready()
            self.qmp = Qmp(sockets[0])
        except GuestFailed as error:
            self._give_up()
            raise GuestFailed(f"{error}; the guest's console:\n{self.console()}") from error
        except BaseException:
            self._give_up()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.control.close()
        self._end()
        self.qmp.close()

    def console(self, lines: int = 40) -> str:
        """The end of what the guest printed."""
        try:
            with open(self._console, errors="replace", encoding="utf-8") as file:
                return "".join(file.readlines()[-lines:])
        except FileNotFoundError:
            return ""

    def _connect(self, path: str) -> socket.socket:
        """Connects to QEMU as soon as it is there."""
        deadline = time.monotonic() + SOCKET_SECONDS
        while True:
            port = socket.socket(socket.AF_UNIX)
            try:
                port.connect(path)
            except OSError as error:
                port.close()
                if time.monotonic() > deadline or self._process.poll() is not None:
                    raise GuestFailed("QEMU did not start") from error
                time.sleep(0.05)
            else:
                return port

    def _give_up(self) -> None:
        """Ends what there is of a guest that did not start."""
        self._end()
        if self._control is not None:
            self._control.close()

    def _keep_console(self) -> None:
        assert self._process.stdout is not None
        with open(self._console, "wb", buffering=0) as file:
            while text := os.read(self._process.stdout.fileno(), 65536):
                file.write(text)
        self._process.stdout.close()

    def _end(self) -> None:
        """Ends QEMU and all that started it: nicely first, since the guest may be at its end."""
        for number in (signal.SIGTERM, signal.SIGKILL):
            try:
                os.killpg(self._process.pid, number)
                self._process.wait(timeout=END_SECONDS)
            except (ProcessLookupError, subprocess.TimeoutExpired):
                continue
        self._process.wait()
        self._copier.join(timeout=END_SECONDS)
