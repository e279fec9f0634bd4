"""Records of what the machine's files say, so that the recording of a test can be replayed.

A uevent says that something changed, and no word of what: the agent reads that from sysfs. Mounts
and swap areas change without an event. So a recording needs the files too, as they were at each
event.

This file reads all devices once, and from then on, in the very thread that got an event, the
directory of its device and the driver of each device above it. What differs from the last look is
told, with the number of the event. The recorder is a little later than the kernel; how late is in
the records, as the time of each.

Which files there are to be read is known from the agent's sources: `sysfs` and `storage`.
"""

import contextlib
import os
import select
import threading
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, TypeAlias

from tests.vm.inside.recorders import Tell

SYS = "/sys"
FILES = (
    *("uevent", "dev", "modalias", "vendor", "device", "class"),
    *("busnum", "devnum", "idVendor", "idProduct", "bInterfaceClass"),
    *("partition", "dm/name"),
)
WORDS = ("serial", "manufacturer", "product")
"""Strings of USB devices. Reading one waits until the device's probe is over, so that is left to
a thread of its own; they are there before the device is announced, and never change."""
LINKS = ("subsystem", "driver")
LISTED = "slaves"

TABLES = ("/proc/1/mountinfo", "/proc/swaps")
BUSY = ("/devices/system", "/devices/virtual", "/devices/breakpoint", "/devices/tracepoint")
"""What the first look leaves out: thousands of directories without hardware."""
DISKS = "/devices/virtual/block"

Files: TypeAlias = dict[str, Any]
"""One directory: the text of each file, what each link leads to, and the names in `slaves`."""


class FollowedFiles:
    """The files of one machine.

    Args:
        tell: sends one record.
    """

    def __init__(self, tell: Tell) -> None:
        self._tell = tell
        self._seen: dict[str, Files] = {}
        self._lock = threading.Lock()

    def start(self) -> None:
        """Tells all that is there, and begins to follow the tables."""
        with self._lock:
            self._seen = {path: found for path, found in _everything() if found is not None}
            for path, found in self._seen.items():
                if "devnum" in found:
                    found.update(_texts(SYS + path, WORDS))
            self._tell(kind="sysfs", event=None, changed={**self._seen}, words=False)
        for path in TABLES:
            threading.Thread(target=self._follow, args=(path,), daemon=True).start()

    def look(self, event: Mapping[str, str]) -> None:
        """Tells what an event changed: called at once when it came."""
        path = event["DEVPATH"]
        if not path.startswith("/devices/"):
            return
        number = int(event["SEQNUM"])
        with self._lock:
            changed: dict[str, Files | None] = {}
            found = _directory(path)
            known = self._seen.get(path)
            if found is not None and known is not None and event["ACTION"] != "add":
                found |= {name: known[name] for name in WORDS if name in known}
            if found != known:
                changed[path] = found
            for above in _above(path):
                before = self._seen.get(above)
                if before is None:
                    continue  # a directory that is no device
                driver = _links(SYS + above, ("driver",))
                if driver.get("driver") != before.get("driver"):
                    rest = {name: it for name, it in before.items() if name != "driver"}
                    changed[above] = {**rest, **driver}
            self._tell_changed(number, changed)
        if event.get("DEVTYPE") == "usb_device" and event["ACTION"] == "add":
            threading.Thread(target=self._read_words, args=(number, path), daemon=True).start()

    def _read_words(self, number: int, path: str) -> None:
        words = _texts(SYS + path, WORDS)
        with self._lock:
            known = self._seen.get(path)
            if words and known is not None:
                self._tell_changed(number, {path: {**known, **words}}, words=True)

    def _tell_changed(
        self, number: int, changed: Mapping[str, Files | None], *, words: bool = False
    ) -> None:
        for path, found in changed.items():
            if found is None:
                self._seen.pop(path, None)
            else:
                self._seen[path] = found
        self._tell(kind="sysfs", event=number, changed=changed, words=words)

    def _follow(self, path: str) -> None:
        """Tells a table now and whenever the kernel says that it changed."""
        with open(path, encoding="utf-8", errors="surrogateescape") as file:
            poll = select.poll()
            poll.register(file, select.POLLPRI)
            while True:
                file.seek(0)
                self._tell(kind="table", path=path, text=file.read())
                poll.poll()


def _everything() -> Iterator[tuple[str, Files | None]]:
    for top in ("/devices", DISKS):
        for folder, names, _ in os.walk(SYS + top):
            path = folder.removeprefix(SYS)
            names[:] = [name for name in names if name != "power" and f"{path}/{name}" not in BUSY]
            yield path, _directory(path)


def _directory(path: str) -> Files | None:
    """A device's directory; None if there is none, or only what is left of one: the kernel takes
    the files away first."""
    folder = SYS + path
    try:
        names = {*os.listdir(folder)}
    except OSError:
        return None
    files = [name for name in FILES if name.partition("/")[0] in names]
    links = [name for name in LINKS if name in names]
    found: Files = {**_texts(folder, files), **_links(folder, links)}
    if LISTED in names:
        with contextlib.suppress(OSError):
            found[LISTED] = sorted(os.listdir(f"{folder}/{LISTED}"))
    return found if "uevent" in found else None


def _texts(folder: str, names: Iterable[str]) -> dict[str, str]:
    """The files that can be read."""
    found = {}
    for name in names:
        try:
            handle = os.open(f"{folder}/{name}", os.O_RDONLY | os.O_NONBLOCK)
        except OSError:
            continue
        with contextlib.suppress(OSError):
            found[name] = os.read(handle, 4096).decode("utf-8", "surrogateescape")
        os.close(handle)
    return found


def _links(folder: str, names: Iterable[str]) -> dict[str, str]:
    """The links that are there: base names, marked so that they are told from texts."""
    found = {}
    for name in names:
        with contextlib.suppress(OSError):
            found[name] = "-> " + os.path.basename(os.readlink(f"{folder}/{name}"))
    return found


def _above(path: str) -> Iterator[str]:
    while (path := os.path.dirname(path)) not in {"/devices", "/"}:
        yield path
