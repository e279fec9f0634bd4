"""PCI devices in words: the pci.ids database.

A PCI function has numbers and no strings. The pci.ids file, which distributions carry, gives names
to them: a line for each vendor, and below it, behind a tab, one for each of its devices.

This file looks up what is asked for and keeps only that: the text has 1.5 MB, a machine has some
dozens of devices.
"""

import os

DATABASES = ("/usr/share/misc/pci.ids", "/usr/share/hwdata/pci.ids", "/var/lib/pciutils/pci.ids")
"""Where Debian and Ubuntu, Fedora and SUSE, and `update-pciids` put it."""


class PciNames:
    """Names from one database file; without one, nothing has a name."""

    def __init__(self, path: str | None = None) -> None:
        """`path` is the file to use; None takes the first of `DATABASES` that exists."""
        candidates = DATABASES if path is None else (path,)
        self._path = next((name for name in candidates if os.path.isfile(name)), None)
        self._known: dict[tuple[str, str], tuple[str | None, str | None]] = {}

    def look_up(self, vendor: str, product: str) -> tuple[str | None, str | None]:
        """The names of a vendor and of its device, each None if the database has none; ids are
        four hex digits."""
        wanted = (vendor, product)
        if wanted not in self._known:
            try:
                self._known[wanted] = self._search(vendor, product)
            except OSError:  # not remembered: another look may find it
                return None, None
        return self._known[wanted]

    def _search(self, vendor: str, product: str) -> tuple[str | None, str | None]:
        if self._path is None:
            return None, None
        with open(self._path, encoding="utf-8", errors="replace") as file:
            maker: str | None = None
            for line in file:
                if maker is None:
                    if line.startswith(vendor + "  "):
                        maker = line[4:].strip()
                elif line.startswith("\t" + product + "  "):
                    return maker, line[5:].strip()
                elif not line.startswith(("\t", "#")):
                    break
            return maker, None
