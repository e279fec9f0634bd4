from pathlib import Path

import pytest

from liken_events.sources import pci_names
from liken_events.sources.pci_names import PciNames
from tests.fakes.faults import no_descriptors

DATABASE = """\
# A comment, and then a blank line

1022  Advanced Micro Devices, Inc. [AMD]
\t1483  Starship/Matisse GPP Bridge
\t\t1022 1453  A subsystem that looks like a device
8086  Intel Corporation
# A comment between devices
\t3e92  CoffeeLake-S GT2 [UHD Graphics 630]
\ta370  Caf\u00e9 Controller
C 03  Display controller
\t00  VGA compatible controller
"""


@pytest.fixture
def names(tmp_path: Path) -> PciNames:
    (tmp_path / "pci.ids").write_bytes(DATABASE.encode() + b"ffff  Broken \xff\n")
    return PciNames(f"{tmp_path}/pci.ids")


@pytest.mark.parametrize(
    ("vendor", "product", "expected"),
    [
        ("8086", "3e92", ("Intel Corporation", "CoffeeLake-S GT2 [UHD Graphics 630]")),
        ("8086", "a370", ("Intel Corporation", "Café Controller")),
        ("8086", "1483", ("Intel Corporation", None)),
        ("1022", "1453", ("Advanced Micro Devices, Inc. [AMD]", None)),
        ("1022", "3e92", ("Advanced Micro Devices, Inc. [AMD]", None)),
        ("dead", "beef", (None, None)),
        ("ffff", "0000", ("Broken \ufffd", None)),
        ("", "", (None, None)),
    ],
)
def test_a_device_has_the_names_of_its_own_vendor(
    names: PciNames, vendor: str, product: str, expected: tuple[str | None, str | None]
) -> None:
    for _ in range(2):
        assert names.look_up(vendor, product) == expected


def test_without_a_database_nothing_has_a_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert PciNames(f"{tmp_path}/missing").look_up("8086", "3e92") == (None, None)
    monkeypatch.setattr(pci_names, "DATABASES", (f"{tmp_path}/a", f"{tmp_path}/b"))
    assert PciNames().look_up("8086", "3e92") == (None, None)
    (tmp_path / "b").write_text(DATABASE)
    assert PciNames().look_up("8086", "3e92")[0] == "Intel Corporation"


def test_the_database_is_not_read_again_for_what_is_known(names: PciNames, tmp_path: Path) -> None:
    known = names.look_up("8086", "3e92")
    (tmp_path / "pci.ids").unlink()
    assert names.look_up("8086", "3e92") == known


def test_a_database_that_could_not_be_read_is_read_later(names: PciNames) -> None:
    with no_descriptors():
        assert names.look_up("8086", "3e92") == (None, None)
    assert names.look_up("8086", "3e92")[0] == "Intel Corporation"
