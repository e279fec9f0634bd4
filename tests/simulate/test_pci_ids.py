"""The PCI database of a simulated machine, read by the agent's own reader."""

from pathlib import Path

import pytest

from liken_events.simulate.pci_ids import PciIds
from liken_events.sources.pci_names import PciNames
from tests.fakes.devices import pci, usb

GPU = pci("0000:00:02.0", "8086:3e92", "030000", words=("Intel Corporation", "UHD Graphics 630"))
MAKER = pci("0000:00:03.0", "1002:1478", "060400", words=("AMD", None))
NONE = pci("0000:00:04.0", "8086:0001", "060400")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "pci.ids"


def test_the_words_of_a_device_are_found_by_its_numbers(path: Path) -> None:
    PciIds(str(path)).learn([NONE, MAKER, GPU])
    names = PciNames(str(path))

    assert names.look_up("8086", "3e92") == ("Intel Corporation", "UHD Graphics 630")
    assert names.look_up("1002", "1478") == ("AMD", None)
    assert names.look_up("8086", "0001") == ("Intel Corporation", None)
    assert names.look_up("ffff", "0000") == (None, None)


def test_a_database_of_no_words_is_a_database(path: Path) -> None:
    PciIds(str(path))

    assert PciNames(str(path)).look_up("8086", "3e92") == (None, None)
    assert path.read_text().startswith("#")


def test_the_first_word_for_a_number_stays(path: Path) -> None:
    ids = PciIds(str(path))
    ids.learn([GPU])
    ids.learn([pci("0000:00:05.0", "8086:3e92", "030000", words=("Other", "Words"))])

    assert PciNames(str(path)).look_up("8086", "3e92") == ("Intel Corporation", "UHD Graphics 630")


def test_words_of_usb_devices_are_their_own_business(path: Path) -> None:
    PciIds(str(path)).learn([usb("1-1:1.0", "8086:3e92", "ff0000", None, 2, words=("A", "B"))])

    assert PciNames(str(path)).look_up("8086", "3e92") == (None, None)


def test_a_file_that_has_all_words_is_not_written_again(path: Path) -> None:
    ids = PciIds(str(path))
    ids.learn([GPU])
    path.unlink()

    ids.learn([GPU, NONE])

    assert not path.exists()
