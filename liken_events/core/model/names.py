"""Names, words and codes: how a device is called.

Hardware describes itself in text that nobody checked: serial numbers that are raw bytes, products
that end in NUL characters, strings of 126 characters, escape sequences. The API server takes DNS
labels of 63 characters and strings of 64 bytes, and refuses the whole slice for one that is
longer.

This file makes valid names and values from any text. Which of them a device carries is decided in
`core.model.publish`.
"""

import hashlib
import re
import unicodedata

from liken_events.core.model.snapshot import Key

LABEL_LENGTH = 63
"""Characters of a DNS label (RFC 1123), which a device's name has to be."""

STRING_BYTES = 64
"""Bytes of a string attribute, counted in UTF-8: `DeviceAttributeMaxValueLength` of
resource.k8s.io/v1. A real API server answers 422 to 65 ASCII characters and to 33 characters of
two bytes."""

REPLACEMENT = "\N{REPLACEMENT CHARACTER}"

_PCI_CLASSES = {
    "01": "storage",
    "02": "network",
    "03": "display",
    "04": "multimedia",
    "05": "memory",
    "06": "bridge",
    "07": "communication",
    "08": "system",
    "09": "input",
    "0c": "serial-bus",
    "0d": "wireless",
    "10": "encryption",
    "12": "accelerator",
}
"""PCI base class (first two digits of `class`) to one word; from the PCI Code and ID Assignment
Specification."""

_USB_CLASSES = {
    "01": "audio",
    "02": "communications",
    "03": "hid",
    "06": "imaging",
    "07": "printer",
    "08": "mass-storage",
    "0a": "cdc-data",
    "0b": "smart-card",
    "0e": "video",
    "10": "audio-video",
    "e0": "wireless",
    "ff": "vendor-specific",
}
"""`bInterfaceClass` to one word; from the USB-IF list of defined class codes."""

_UNPRINTABLE = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
"""Unicode categories that move a cursor, break a line, reorder text or have no shape."""


def device_name(key: Key, suffix: str = "") -> str:
    """The published name of a slot: `usb-1-2-1-0` for `1-2:1.0`, `pci-0000-00-02-0-display` with a
    suffix.

    Addresses of real buses only need their `:` and `.` replaced. Anything else is made a DNS label
    too, with a hash of the whole, so that it stays unique and the same at every start.
    """
    plain = f"{key.bus}-{key.address}".lower().replace(":", "-").replace(".", "-")
    label = re.sub(r"[^a-z0-9-]", "-", plain)
    room = LABEL_LENGTH - len(suffix)
    if label == plain and len(label) <= room and not label.endswith("-"):
        return label + suffix
    digest = hashlib.sha256(plain.encode(errors="surrogatepass")).hexdigest()[:8]
    return f"{label[: room - 9].strip('-')}-{digest}{suffix}"


def class_word(key: Key, class_code: str | None) -> str | None:
    """The kind of device in one word, or None for a class that has none."""
    if class_code is None:
        return None
    return (_PCI_CLASSES if key.bus == "pci" else _USB_CLASSES).get(class_code[:2])


def clean(text: str | None) -> str | None:
    """Text of a device as it may be published: without NUL and blank ends, printable; None if
    nothing is left.

    Devices pad strings with NULs or blanks, which is not part of the text. Every other control
    character, and every character that reorders or hides text, becomes U+FFFD: removing it would
    make two texts equal that differ.
    """
    if text is None:
        return None
    stripped = text.strip("\0 \t\r\n\v\f")
    return _replaced(stripped) or None


def cut(text: str) -> str:
    """The longest start of the text that fits a string attribute, never half a character."""
    raw = text.encode("utf-8", errors="replace")
    if len(raw) <= STRING_BYTES:
        return raw.decode("utf-8")
    return raw[:STRING_BYTES].decode("utf-8", errors="ignore")


def fits(text: str) -> bool:
    """Whether the text can be a string attribute as it is."""
    return len(text.encode("utf-8", errors="replace")) <= STRING_BYTES


def printable(text: str) -> str:
    """The text on one line, with everything unprintable written as an escape: `\\x1b`,
    `\\u200f`."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(_escaped(char) if _is_unprintable(char) else char for char in text)


def _replaced(text: str) -> str:
    if text.isascii() and text.isprintable():
        return text
    return "".join(REPLACEMENT if _is_unprintable(char) else char for char in text)


def _is_unprintable(char: str) -> bool:
    return unicodedata.category(char) in _UNPRINTABLE


def _escaped(char: str) -> str:
    code = ord(char)
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
