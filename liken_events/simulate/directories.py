"""sysfs directories of kernel objects, in a made-up sysfs.

The kernel shows an object in several places at once: its directory below `/sys/devices`, a link
from its bus or class, one from its driver, and one from its number in `/sys/dev`. All come and go
with the object.

This file keeps those places in step: putting an object makes all of them, dropping one removes
them with everything below. The order is the kernel's: a bus lists a device when its directory is
complete, and unlists it before the directory goes.

Which objects there are is decided in `simulate.tree`.
"""

import os
import shutil
from collections.abc import Iterator

from liken_events.core.model.names import printable
from liken_events.simulate import clutter
from liken_events.simulate.kobjects import BLOCK, Kobject, in_order, is_below, is_within

_ROOT = "/devices"

_ALWAYS = ("/block", "/bus/pci/devices", "/bus/usb/devices", "/class/block", _ROOT)
"""Directories that are there with nothing in them too."""

_PROBE_FILES = ("/bus/pci/drivers_probe", "/bus/usb/drivers_probe")
"""Files into which an agent writes an address, to have a driver looked for. Here it only lands in
the file."""


class OutOfTree(ValueError):
    """A recorded machine says that something is where no sysfs has anything."""


class Directories:
    """The part of a made-up sysfs that shows kernel objects.

    A recorded machine is a stranger's file, and root may be the one who builds it. So every method
    raises OutOfTree before it touches a place that is not in this sysfs.

    Args:
        sys: absolute path of the directory that stands for `/sys`.
        clutter: whether directories are as full as real ones.
    """

    def __init__(self, sys: str, *, clutter: bool) -> None:
        self._sys = os.path.realpath(sys)
        self._clutter = clutter
        self._objects: dict[str, Kobject] = {}
        for place in _ALWAYS:
            os.makedirs(sys + place)
        for place in _PROBE_FILES:
            self.write(place, "")

    def __contains__(self, path: str) -> bool:
        return path in self._objects

    def put(self, item: Kobject) -> None:
        """Makes an object's directory and links, or brings them up to date."""
        if not is_below(item.path, _ROOT):
            raise OutOfTree(f"'{printable(item.path)}' is no kernel path of a device")
        old = self._objects.get(item.path)
        texts, links = self._texts(item), self._links(item)
        old_texts = {} if old is None else self._texts(old)
        old_links = {} if old is None else self._links(old)
        os.makedirs(self._inside(item.path), exist_ok=True)
        for place in old_links.keys() - links.keys():
            self.unlink(place)
        for name in old_texts.keys() - texts.keys():
            os.unlink(self._inside(f"{item.path}/{name}"))
        for name, text in texts.items():
            if old_texts.get(name) != text:
                self.write(f"{item.path}/{name}", text)
        for place, target in links.items():
            if old_links.get(place) != target:
                self.link(place, target)
        self._objects[item.path] = item

    def drop(self, top: str) -> list[Kobject]:
        """Removes an object and all below it; nothing if it is not there. Returns them, each
        before those below it."""
        gone = in_order(item for item in self._objects.values() if is_within(item.path, top))
        for item in reversed(gone):
            del self._objects[item.path]
            for place in reversed(self._links(item)):
                self.unlink(place)
        if gone:
            shutil.rmtree(self._inside(top))
            self._prune(top.rpartition("/")[0])
        return gone

    def write(self, place: str, text: str) -> None:
        """Writes an attribute, with the newline that the kernel puts behind it, and the
        directories above it."""
        path = self._inside(place)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="utf-8", errors="surrogateescape", newline="") as file:
            file.write(text + "\n" if text else "")

    def link(self, place: str, target: str) -> None:
        """Makes a relative link from one place in sysfs to another, as the kernel does; replaces
        an older one."""
        path, _ = self._inside(place), self._inside(target)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        if os.path.lexists(path):
            os.unlink(path)
        os.symlink(os.path.relpath(target, os.path.dirname(place)), path)

    def unlink(self, place: str) -> None:
        """Removes a link; nothing if it went with its directory."""
        path = self._inside(place)
        if os.path.islink(path):
            os.unlink(path)

    def _inside(self, place: str) -> str:
        """The path of a place in sysfs.

        It leads through no link: the kernel's directories do not, and a relative link that is made
        behind one leads elsewhere than it says.

        Raises:
            OutOfTree: it would not be below this sysfs, or can be no path at all.
        """
        path = self._sys + place
        try:
            names = os.fsencode(place).split(b"/")
            fits = not names[0] and not {b"", b".", b".."} & {*names[1:]} and "\0" not in place
            fits = fits and os.path.realpath(os.path.dirname(path)) == os.path.dirname(path)
        except UnicodeEncodeError:  # half a character, which JSON can write and no path can have
            fits = False
        if not fits:
            raise OutOfTree(f"'{printable(place)}' is no place in sysfs")
        return path

    def _texts(self, item: Kobject) -> dict[str, str]:
        """The files of an object's directory, name to text."""
        texts = {**clutter.files(item)} if self._clutter else {}
        texts |= item.attributes
        texts["uevent"] = "\n".join(f"{name}={value}" for name, value in item.lines())
        if item.number is not None:
            texts["dev"] = item.number
        return texts

    def _links(self, item: Kobject) -> dict[str, str]:
        """The links in an object's directory and to it, place to target."""
        links = dict(_links(item))
        if self._clutter:
            links |= {f"{item.path}/{name}": to for name, to in clutter.links(item).items()}
        return links

    def _prune(self, place: str) -> None:
        """Removes plain directories (`tty`, `block`) that the last object below them left
        empty."""
        while place != _ROOT and place not in self._objects and not os.listdir(self._sys + place):
            os.rmdir(self._sys + place)
            place = place.rpartition("/")[0]


def _links(item: Kobject) -> Iterator[tuple[str, str]]:
    """Where else in sysfs an object shows: place and target of each link."""
    home = item.home
    if home is not None:
        yield f"{item.path}/subsystem", home
        if item.on_bus and item.driver is not None:
            yield f"{item.path}/driver", f"{home}/drivers/{item.driver}"
            yield f"{home}/drivers/{item.driver}/{item.name}", item.path
        yield f"{home}/{'devices/' if item.on_bus else ''}{item.name}", item.path
    if item.number is not None:
        yield f"/dev/{'block' if item.subsystem == BLOCK else 'char'}/{item.number}", item.path
    if item.subsystem == BLOCK and item.devtype == "disk":
        yield f"/block/{item.name}", item.path
