import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from liken_events.core.model.publish import inventory
from liken_events.core.model.recording import to_json
from liken_events.core.model.snapshot import Snapshot
from liken_events.core.plan.slice_body import DRIVER, MAX_DEVICES
from liken_events.core.plan.slices import CreateSlice, Observed, plan
from tests.fakes.agents import Build
from tests.fakes.apistate import State
from tests.fakes.devices import tty, usb
from tests.fakes.machines import desktop, empty_vm, homelab, machine, server
from tests.fakes.typed import Ran, at, typed

MACHINES = [desktop, server, homelab, empty_vm]


def slices(ran: Ran) -> list[dict[str, Any]]:
    """The objects of a YAML stream."""
    return [body for body in yaml.safe_load_all(ran.out) if body is not None]


def crowd(count: int) -> Snapshot:
    """A machine with so many serial adapters."""
    return machine(
        usb(f"1-{n}:1.0", "10c4:ea60", "ff0000", "cp210x", n, nodes=[tty(f"ttyUSB{n}", n)])
        for n in range(1, count + 1)
    )


@pytest.fixture
def crowd_file(tmp_path: Path) -> str:
    """A recording of one device more than a slice holds."""
    path = tmp_path / "crowd.json"
    path.write_text(to_json(crowd(MAX_DEVICES + 1)), "utf-8")
    return str(path)


@pytest.mark.parametrize("made", MACHINES)
def test_the_table_has_a_line_for_each_offered_device_and_one_that_counts(
    standing: Build, made: Any
) -> None:
    tree = standing(made())
    offered = inventory(tree.snapshot).offered
    ran = typed("inventory", *at(tree))
    heading, *lines = ran.out.splitlines() if offered else ["NAME", *ran.out.splitlines()]
    assert heading.split()[0] == "NAME"
    assert [line.split()[0] for line in lines[: len(offered)]] == [d.name for d in offered]
    assert lines[len(offered)].startswith(f"{len(offered)} devices offered, ")
    assert (ran.status, ran.err) == (0, "")


def test_json_says_of_a_device_what_it_is_called_what_it_delivers_and_what_it_is(
    standing: Build,
) -> None:
    ran = typed("inventory", "-o", "json", *at(standing(homelab())))
    assert json.loads(ran.out)[0] == {
        "name": "usb-1-1-1-0",
        "nodes": ["/dev/bus/usb/001/002", "/dev/ttyUSB0"],
        "shareable": False,
        "attributes": {
            "address": "1-1:1.0",
            "bus": "usb",
            "class": "vendor-specific",
            "classCode": "ff",
            "driver": "cp210x",
            "modalias": "usb:v10C4pEA60d0100dc00dsc00dp00icFFisc00ip00in00",
            "name": "Silicon Labs CP2102 USB to UART Bridge Controller",
            "product": "ea60",
            "serial": "0001",
            "subsystem": "tty",
            "vendor": "10c4",
        },
    }


@pytest.mark.parametrize("made", MACHINES)
def test_json_is_the_offer_in_the_order_of_names(standing: Build, made: Any) -> None:
    tree = standing(made(), clutter=True)
    ran = typed("inventory", "-o", "json", *at(tree))
    found = json.loads(ran.out)
    assert [item["name"] for item in found] == sorted(item["name"] for item in found)
    assert found == [
        {
            "name": device.name,
            "nodes": [node.path for node in device.nodes],
            "shareable": device.shareable,
            "attributes": dict(device.attributes),
        }
        for device in inventory(tree.snapshot).offered
    ]


@pytest.mark.parametrize("node", ["n1", "worker-1.example.com", "n" * 240])
def test_the_slice_is_what_the_agent_would_create_and_a_server_would_take(
    standing: Build, node: str
) -> None:
    tree = standing(server())
    ran = typed("inventory", "-o", "slice", "--node-name", node, *at(tree))
    [body] = slices(ran)
    [change] = plan(Observed(node=node), inventory(tree.snapshot).offered)
    assert isinstance(change, CreateSlice)
    assert body == change.body
    assert body["metadata"]["name"] == f"{node}-{DRIVER}"
    assert len(body["metadata"]["name"]) <= 253
    assert body["spec"]["nodeName"] == body["spec"]["pool"]["name"] == node
    assert State().create(body)["spec"] == body["spec"]


def test_an_offer_that_one_slice_does_not_hold_is_cut_or_divided(crowd_file: str) -> None:
    words = ("inventory", "-o", "slice", "--node-name=n1", f"--snapshot={crowd_file}")
    [cut] = slices(typed(*words))
    divided = slices(typed(*words, "--divide-pool"))
    assert len(cut["spec"]["devices"]) == MAX_DEVICES
    assert sorted(len(body["spec"]["devices"]) for body in divided) == [1, MAX_DEVICES]
    assert len({body["metadata"]["name"] for body in divided}) == 2
    assert [body["spec"]["pool"]["resourceSliceCount"] for body in divided] == [2, 2]


def test_a_machine_with_nothing_to_offer_has_no_slice_and_a_hint(standing: Build) -> None:
    tree = standing(empty_vm())
    ran = typed("inventory", "-o", "slice", *at(tree))
    assert ran.out == "# nothing is offered, so there is no slice\n"
    assert (ran.status, slices(ran)) == (0, [])
    assert typed("inventory", "-o", "json", *at(tree)).out == "[]\n"
    assert "'liken-events explain' says why" in typed("inventory", *at(tree)).out


@pytest.mark.parametrize("made", MACHINES)
@pytest.mark.parametrize("form", ["table", "json", "slice"])
def test_a_recorded_machine_looks_like_the_machine_itself(
    standing: Build, tmp_path: Path, made: Any, form: str
) -> None:
    tree, path = standing(made()), str(tmp_path / "machine.json")
    assert typed("snapshot", "--with-serials", "-o", path, *at(tree)).status == 0
    words = ("inventory", "-o", form, "--node-name=n1")
    direct = typed(*words, *at(tree))
    assert typed(*words, "--snapshot", path) == direct
    assert typed(*words, "--snapshot", "-", stdin=Path(path).read_text("utf-8")) == direct


def test_a_recorded_machine_offers_the_same_without_its_serial_numbers(standing: Build) -> None:
    tree = standing(homelab())
    text = typed("snapshot", *at(tree)).out
    found = json.loads(typed("inventory", "-o", "json", "--snapshot=-", stdin=text).out)
    direct = json.loads(typed("inventory", "-o", "json", *at(tree)).out)
    serials = {item["attributes"].pop("serial", None) for item in found}
    assert all(serial is None or serial.startswith("serial-") for serial in serials)
    for item in direct:
        item["attributes"].pop("serial", None)
    assert found == direct


def looked_at(standing: Build, recorded: bool) -> tuple[list[str], str]:
    """Flags and standard input to look at the home-lab node, itself or recorded."""
    tree = standing(homelab())
    return (["--snapshot=-"], typed("snapshot", *at(tree)).out) if recorded else (at(tree), "")


def names(ran: Ran) -> set[str]:
    return {item["name"] for item in json.loads(ran.out)}


@pytest.mark.parametrize("recorded", [False, True])
@pytest.mark.parametrize("path", ["/dev/sdb", "/dev/sdb1"])
def test_a_protected_disk_is_not_offered(standing: Build, recorded: bool, path: str) -> None:
    flags, text = looked_at(standing, recorded)
    free = names(typed("inventory", "-o", "json", *flags, stdin=text))
    left = names(typed("inventory", "-o", "json", *flags, "--protect", path, stdin=text))
    assert free - left == {"usb-2-2-1-0"}
    ran = typed("explain", "2-2:1.0", "-o", "json", *flags, "--protect", path, stdin=text)
    assert json.loads(ran.out)[0]["withheld"] == {
        "reason": "in-use",
        "detail": f"{path} is protected by the configuration",
    }


@pytest.mark.parametrize("recorded", [False, True])
@pytest.mark.parametrize(
    ("pattern", "lost"),
    [
        ("1-3:1.0", {"usb-1-3-1-0"}),
        ("usb-1-4-*", {"usb-1-4-1-0", "usb-1-4-1-1"}),
        ("10c4:*", {"usb-1-1-1-0", "usb-1-2-1-0"}),
        ("driver=usbhid", {"usb-1-3-1-0"}),
    ],
)
def test_an_ignored_device_is_not_offered(
    standing: Build, recorded: bool, pattern: str, lost: set[str]
) -> None:
    flags, text = looked_at(standing, recorded)
    free = names(typed("inventory", "-o", "json", *flags, stdin=text))
    left = names(typed("inventory", "-o", "json", *flags, "--ignore", pattern, stdin=text))
    assert free - left == lost
