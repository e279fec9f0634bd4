import json
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest

from liken_events.core.model.device import Reason
from liken_events.core.model.publish import inventory
from liken_events.core.model.recording import to_json
from liken_events.core.model.snapshot import Key, Snapshot, Storage
from tests.fakes.agents import Build
from tests.fakes.devices import drm, i2c, pci, tty, usb
from tests.fakes.machines import desktop, homelab, machine, server
from tests.fakes.typed import at, typed

GPU = "0000:00:02.0"


def explained(snapshot: Snapshot, *words: str) -> list[dict[str, Any]]:
    """What `explain -o json` says of a recorded machine."""
    ran = typed("explain", "-o", "json", "--snapshot=-", *words, stdin=to_json(snapshot))
    assert ran.status == 0, ran.err
    found: list[dict[str, Any]] = json.loads(ran.out)
    return found


@pytest.mark.parametrize("made", [desktop, server, homelab])
def test_every_device_is_explained_in_the_order_of_the_buses(standing: Build, made: Any) -> None:
    tree = standing(made())
    judgements = inventory(tree.snapshot).judgements
    ran = typed("explain", "-o", "json", *at(tree))
    assert (ran.status, ran.err) == (0, "")
    assert json.loads(ran.out) == [
        {
            "bus": judgement.device.key.bus,
            "address": judgement.device.key.address,
            "driver": judgement.device.driver,
            "published": [device.name for device in judgement.published],
            "withheld": judgement.withheld
            and {
                "reason": str(judgement.withheld.reason),
                "detail": judgement.withheld.detail,
            },
        }
        for judgement in judgements
    ]


@pytest.mark.parametrize("made", [desktop, server, homelab])
def test_the_table_says_of_each_device_what_it_publishes_or_why_not(
    standing: Build, made: Any
) -> None:
    tree = standing(made())
    _, *lines = typed("explain", *at(tree)).out.splitlines()
    judgements = inventory(tree.snapshot).judgements
    for line, judgement in zip(lines, judgements, strict=True):
        key = judgement.device.key
        assert line.split()[:3] == [key.bus, key.address, judgement.device.driver or "-"]
        if judgement.withheld is None:
            outcome = ", ".join(device.name for device in judgement.published)
        else:
            outcome = f"{judgement.withheld.reason}: {judgement.withheld.detail}"
        assert line.endswith(f"  {outcome}")


@pytest.mark.parametrize("form", ["table", "json"])
@pytest.mark.parametrize(
    ("wanted", "bus", "address"),
    [
        (GPU, "pci", GPU),
        (f"pci {GPU}", "pci", GPU),
        ("pci-0000-00-02-0", "pci", GPU),
        ("pci-0000-00-02-0-display", "pci", GPU),
        ("usb 1-1.2:1.0", "usb", "1-1.2:1.0"),
        ("usb-1-1-2-1-0", "usb", "1-1.2:1.0"),
        ("usb-1-1-1-0", "usb", "1-1:1.0"),
    ],
)
def test_a_device_may_be_called_by_its_address_its_name_or_the_name_of_a_part(
    standing: Build, form: str, wanted: str, bus: str, address: str
) -> None:
    ran = typed("explain", wanted, "-o", form, *at(standing(desktop())))
    assert (ran.status, ran.err) == (0, "")
    if form == "json":
        assert [(item["bus"], item["address"]) for item in json.loads(ran.out)] == [(bus, address)]
    else:
        assert [line.split()[:2] for line in ran.out.splitlines()[1:]] == [[bus, address]]


@pytest.mark.parametrize("form", ["table", "json"])
@pytest.mark.parametrize("wanted", ["1-1.9:1.0", "usb-1-1-2", "GPU", "pci-0000-00-02-0-x", ""])
def test_a_device_that_is_not_there_is_told_in_one_sentence(
    standing: Build, form: str, wanted: str
) -> None:
    ran = typed("explain", wanted, "-o", form, *at(standing(desktop())))
    assert (ran.status, ran.out) == (1, "")
    assert ran.err == (
        f"liken-events: no PCI or USB device is called '{wanted}'; "
        "'liken-events explain' lists all of them\n"
    )


def reasons(snapshot: Snapshot, *words: str) -> set[str]:
    return {item["withheld"]["reason"] for item in explained(snapshot, *words) if item["withheld"]}


def sticks(numbers: Iterable[int]) -> Snapshot:
    """A machine with these serial adapters."""
    return machine(
        usb(f"1-{n}:1.0", "10c4:ea60", "ff0000", "cp210x", n, nodes=[tty(f"ttyUSB{n}", n)])
        for n in numbers
    )


def test_every_reason_can_be_seen() -> None:
    desk = desktop()
    unknown = replace(desk, storage=Storage(unknown="the mounts could not be read"))
    [stick] = sticks([1]).devices
    upper = replace(stick, key=Key(bus="usb", address="1-1.1.0"), path=f"{stick.path}x")
    seen = reasons(desk, "--ignore=driver=cp210x")
    seen |= reasons(unknown) | reasons(sticks(range(1, 130))) | reasons(machine([stick, upper]))
    assert seen == set(Reason)


def test_a_device_of_which_a_part_is_over_the_limit_says_both() -> None:
    gpus = machine(
        pci(f"0000:{n:02x}:00.0", "1002:73e3", "030000", "amdgpu",
            nodes=[drm(f"card{n}", n), drm(f"renderD{128 + n}", 128 + n), i2c(n)])
        for n in range(43)
    )  # fmt: skip
    name = "pci-0000-2a-00-0"
    [found] = explained(gpus, name)
    assert found["published"] == [name, f"{name}-display"]
    assert found["withheld"]["reason"] == "over-limit"
    assert found["withheld"]["detail"].endswith(f"left out by name: {name}-i2c-dev")
    line = typed("explain", name, "--snapshot=-", stdin=to_json(gpus)).out.splitlines()[1]
    assert f"  {name}, {name}-display, over-limit: a slice holds 128 devices" in line
