import re
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from liken_events.core.model.names import class_word, clean, cut, device_name, fits, printable
from liken_events.core.model.snapshot import Bus, Key

LABEL = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
"""RFC 1123."""

SUFFIXES = ("", "-display", "-i2c-dev", "-drm-dp-aux-dev")
FFFD = "\N{REPLACEMENT CHARACTER}"
anything = st.text(st.characters())
"""Surrogates included."""

buses: st.SearchStrategy[Bus] = st.sampled_from(["pci", "usb"])
keys = st.builds(Key, bus=buses, address=anything)
ports = st.lists(st.integers(1, 15), min_size=1, max_size=6)
real_keys = st.one_of(
    st.builds(
        lambda domain, bus, slot, function: Key(
            bus="pci", address=f"{domain:04x}:{bus:02x}:{slot:02x}.{function}"
        ),
        st.integers(0, 0x1FFFF),
        st.integers(0, 255),
        st.integers(0, 31),
        st.integers(0, 7),
    ),
    st.builds(
        lambda bus, chain, configuration, interface: Key(
            bus="usb",
            address=f"{bus}-{'.'.join(map(str, chain))}:{configuration}.{interface}",
        ),
        st.integers(1, 20),
        ports,
        st.integers(1, 8),
        st.integers(0, 31),
    ),
)


@pytest.mark.parametrize(
    ("bus", "address", "suffix", "name"),
    [
        ("usb", "1-2:1.0", "", "usb-1-2-1-0"),
        ("usb", "1-0:1.0", "", "usb-1-0-1-0"),
        ("usb", "12-1.4.3.2:1.13", "", "usb-12-1-4-3-2-1-13"),
        ("pci", "0000:00:02.0", "", "pci-0000-00-02-0"),
        ("pci", "0000:00:02.0", "-display", "pci-0000-00-02-0-display"),
        ("pci", "0000:00:02.0", "-drm-dp-aux-dev", "pci-0000-00-02-0-drm-dp-aux-dev"),
        ("pci", "10000:e0:06.0", "", "pci-10000-e0-06-0"),
        ("pci", "0000:0A:00.0", "", "pci-0000-0a-00-0"),
        # What no bus calls a device; the names must not change from one version to the next.
        ("pci", "a_b", "", "pci-a-b-b83fcfae"),
        ("pci", "", "", "pci-322f52e9"),
        ("usb", "1-2:", "-display", "usb-1-2-1e97d7e0-display"),
        ("usb", "x" * 60, "", f"usb-{'x' * 50}-79a5d825"),
    ],
)
def test_a_device_is_named_for_its_bus_and_address(
    bus: Bus, address: str, suffix: str, name: str
) -> None:
    assert device_name(Key(bus=bus, address=address), suffix) == name


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_long_addresses_that_begin_alike_get_different_names(suffix: str) -> None:
    keys = [Key(bus="usb", address="1" * count + end) for count in (55, 70) for end in "-a_"]
    names = {device_name(key, suffix) for key in keys}
    assert len(names) == 6
    assert all(name.startswith("usb-1111") and name.endswith(suffix) for name in names)
    assert all(LABEL.fullmatch(name) for name in names)


def test_a_name_has_no_suffix_unless_one_is_given() -> None:
    key = Key(bus="usb", address="1-2:1.0")
    assert device_name(key) == device_name(key, "") == "usb-1-2-1-0"


@given(keys, st.sampled_from(SUFFIXES))
def test_every_name_is_a_dns_label(key: Key, suffix: str) -> None:
    name = device_name(key, suffix)
    assert LABEL.fullmatch(name)
    assert name.endswith(suffix)


@given(real_keys, real_keys, st.sampled_from(SUFFIXES), st.sampled_from(SUFFIXES))
def test_two_slots_never_share_a_name(
    one: Key, other: Key, suffix: str, other_suffix: str
) -> None:
    same = device_name(one, suffix) == device_name(other, other_suffix)
    assert same == ((one, suffix) == (other, other_suffix))


@given(real_keys, st.sampled_from(SUFFIXES))
def test_the_name_of_a_real_slot_is_its_address_and_nothing_else(key: Key, suffix: str) -> None:
    address = key.address.replace(":", "-").replace(".", "-")
    assert device_name(key, suffix) == f"{key.bus}-{address}{suffix}"


@pytest.mark.parametrize(
    ("bus", "code", "word"),
    [
        ("pci", "010802", "storage"),
        ("pci", "020000", "network"),
        ("pci", "030000", "display"),
        ("pci", "040300", "multimedia"),
        ("pci", "050000", "memory"),
        ("pci", "060400", "bridge"),
        ("pci", "078000", "communication"),
        ("pci", "088000", "system"),
        ("pci", "090000", "input"),
        ("pci", "0c0330", "serial-bus"),
        ("pci", "0d8000", "wireless"),
        ("pci", "108000", "encryption"),
        ("pci", "120000", "accelerator"),
        ("pci", "118000", None),
        ("pci", "0a0000", None),
        ("pci", "ff0000", None),
        ("pci", "", None),
        ("pci", None, None),
        ("usb", "01", "audio"),
        ("usb", "02", "communications"),
        ("usb", "03", "hid"),
        ("usb", "06", "imaging"),
        ("usb", "07", "printer"),
        ("usb", "08", "mass-storage"),
        ("usb", "0a", "cdc-data"),
        ("usb", "0b", "smart-card"),
        ("usb", "0e", "video"),
        ("usb", "10", "audio-video"),
        ("usb", "e0", "wireless"),
        ("usb", "ff", "vendor-specific"),
        ("usb", "09", None),
        ("usb", "0d", None),
        ("usb", "fe", None),
        ("usb", None, None),
    ],
)
def test_a_class_is_one_word_or_none(bus: Bus, code: str | None, word: str | None) -> None:
    assert class_word(Key(bus=bus, address="x"), code) == word


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        (None, None),
        ("", None),
        ("\0\0\0", None),
        ("  \t\r\n\v\f ", None),
        (" \0 \0", None),
        ("00008020000955DC1132002E" + "\0" * 16, "00008020000955DC1132002E"),
        ("Webcam\0", "Webcam"),
        ("  Keyboard   ", "Keyboard"),
        ("two  words", "two  words"),
        ("a\0b", f"a{FFFD}b"),
        ("\x01\x1b[31m", f"{FFFD}{FFFD}[31m"),
        ("A\r\nB\x7fC", f"A{FFFD}{FFFD}B{FFFD}C"),
        ("02\x92", f"02{FFFD}"),
        ("a\u200fb\u202ec\u2028d\ufeffe", f"a{FFFD}b{FFFD}c{FFFD}d{FFFD}e"),
        ("a\u2029b\ue000c", f"a{FFFD}b{FFFD}c"),
        ("BCM2045\ufffd", "BCM2045\ufffd"),
        ("\ufffd\ufffd", "\ufffd\ufffd"),
        ("\udcae", FFFD),
        ("Qualcomm® Snapdragon™ 日本", "Qualcomm® Snapdragon™ 日本"),
    ],
)
def test_text_of_a_device_is_stripped_and_made_printable(
    raw: str | None, text: str | None
) -> None:
    assert clean(raw) == text


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("", ""),
        ("x" * 64, "x" * 64),
        ("x" * 65, "x" * 64),
        ("x" * 200, "x" * 64),
        ("é" * 32, "é" * 32),
        ("é" * 40, "é" * 32),
        ("x" + "é" * 40, "x" + "é" * 31),
        ("xx" + "日" * 30, "xx" + "日" * 20),
        ("x" * 61 + "😀", "x" * 61),
        ("\udcae", "?"),
    ],
)
def test_text_is_cut_between_characters_at_64_bytes(text: str, kept: str) -> None:
    assert cut(text) == kept
    assert fits(kept)
    assert fits(text) == (len(text.encode(errors="replace")) <= 64)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain", "plain"),
        ("", ""),
        ("Größe 日本", "Größe 日本"),
        ("\x1b[31m", "\\x1b[31m"),
        ("a\nb\r\x7f\x85", "a\\x0ab\\x0d\\x7f\\x85"),
        ("\u200f\u2028\ufeff", "\\u200f\\u2028\\ufeff"),
        ("\udcae", "\\udcae"),
        ("\U000e0001", "\\U000e0001"),
        ("\\x1b", "\\x1b"),
    ],
)
def test_text_for_a_person_shows_what_is_unprintable(text: str, shown: str) -> None:
    assert printable(text) == shown
    assert printable(shown) == shown


def is_shown_as_it_is(text: str) -> bool:
    """No character of a category that moves a cursor, breaks a line, reorders text or has no
    shape."""
    return all(unicodedata.category(char)[0] != "C" for char in text) and not (
        {"\u2028", "\u2029"} & set(text)
    )


@given(anything)
def test_clean_text_is_printable_and_stays_as_it_is(raw: str) -> None:
    text = clean(raw)
    assert (text is None) == (not raw.strip("\0 \t\r\n\v\f"))
    if text is not None:
        assert is_shown_as_it_is(text)
        text.encode("utf-8")
        assert clean(text) == text
        assert len(text) == len(raw.strip("\0 \t\r\n\v\f"))


@given(st.text(max_size=100))
def test_cut_text_is_the_longest_start_that_fits(text: str) -> None:
    kept = cut(text)
    assert text.startswith(kept)
    assert len(kept.encode()) <= 64
    assert kept == text or len(text[: len(kept) + 1].encode()) > 64
    assert fits(text) == (kept == text)


@given(anything)
def test_printable_text_is_on_one_line_and_can_be_written_anywhere(text: str) -> None:
    shown = printable(text)
    assert is_shown_as_it_is(shown)
    shown.encode("utf-8")
    assert (shown == text) == is_shown_as_it_is(text)
