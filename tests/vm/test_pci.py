"""PCI functions: plugged in and pulled out, removed and found again, unbound and bound."""

import pytest

from tests.vm.attributes import PCI_SERIAL, pci
from tests.vm.desk import Desk
from tests.vm.hardware import GPU, SOUND, Hardware

GPU_NAMES = ["pci-0000-00-11-0", "pci-0000-00-11-0-display"]
SOUND_NAMES = ["pci-0000-00-16-0"]

FIXED = pytest.mark.parametrize(
    ("address", "names", "driver"),
    [(GPU, GPU_NAMES, "virtio-pci"), (SOUND, SOUND_NAMES, "snd_hda_intel")],
    ids=["GPU", "sound card"],
)
"""What the guest has from its start."""


def test_a_gpu_is_a_render_node_and_a_display(desk: Desk) -> None:
    render, display = (desk.offered[name] for name in GPU_NAMES)
    assert [name for name in desk.offered if name.startswith(GPU_NAMES[0])] == GPU_NAMES
    both = {
        "driver": "virtio-pci",
        "class": "display",
        "classCode": "030000",
        "subsystem": "drm",
        "vendor": "1af4",
        "product": "1050",
        "name": "1af4:1050",
        "modalias": "pci:v00001AF4d00001050sv00001AF4sd00001100bc03sc00i00",
    }
    assert render == pci(GPU, both, {"renderNode": True})
    assert display == pci(GPU, both, {"displayNode": True})


def test_a_sound_card_says_that_it_is_one(desk: Desk) -> None:
    assert desk.offered[SOUND_NAMES[0]] == pci(
        SOUND,
        {
            "driver": "snd_hda_intel",
            "class": "multimedia",
            "classCode": "040300",
            "subsystem": "sound",
            "sound.liken.sh/supportsSound": True,
            "vendor": "8086",
            "product": "2668",
            "name": "8086:2668",
            "modalias": "pci:v00008086d00002668sv00001AF4sd00001100bc04sc03i00",
        },
    )


def test_a_serial_card_is_plugged_in_and_pulled(desk: Desk, hardware: Hardware) -> None:
    device = hardware.pci("pci-serial", 1, chardev=hardware.line())
    desk.until_offered("pci-0000-02-00-0")
    nodes = desk.delivered("0000:02:00.0")
    hardware.pull(device)
    desk.until_gone("pci-0000-02-00-0")
    assert desk.nodes("pci-0000-02-00-0") == [nodes] == [["/dev/ttyS1"]]
    here = {"pci-0000-02-00-0": pci("0000:02:00.0", PCI_SERIAL)}
    assert desk.states("pci-0000-02-") == [{}, here, {}]


@FIXED
def test_a_function_that_is_removed_and_found_again_is_whole_or_not_there(
    desk: Desk, address: str, names: list[str], driver: str
) -> None:
    nodes = desk.delivered(address)
    desk.control.write(f"/sys/bus/pci/devices/{address}/remove", "1")
    desk.until_gone(*names)
    desk.control.write("/sys/bus/pci/rescan", "1")
    desk.until_offered(*names)
    here = {name: desk.base[name] for name in names}
    assert desk.states(names[0]) == [here, {}, here]
    assert desk.delivered(address) == nodes
    assert [desk.why(name) for name in names] == [["gone"]] * len(names)


@FIXED
def test_a_function_that_is_unbound_and_bound_is_whole_or_not_there(
    desk: Desk, address: str, names: list[str], driver: str
) -> None:
    folder = f"/sys/bus/pci/drivers/{driver}"
    desk.control.write(f"{folder}/unbind", address)
    desk.until_gone(*names)
    desk.control.write(f"{folder}/bind", address)
    desk.until_offered(*names)
    here = {name: desk.base[name] for name in names}
    assert desk.states(names[0]) == [here, {}, here]
    assert {why for name in names for why in desk.why(name)} == {
        "no-driver: no kernel driver is bound to it"
    }
