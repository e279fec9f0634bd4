"""The whole way of hardware into pods, as the documents tell it: slices of the agent, scheduler,
kubelet, containerd, and what is in the container then."""

from tests.cluster.real.documented import Documented
from tests.cluster.real.made_up_machine import (
    ADAPTER_NAME,
    ADAPTER_NODES,
    KVM,
    MOVED,
    MOVED_NODES,
    RENUMBERED,
    RENUMBERED_NODES,
    STICK_CLASS,
    STICK_NAME,
    STICK_NODES,
    MadeUpMachine,
)
from tests.cluster.real.node import Node
from tests.cluster.real.pods import SAY, SLEEP, Pods, allocated

GPU = "pci-0000-00-02-0"

OF_CLASSES = {
    "serial-adapter": {ADAPTER_NAME},  # the other one has the only serial number that is asked for
    STICK_CLASS: {STICK_NAME},
    "gpu-render": {GPU},
    "gpu-display": {f"{GPU}-display"},
    "sound-card": {"pci-0000-00-1f-3"},
    "bluetooth-radio": {"usb-1-14-1-0"},
    "ups": {"usb-1-3-1-0"},
}
"""What the machine has of each class of the document."""


def test_the_documented_pod_reads_from_its_adapter_and_has_no_other(
    pods: Pods, node: Node, documented: Documented
) -> None:
    shell = documented.get("Pod", "reader")["spec"]["containers"][0]["command"][2]
    pods.apply(
        documented.get("ResourceClaimTemplate", "one-serial-adapter"),
        documented.pod("reader", node.name, SAY + shell),
    )
    pods.until_running("reader")
    claim = pods.claim("reader", "adapter")
    [device] = allocated(claim)
    nodes = {ADAPTER_NAME: ADAPTER_NODES, STICK_NAME: STICK_NODES}[device]
    assert pods.spec(claim) == nodes
    assert pods.until_devices("reader", "reader") == nodes
    [_, path] = sorted(nodes)
    assert f"read {path} 4" in pods.said("reader", "reader")
    pods.until_said("reader", "crw", container="reader")  # of the document's own command
    pods.delete("reader")
    assert pods.spec(claim) == {}


def test_a_container_that_is_restarted_after_a_replug_has_the_new_node(
    pods: Pods, machine: MadeUpMachine
) -> None:
    """Also under the same path, of which containerd remembers the numbers."""
    pods.create("flaps", STICK_CLASS)
    pods.until_running("flaps")
    claim = pods.claim("flaps", STICK_CLASS)
    assert pods.until_devices("flaps") == STICK_NODES
    machine.unplug()
    machine.plug(RENUMBERED)
    pods.until_spec(claim, RENUMBERED_NODES)
    pods.until_health("flaps", "Unhealthy", "/dev/ttyUSB9, which is dead")
    pods.kill("flaps")
    pods.until_running("flaps", restarts=1)
    assert pods.until_devices("flaps") == RENUMBERED_NODES
    assert "read /dev/ttyUSB9 4" in pods.said("flaps")


def test_a_device_that_leaves_and_comes_back(pods: Pods, machine: MadeUpMachine) -> None:
    """Its health is in the pod's status; a container that is started meanwhile fails, and runs by
    itself when the device is back."""
    pods.create("waits", STICK_CLASS)
    pods.until_running("waits")
    claim = pods.claim("waits", STICK_CLASS)
    pods.until_health("waits", "Healthy")
    machine.unplug()
    pods.until_health("waits", "Unhealthy", "is not on this machine now")
    pods.until_spec(claim, dict.fromkeys(STICK_NODES))
    machine.plug()
    pods.until_health("waits", "Healthy")
    assert pods.spec(claim) == STICK_NODES

    machine.unplug()
    pods.until_health("waits", "Unhealthy")
    pods.kill("waits")
    failed = pods.until_waiting("waits", "CreateContainerError")
    assert 'failed to stat CDI host device "/dev/' in failed
    machine.plug(MOVED)
    pods.until_running("waits", restarts=1)
    assert pods.until_devices("waits") == MOVED_NODES
    assert "read /dev/ttyUSB5 4" in pods.said("waits")


def test_a_render_node_is_shared(pods: Pods) -> None:
    for name in ("first", "second"):
        pods.create(name, "gpu-render")
    for name in ("first", "second"):
        pods.until_running(name)
        assert allocated(pods.claim(name, "gpu-render")) == [GPU]
        assert pods.until_devices(name) == {"/dev/dri/renderD128": (226, 128)}


def test_a_display_is_for_one(pods: Pods) -> None:
    pods.create("shows", "gpu-display")
    pods.until_running("shows")
    pods.create("queues", "gpu-display")
    pods.until_unschedulable("queues")
    pods.delete("shows")
    pods.until_running("queues")
    assert pods.until_devices("queues") == {"/dev/dri/card0": (226, 0)}


def test_a_program_has_both_parts_of_one_card(
    pods: Pods, node: Node, documented: Documented
) -> None:
    body = documented.pod("reader", node.name, SLEEP)
    body["spec"]["resourceClaims"][0]["resourceClaimTemplateName"] = "one-card"
    pods.apply(documented.get("ResourceClaimTemplate", "one-card"), body)
    pods.until_running("reader")
    claim = pods.claim("reader", "adapter")
    assert sorted(allocated(claim)) == [GPU, f"{GPU}-display"]
    assert pods.until_devices("reader", "reader") == {
        "/dev/dri/card0": (226, 0),
        "/dev/dri/renderD128": (226, 128),
    }


def test_every_documented_class_means_what_it_says(
    pods: Pods, machine: MadeUpMachine, documented: Documented
) -> None:
    """One pod has a claim of each. The stick is a serial adapter too: who gets which has to be
    found out."""
    assert sorted(documented.names("DeviceClass")) == sorted(OF_CLASSES)
    pods.create("rich", *OF_CLASSES)
    pods.until_running("rich")
    nodes = {device.name: device.nodes for device in machine.inventory.offered}
    expected: dict[str, tuple[int, int]] = {}
    for name, meant in OF_CLASSES.items():
        [device] = allocated(pods.claim("rich", name))
        assert device in meant
        expected |= {each.path: (each.major, each.minor) for each in nodes[device]}
    assert pods.until_devices("rich") == expected


def test_the_documented_virtual_machine_has_kvm(
    pods: Pods, node: Node, documented: Documented
) -> None:
    shell = documented.get("Pod", "virtual-machine")["spec"]["containers"][0]["command"][2]
    pods.apply(documented.pod("virtual-machine", node.name, SAY + shell))
    pods.until_running("virtual-machine")
    assert pods.until_devices("virtual-machine", "machine") == {"/dev/kvm": KVM}
    pods.until_said("virtual-machine", "crw", container="machine")
