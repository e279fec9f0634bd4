from dataclasses import replace

import pytest

from liken_events.claim_states import NO_AGENT, ClaimState, claim_states
from liken_events.claims import spec_files_of
from liken_events.cluster.claim_file import ClaimFile
from liken_events.config import Config
from liken_events.core.model.claims import ClaimReference
from liken_events.core.model.prepared import Prepared, PreparedDevice
from liken_events.core.model.publish import Policy
from liken_events.core.model.snapshot import Key, sort_nodes
from liken_events.simulate.tree import MachineTree
from liken_events.sources.looks import Looks
from liken_events.sources.sysfs import Roots
from tests.fakes.agents import NODE, STICK, STICK_NAME, Build
from tests.fakes.claims import claim_body, uid_of
from tests.fakes.machines import machine

UID = "11111111-2222-3333-4444-555555555555"
NODES = sort_nodes([*STICK.nodes, *([] if STICK.bus_node is None else [STICK.bus_node])])
HELD = PreparedDevice(
    name=STICK_NAME,
    key=STICK.key,
    vendor=STICK.vendor,
    product=STICK.product,
    given=NODES,
    nodes=NODES,
)


class Machine:
    """A machine with a stick, on which claims may be prepared."""

    def __init__(self, tree: MachineTree) -> None:
        self.tree = tree
        self.config = Config(
            node_name=NODE,
            proc_root=tree.proc,
            cdi_dir=f"{tree.root}/cdi",
            record_dir=f"{tree.root}/records",
        )
        self._looks = Looks(Roots(sys=tree.sys, dev=tree.dev, proc=tree.proc), Policy())

    def hold(self, device: PreparedDevice, *, name: str = "c", uid: str = UID) -> None:
        """Has a claim prepared, as far as its record says."""
        reference = ClaimReference(namespace="default", name=name, uid=uid)
        spec_files_of(self.config).records.write(Prepared(reference=reference, devices=(device,)))

    def states(self, *files: ClaimFile) -> list[ClaimState]:
        return claim_states(self.config, self._looks, files)


@pytest.fixture
def stand(build: Build) -> Machine:
    return Machine(build(machine([STICK])))


def file(*devices: str, name: str = "c", uid: str | None = None, problem: str = "") -> ClaimFile:
    body = claim_body(*devices, name=name, uid=uid)
    return ClaimFile(
        path=f"/x/{name}.yaml",
        namespace="default",
        name=name,
        uid=uid_of(body),
        body=body,
        problem=problem,
    )


def test_what_is_prepared_is_told_with_its_nodes_now(stand: Machine) -> None:
    stand.hold(HELD)
    (state,) = stand.states()
    assert (state.claim, state.uid, state.state, state.reason) == (
        "default/c", UID, "prepared", "",
    )  # fmt: skip
    (device,) = state.devices
    assert device.cdi_id == f"liken.sh/device={UID}-{STICK_NAME}"
    assert (device.presence, device.trouble) == ("there", "")
    assert device.nodes == tuple(node.path for node in NODES)


def test_a_file_and_its_record_are_one_claim(stand: Machine) -> None:
    stand.hold(HELD)
    assert [state.state for state in stand.states(file(STICK_NAME, uid=UID))] == ["prepared"]


def test_a_record_of_another_claim_of_that_name_is_not_its(stand: Machine) -> None:
    stand.hold(HELD, uid="99999999-2222-3333-4444-555555555555", name="old")
    states = stand.states(file(STICK_NAME, uid=UID))
    assert {state.claim: (state.state, state.reason) for state in states} == {
        "default/c": ("waiting", f"{STICK_NAME} is prepared for the claim default/old"),
        "default/old": ("prepared", ""),
    }


def test_one_device_that_fares_badly_makes_its_claim_unhealthy(stand: Machine) -> None:
    stand.tree.unplug("1-9")
    stand.hold(HELD)
    (state,) = stand.states()
    assert state.state == "unhealthy"
    assert "is not on this machine now" in state.devices[0].trouble


def test_a_file_that_is_broken_says_why_whatever_is_prepared(stand: Machine) -> None:
    stand.hold(HELD)
    (state,) = stand.states(file(STICK_NAME, uid=UID, problem="it is no YAML"))
    assert (state.state, state.reason) == ("broken", "it is no YAML")


@pytest.mark.parametrize(
    ("device", "reason"),
    [
        (STICK_NAME, NO_AGENT),
        ("usb-7-7-1-0", "usb-7-7-1-0 is not on this machine now"),
        ("Usb", "'Usb' in the claim default/c is no device"),
    ],
)
def test_a_claim_that_waits_says_for_what(stand: Machine, device: str, reason: str) -> None:
    (state,) = stand.states(file(device))
    assert (state.state, state.reason) == ("waiting", reason)


def test_records_of_another_boot_do_not_count(stand: Machine) -> None:
    stand.hold(HELD)
    other = replace(stand.config, proc_root="/proc")
    assert claim_states(other, stand._looks, ()) == []


def test_the_state_as_json_has_every_field(stand: Machine) -> None:
    stand.hold(replace(HELD, key=Key(bus="usb", address="7-7:1.0")))
    (state,) = stand.states()
    assert state.to_json() == {
        "claim": "default/c",
        "uid": UID,
        "state": "unhealthy",
        "reason": "",
        "devices": [
            {
                "device": STICK_NAME,
                "cdi": f"liken.sh/device={UID}-{STICK_NAME}",
                "presence": "away",
                "trouble": f"{STICK_NAME} (10c4:ea60) is not on this machine now; "
                "plug it in again",
                "nodes": [],
            }
        ],
    }
