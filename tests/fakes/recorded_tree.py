"""The files of a recorded machine, brought from state to state as its kernel did.

A recording has for each device's directory the files and links in it, as they were at each event.
What the kernel makes beside a directory is made of those here: the bus lists a device of its own,
`/sys/dev` and `/dev` have one entry for each number, `/sys/class/block` one for each block device.
"""

import os
import shutil
import stat
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from liken_events.core.model.delivery import uevent_value

Files: TypeAlias = Mapping[str, Any]
"""One directory: the text of each file; `-> name` for a link; a list of names for a directory."""

ARROW = "-> "
BUSES = ("pci", "usb")


class RecordedTree:
    """A machine in a directory.

    Args:
        root: the directory; it must not exist.

    Attributes:
        sys, dev, proc: absolute paths of what stands for `/sys`, `/dev` and `/proc`.
        probes: the file into which a device is written that is to be given a driver.
    """

    def __init__(self, root: str) -> None:
        self.sys, self.dev, self.proc = (f"{root}/{name}" for name in ("sys", "dev", "proc"))
        self.probes = f"{self.sys}/bus/usb/drivers_probe"
        for place in ("sys/class/block", "sys/dev/char", "sys/dev/block", "dev", "proc/1"):
            os.makedirs(f"{root}/{place}")
        for bus in BUSES:
            os.makedirs(f"{self.sys}/bus/{bus}/devices")
        _write(self.probes, "")
        self._known: dict[str, Files] = {}
        self._owners: dict[str, str] = {}

    def put(self, path: str, files: Files | None) -> None:
        """Makes a directory what was recorded of it; None removes it, with all below it."""
        if files is None:
            for place in [it for it in self._known if it == path or it.startswith(f"{path}/")]:
                self._unlist(place)
            self._remove(path)
            return
        known = self._known.get(path, {})
        if known:
            self._unlist(path)
        folder = self.sys + path
        os.makedirs(folder, exist_ok=True)
        for name in known.keys() - files.keys():
            _clear(f"{folder}/{name}")
        for name, content in files.items():
            if known.get(name) != content:
                _clear(f"{folder}/{name}")
                _make(f"{folder}/{name}", content)
        self._list(path, files)

    def owner(self, node: str) -> str | None:
        """The kernel path of the device that a node such as `/dev/ttyUSB0` is of; None if there is
        no such node."""
        return self._owners.get(self.dev + node.removeprefix("/dev"))

    def show(self, table: str, lines: Sequence[str]) -> None:
        """Makes a table of `/proc` say this."""
        _write(self.proc + table.removeprefix("/proc"), "".join(f"{line}\n" for line in lines))

    def _list(self, path: str, files: Files) -> None:
        """What the kernel makes beside the directory, last."""
        for link in self._links(path, files):
            os.symlink(os.path.relpath(self.sys + path, os.path.dirname(link)), link)
        if "dev" in files:
            kind = stat.S_IFBLK if _is_block(files) else stat.S_IFCHR
            node = self._node(files)
            os.makedirs(os.path.dirname(node), exist_ok=True)
            self._owners[node] = path
            os.mknod(node, kind | 0o600, os.makedev(*map(int, files["dev"].split(":"))))
        self._known[path] = files

    def _unlist(self, path: str) -> None:
        files = self._known.pop(path)
        if "dev" in files:
            del self._owners[self._node(files)]
            os.unlink(self._node(files))
        for link in self._links(path, files):
            os.unlink(link)

    def _links(self, path: str, files: Files) -> list[str]:
        name, subsystem = os.path.basename(path), files.get("subsystem", "").removeprefix(ARROW)
        found = []
        if "dev" in files:
            kind = "block" if _is_block(files) else "char"
            found.append(f"{self.sys}/dev/{kind}/{files['dev'].strip()}")
        if _is_block(files):
            found.append(f"{self.sys}/class/block/{name}")
        if subsystem in BUSES:
            found.append(f"{self.sys}/bus/{subsystem}/devices/{name}")
        return found

    def _node(self, files: Files) -> str:
        return f"{self.dev}/{uevent_value(files['uevent'], 'DEVNAME')}"

    def _remove(self, path: str) -> None:
        """Removes a directory, and those above it that were there for its sake alone."""
        folder = self.sys + path
        if not os.path.isdir(folder):
            return
        shutil.rmtree(folder)
        above = os.path.dirname(path)
        while above not in self._known and above != "/" and not os.listdir(self.sys + above):
            os.rmdir(self.sys + above)
            above = os.path.dirname(above)


def _is_block(files: Files) -> bool:
    return bool(files.get("subsystem") == f"{ARROW}block")


def _make(path: str, content: str | Sequence[str]) -> None:
    if not isinstance(content, str):
        os.makedirs(path)
        for name in content:
            _write(f"{path}/{name}", "")
    elif content.startswith(ARROW):
        os.symlink(f"of/{content.removeprefix(ARROW)}", path)  # whose name counts alone
    else:
        os.makedirs(os.path.dirname(path), exist_ok=True)  # `dm/name`
        _write(path, content)


def _write(path: str, text: str) -> None:
    with open(path, "w", encoding="utf-8", errors="surrogateescape", newline="") as file:
        file.write(text)


def _clear(path: str) -> None:
    if os.path.isdir(path) and not os.path.islink(path):
        shutil.rmtree(path)
    elif os.path.lexists(path):
        os.unlink(path)
