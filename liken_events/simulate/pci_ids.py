r"""A PCI database that has the words of one machine.

PCI functions have numbers only. Distributions carry the pci.ids file, which has a line `8086
Intel Corporation` for a vendor and below it, behind a tab, one for each of its devices; classes
follow at the end, in the same form behind `C`.

This file writes such a file from recorded devices, so that a scan of a simulated machine finds the
words that the recorded one had. Like a distribution's, it does not forget the words of a device
that was pulled out.
"""

from collections.abc import Iterable

from liken_events.core.model.snapshot import Device

_HEAD = "#\n#\tPCI IDs of a simulated machine\n#\n\n"
_CLASSES = "\nC 03  Display controller\n\t00  VGA compatible controller\n\t\t00  VGA controller\n"


class PciIds:
    """The database file, rewritten whenever it learns a word.

    Args:
        path: of the file.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._makers: dict[str, str] = {}
        self._models: dict[tuple[str, str], str] = {}
        self._write()

    def learn(self, devices: Iterable[Device]) -> None:
        """Takes up the words of PCI functions. Of two words for one number, the first stays."""
        before = len(self._makers) + len(self._models)
        for device in devices:
            if device.key.bus == "pci" and device.vendor and device.maker:
                self._makers.setdefault(device.vendor, device.maker)
                if device.product and device.model:
                    self._models.setdefault((device.vendor, device.product), device.model)
        if len(self._makers) + len(self._models) > before:
            self._write()

    def _write(self) -> None:
        lines = []
        for vendor, maker in sorted(self._makers.items()):
            lines.append(f"{vendor}  {maker}\n")
            lines += [
                f"\t{product}  {model}\n"
                for (owner, product), model in sorted(self._models.items())
                if owner == vendor
            ]
        with open(self._path, "w", encoding="utf-8") as file:
            file.write(_HEAD + "".join(lines) + _CLASSES)
