from collections.abc import Mapping
from dataclasses import replace

import pytest

from liken_events.core.model.device import Attribute, Cause, Judgement, Reason, Withheld
from liken_events.core.model.publish import Policy, assemble, inventory, judge
from liken_events.core.model.snapshot import Device, Disk, Key, Node, Snapshot, Storage, Use
from liken_events.core.model.storage import Dependence
from tests.fakes.devices import dp_aux, drm, i2c, pci, scsi_disk, snd, tty, usb

FFFD = "\N{REPLACEMENT CHARACTER}"
GPU = pci(
    "0000:00:01.0/0000:03:00.0",
    "1002:73e3",
    "030000",
    "amdgpu",
    words=("AMD", "Navi 23"),
    nodes=[drm("card0", 0), drm("renderD128", 128), i2c(0), dp_aux(0, "card0-DP-1")],
)
STICK = usb(
    "1-2:1.0",
    "10c4:ea60",
    "ff0000",
    "cp210x",
    5,
    words=("Silicon Labs", "CP2102"),
    serial="0001",
    nodes=[tty("ttyUSB0", 0)],
)
DISK = usb("2-1:1.0", "0781:5581", "080650", "usb-storage", 2, nodes=scsi_disk("", 0, 0, 1))
NOTHING, DEFAULT = Dependence(), Policy()


def judged(device: Device, policy: Policy = DEFAULT) -> Judgement:
    return judge(device, NOTHING, policy)


def attributes(device: Device) -> Mapping[str, Attribute]:
    """Those of the device's first part."""
    found = judged(device).published
    assert found
    return dict(found[0].attributes)


def withheld(device: Device, policy: Policy = DEFAULT) -> Withheld:
    judgement = judged(device, policy)
    assert judgement.published == ()
    assert judgement.withheld is not None
    return judgement.withheld


@pytest.mark.parametrize(
    ("device", "reason", "word"),
    [
        (replace(STICK, driver=None), Reason.NO_DRIVER, "driver"),
        (replace(GPU, driver=None), Reason.NO_DRIVER, "driver"),
        (replace(STICK, driver="hub"), Reason.BUS_STRUCTURE, "peripherals"),
        (replace(STICK, driver="usb"), Reason.BUS_STRUCTURE, "peripherals"),
        (replace(GPU, driver="pcieport"), Reason.BUS_STRUCTURE, "peripherals"),
        (replace(STICK, nodes=()), Reason.NO_NODES, "cp210x"),
        (replace(GPU, nodes=()), Reason.NO_NODES, "amdgpu"),
        (replace(STICK, driver="btusb", nodes=(), bus_node=None), Reason.NO_NODES, "btusb"),
        (replace(STICK, driver="x\x1b[31m", nodes=()), Reason.NO_NODES, "x\\x1b[31m"),
    ],
)
def test_what_a_claim_could_not_use_is_withheld(device: Device, reason: Reason, word: str) -> None:
    found = withheld(device)
    assert found.reason == reason
    assert word in found.detail


def test_a_radio_is_published_for_its_usb_node_alone() -> None:
    radio = replace(STICK, driver="btusb", nodes=())
    (device,) = judged(radio).published
    assert [node.path for node in device.nodes] == ["/dev/bus/usb/001/005"]
    assert not device.shareable
    assert "subsystem" not in dict(device.attributes)


@pytest.mark.parametrize("path", ["/dev/sda", "/dev/sda1"])
def test_a_disk_in_use_is_withheld_whole(path: str) -> None:
    disks = (
        Disk(name="sda", number="8:0"),
        Disk(name="sda1", number="8:1", whole="sda"),
    )
    uses = (Use(what="/mnt", fstype="ext4", source=path),)
    found = inventory(
        Snapshot(devices=(DISK,), storage=Storage(uses=uses, disks=disks))
    ).judgements
    assert found == (
        Judgement(
            device=DISK,
            withheld=Withheld(reason=Reason.IN_USE, detail=f"{path} is mounted on /mnt"),
        ),
    )
    assert inventory(Snapshot(devices=(DISK,), storage=Storage(disks=disks))).offered


@pytest.mark.parametrize(
    ("pattern", "ignored"),
    [
        ("1-2:1.0", True),
        ("1-2:*", True),
        ("usb-1-2-1-0", True),
        ("usb-*", True),
        ("10c4:ea60", True),
        ("10c4:*", True),
        ("driver=cp210x", True),
        ("driver=cp*", True),
        ("*", True),
        ("1-2", False),
        ("cp210x", False),
        ("10C4:EA60", False),
        ("pci-*", False),
        ("", False),
    ],
)
def test_the_configuration_may_ignore_by_address_name_ids_or_driver(
    pattern: str, ignored: bool
) -> None:
    policy = Policy(ignore=("nothing", pattern))
    if ignored:
        expected = Withheld(reason=Reason.IGNORED, detail=f"the configuration ignores '{pattern}'")
        assert withheld(STICK, policy) == expected
    else:
        assert judged(STICK, policy) == judged(STICK)


def test_every_part_says_the_same_of_the_whole_and_what_it_is_itself() -> None:
    found = judged(GPU).published
    assert [device.name for device in found] == [
        "pci-0000-03-00-0",
        "pci-0000-03-00-0-display",
        "pci-0000-03-00-0-drm-dp-aux-dev",
        "pci-0000-03-00-0-i2c-dev",
    ]
    assert [device.shareable for device in found] == [True, False, False, False]
    own: list[dict[str, Attribute]] = [
        {"subsystem": "drm", "renderNode": True},
        {"subsystem": "drm", "displayNode": True},
        {"subsystem": "drm_dp_aux_dev"},
        {"subsystem": "i2c-dev"},
    ]
    for device, expected in zip(found, own, strict=True):
        assert device.key == GPU.key
        assert list(device.attributes) == sorted(device.attributes)
        assert dict(device.attributes) == {
            "bus": "pci",
            "address": "0000:03:00.0",
            "driver": "amdgpu",
            "class": "display",
            "classCode": "030000",
            "name": "AMD Navi 23",
            "modalias": "pci:v00001002d000073E3sv00001043sd00008694bc03sc00i00",
            "vendor": "1002",
            "product": "73e3",
            **expected,
        }


def test_a_usb_interface_says_what_its_device_says() -> None:
    assert attributes(STICK) == {
        "bus": "usb",
        "address": "1-2:1.0",
        "driver": "cp210x",
        "class": "vendor-specific",
        "classCode": "ff",
        "name": "Silicon Labs CP2102",
        "modalias": "usb:v10C4pEA60d0100dc00dsc00dp00icFFisc00ip00in00",
        "serial": "0001",
        "vendor": "10c4",
        "product": "ea60",
        "subsystem": "tty",
    }


def test_a_sound_card_says_so_in_a_domain_of_its_own() -> None:
    sound = pci(
        "0000:00:1f.3", "8086:a170", "040300", "snd_hda_intel", nodes=[snd(0, "controlC0", 0)]
    )
    found = attributes(sound)
    assert found["subsystem"] == "sound"
    assert found["sound.liken.sh/supportsSound"] is True


def test_what_the_hardware_lacks_is_absent() -> None:
    bare = Device(
        key=Key(bus="pci", address="0000:00:05.0"),
        path="/devices/pci0000:00/0000:00:05.0",
        driver="odd",
        nodes=(Node(path="/dev/odd", subsystem=None),),
    )
    assert attributes(bare) == {"bus": "pci", "address": "0000:00:05.0", "driver": "odd"}


@pytest.mark.parametrize(
    ("bus", "maker", "model", "vendor", "product", "name"),
    [
        ("pci", "Intel", "UHD 620", "8086", "5917", "Intel UHD 620"),
        ("pci", "Intel", None, "8086", "5917", "Intel 5917"),
        ("pci", None, None, "8086", "5917", "8086:5917"),
        ("pci", None, "UHD 620", "8086", "5917", "8086:5917"),
        ("pci", None, None, "8086", None, None),
        ("pci", None, None, None, "5917", None),
        ("pci", "Intel", None, "8086", None, "Intel"),
        ("usb", "Logitech", "C920", "046d", "082d", "Logitech C920"),
        ("usb", "Logitech", None, "046d", "082d", "Logitech"),
        ("usb", None, "C920", "046d", "082d", "C920"),
        ("usb", None, None, "046d", "082d", None),
        ("usb", "\0\0", " C920 \0", "046d", "082d", "C920"),
        ("usb", "  ", "\0", "046d", "082d", None),
    ],
)
def test_the_name_is_in_words_as_far_as_they_are_known(
    bus: str,
    maker: str | None,
    model: str | None,
    vendor: str | None,
    product: str | None,
    name: str | None,
) -> None:
    device = GPU if bus == "pci" else STICK
    odd = replace(device, maker=maker, model=model, vendor=vendor, product=product)
    assert attributes(odd).get("name") == name


@pytest.mark.parametrize(
    ("field", "raw", "attribute", "value"),
    [
        ("serial", "00008020000955DC1132002E" + "\0" * 16, "serial", "00008020000955DC1132002E"),
        ("serial", "\0" * 16, "serial", None),
        ("serial", "   ", "serial", None),
        ("serial", "\x06?\ufffd\ufffdu\x06\x04", "serial", f"{FFFD}?\ufffd\ufffdu{FFFD}{FFFD}"),
        ("serial", "\x01\x1b[31m\r\n\x7f\u200fA", "serial", f"{FFFD * 2}[31m{FFFD * 4}A"),
        ("serial", "02\x92", "serial", f"02{FFFD}"),
        ("serial", "9" * 200, "serial", "9" * 64),
        ("model", "BCM2045\ufffd", "name", "Silicon Labs BCM2045\ufffd"),
        ("model", "Webcam\0", "name", "Silicon Labs Webcam"),
        ("model", "x" * 67, "name", "Silicon Labs " + "x" * 51),
        ("model", "é" * 40, "name", "Silicon Labs " + "é" * 25),
        ("maker", "M" * 126, "name", "M" * 64),
        ("modalias", "usb:" + "v" * 60, "modalias", "usb:" + "v" * 60),
        ("modalias", "usb:" + "v" * 61, "modalias", None),
        ("modalias", "usb:" + "é" * 31, "modalias", None),
        ("driver", "d" * 65, "driver", None),
        ("vendor", "v" * 65, "vendor", None),
        ("class_code", "c" * 65, "classCode", None),
    ],
)
def test_free_text_is_cut_and_an_identifier_that_does_not_fit_is_left_out(
    field: str, raw: str, attribute: str, value: str | None
) -> None:
    assert attributes(replace(STICK, **{field: raw})).get(attribute) == value  # type: ignore[arg-type]


def test_a_subsystem_that_does_not_fit_is_left_out() -> None:
    node = Node(path="/dev/odd", subsystem="s" * 65)
    assert "subsystem" not in attributes(replace(STICK, nodes=(node,)))


def stick(number: int) -> Device:
    return usb(
        f"1-{number}:1.0", "10c4:ea60", "ff0000", "cp210x", 2, nodes=[tty(f"ttyUSB{number}", 0)]
    )


@pytest.mark.parametrize("count", [127, 128, 129, 300])
def test_a_slice_holds_128_devices_and_the_rest_is_left_out_by_name(count: int) -> None:
    machine = Snapshot(devices=tuple(stick(number) for number in range(count)))
    found = inventory(machine)
    names = sorted(f"usb-1-{number}-1-0" for number in range(count))
    assert [device.name for device in found.offered] == names[:128]
    lost = {}
    for judgement in found.judgements:
        if judgement.withheld is None:
            assert judgement.published
        else:
            assert judgement.withheld.reason == Reason.OVER_LIMIT
            assert judgement.published == ()
            lost[judgement.device.key.address] = judgement.withheld.detail
    assert len(lost) == max(0, count - 128)
    for name in names[128:]:
        assert any(detail.endswith(f": {name}") for detail in lost.values())
    assert len(inventory(machine, Policy(limit=None)).offered) == count


def test_a_device_may_lose_a_part_to_the_limit() -> None:
    found = inventory(Snapshot(devices=(GPU,)), Policy(limit=2))
    (judgement,) = found.judgements
    assert [device.name for device in found.offered] == [
        "pci-0000-03-00-0",
        "pci-0000-03-00-0-display",
    ]
    assert judgement.published == found.offered
    assert judgement.withheld == Withheld(
        reason=Reason.OVER_LIMIT,
        detail="a slice holds 2 devices; left out by name: "
        "pci-0000-03-00-0-drm-dp-aux-dev, pci-0000-03-00-0-i2c-dev",
    )


def test_of_two_devices_with_one_name_the_first_is_offered() -> None:
    twins = [replace(STICK, key=Key(bus="usb", address=address)) for address in ("A\x1b", "a\x1b")]
    found = inventory(Snapshot(devices=tuple(twins)))
    first, second = found.judgements
    assert len(found.offered) == 1
    assert first.published == found.offered
    assert first.withheld is None
    assert second.published == ()
    assert second.withheld == Withheld(
        reason=Reason.SAME_NAME, detail=f"{found.offered[0].name} is the name of usb A\\x1b too"
    )


def test_devices_with_one_serial_number_or_one_usb_node_are_devices_of_their_own() -> None:
    twin = replace(STICK, key=Key(bus="usb", address="2-2:1.0"))
    port = replace(STICK, key=Key(bus="usb", address="1-2:1.1"))
    found = inventory(Snapshot(devices=(STICK, port, twin)))
    assert [device.name for device in found.offered] == [
        "usb-1-2-1-0",
        "usb-1-2-1-1",
        "usb-2-2-1-0",
    ]


def test_an_inventory_is_put_together_from_judgements_in_any_order() -> None:
    causes = {STICK.key: Cause(text="bind 1-2:1.0", at=2.0)}
    judgements = [judged(device) for device in (STICK, GPU, replace(DISK, driver=None))]
    found = assemble(judgements, DEFAULT, causes)
    assert found == inventory(Snapshot(devices=(replace(DISK, driver=None), GPU, STICK)))
    assert [judgement.device.key.address for judgement in found.judgements] == [
        "0000:03:00.0",
        "1-2:1.0",
        "2-1:1.0",
    ]
    assert found.causes == causes
    assert found.causes is not causes


def test_a_machine_without_devices_offers_nothing() -> None:
    found = inventory(Snapshot())
    assert (found.offered, found.judgements, found.causes) == ((), (), {})
