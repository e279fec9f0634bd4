"""The whole way on a real kernel: hardware is plugged into a node, pulled out and taken from its
driver, and pods have it, lose it and get it back."""

import os
import shlex
import sys
from collections.abc import Iterator

import pytest

from tests.cluster.real.client import Client
from tests.cluster.real.documented import Documented
from tests.cluster.real.guest.adapter import LISTEN, Adapter
from tests.cluster.real.guest.agent import REGISTERED, GuestAgent
from tests.cluster.real.guest.conftest import Lap
from tests.cluster.real.guest.node import GuestNode
from tests.cluster.real.pods import HAVE, Pods, allocated, life
from tests.vm.gadgets import Gadgets
from tests.vm.hardware import Hardware
from tests.vm.machine import PROJECT

pytestmark = pytest.mark.timeout(600)
"""The first of them waits for all that is started. Beside eight other programs on two cores that
took 220 s."""

CLASS = "serial-adapter"

WAIT = "trap exit TERM; sleep 100000 & wait"

IN_PROJECT = f"cd {shlex.quote(PROJECT)}"

PYTHON_SECONDS = 40.0
"""Bound for a Python in a pod. From this machine's files it starts in 8 s; beside eight other
programs on two cores it took 35."""

LESS = "/usr/bin/setpriv --bounding-set=-net_admin --inh-caps=-net_admin"
"""Begins the command line of a program that may not administer networks."""


@pytest.fixture
def adapter(hardware: Hardware) -> Iterator[Adapter]:
    """A serial adapter, which is not plugged in yet."""
    with Adapter(hardware, 1, "MINE") as made:
        yield made


@pytest.fixture
def other(hardware: Hardware) -> Iterator[Adapter]:
    """One more."""
    with Adapter(hardware, 2, "OTHER") as made:
        yield made


def python(module: str, *arguments: object) -> str:
    """A command line of the guest's Python, for a container that sees `python_paths()` and is in
    the project's directory."""
    return shlex.join([sys.executable, "-m", module, *map(str, arguments)])


def python_paths() -> list[str]:
    """The directories that a container has to see for that."""
    wanted = {"/usr", "/lib", "/lib64", sys.prefix, sys.base_prefix, PROJECT}
    found = [path for path in wanted if os.path.isdir(path)]
    return [path for path in found if not any(path.startswith(f"{above}/") for above in found)]


def run_with(adapter: Adapter, pods: Pods, agent: GuestAgent) -> None:
    """Plugs the adapter in, and has a pod listen to it."""
    adapter.plug()
    agent.until_slice(lambda names: adapter.name in names)
    pods.create("listens", CLASS, script=LISTEN)
    pods.until_running("listens")
    pods.until_said("listens", "opened")


def test_a_pod_waits_for_hardware_and_reads_from_it(
    adapter: Adapter,
    pods: Pods,
    node: GuestNode,
    agent: GuestAgent,
    documented: Documented,
    lap: Lap,
) -> None:
    """Class, template and pod are the document's, but for what its shell runs."""
    pods.apply(
        documented.get("ResourceClaimTemplate", "one-serial-adapter"),
        documented.pod("reader", node.name, LISTEN),
    )
    pods.until_unschedulable("reader")
    lap("pod created: nothing for it")
    adapter.plug()
    agent.until_slice(lambda names: adapter.name in names)
    lap("plugged in: in the slice")
    pods.until_running("reader")
    lap("scheduled, prepared, running")
    claim = pods.claim("reader", "adapter")
    assert allocated(claim) == [adapter.name]
    nodes = agent.desk.numbered(adapter.address)
    assert sorted(path[:11] for path in nodes) == ["/dev/bus/us", "/dev/ttyUSB"]
    pods.until_said("reader", "opened", container="reader")
    assert pods.until_devices("reader", "reader") == nodes == pods.spec(claim)
    lap("it has the adapter's nodes and no others, and opened one")
    adapter.ask("something")
    pods.until_said("reader", "heard something", container="reader")
    lap("it read what was sent, and answered")
    pods.delete("reader")
    lap("deleted")
    assert pods.spec(claim) == {}


def test_a_pod_has_its_adapter_again_after_a_replug_under_other_numbers(
    adapter: Adapter, other: Adapter, pods: Pods, agent: GuestAgent, lap: Lap
) -> None:
    """Another one has its old node meanwhile, which the pod must not get."""
    run_with(adapter, pods, agent)
    pods.until_health("listens", "Healthy")
    claim = pods.claim("listens", CLASS)
    before = agent.desk.numbered(adapter.address)
    lap("running")
    adapter.pull()
    pods.until_health("listens", "Unhealthy", "is not on this machine now")
    lap("pulled out: Unhealthy in the pod's status")
    other.plug()
    agent.until_slice(lambda names: other.name in names)
    taken = agent.desk.numbered(other.address)
    [tty] = [path for path in taken if path.startswith("/dev/tty")]
    assert tty in before
    assert pods.spec(claim).keys().isdisjoint(taken)
    lap("another one is plugged in and has its node")
    adapter.plug()
    pods.until_health("listens", "Unhealthy", "usb-1-1-1-0 came back as /dev/bus/usb/001/")
    lap("plugged in: Unhealthy for a container that was started before")
    after = agent.desk.numbered(adapter.address)
    assert after.keys().isdisjoint(taken)
    assert after.keys().isdisjoint(before)
    pods.until_running("listens", restarts=1)
    pods.until_said("listens", "opened")
    assert pods.until_devices("listens") == after == pods.spec(claim)
    lap("its container runs again, with the new nodes")
    adapter.ask("again")
    pods.until_said("listens", "heard again")


def test_a_pod_whose_adapter_is_gone_for_good(
    adapter: Adapter, other: Adapter, pods: Pods, agent: GuestAgent, lap: Lap
) -> None:
    run_with(adapter, pods, agent)
    claim = pods.claim("listens", CLASS)
    adapter.pull()
    other.plug()
    agent.until_slice(lambda names: adapter.name not in names and other.name in names)
    pods.until_health("listens", "Unhealthy", "is not on this machine now")
    lap("pulled out, and another one has its node")
    failed = pods.until_waiting("listens", "CreateContainerError")
    lap("its container is not started")
    assert 'failed to stat CDI host device "/dev/' in failed
    assert pods.spec(claim).keys().isdisjoint(agent.desk.numbered(other.address))
    pods.delete("listens")
    assert pods.spec(claim) == {}
    lap("deleted")


def test_what_a_program_detached_is_given_back_when_its_pod_ends(
    adapter: Adapter, pods: Pods, agent: GuestAgent, lap: Lap
) -> None:
    """The program uses libusb, in the pod, with nothing but the pod's own usbfs node."""
    adapter.plug()
    agent.until_slice(lambda names: adapter.name in names)
    whole = agent.desk.numbered(adapter.address)
    node = agent.desk.usb_node("1-1")
    bus, number = node.split("/")[-2:]
    detach = python("tests.vm.inside.detach", int(bus), int(number), 0)
    script = f"{HAVE}echo that is all\n{IN_PROJECT}\n{detach} && echo detached\n{WAIT}"
    pods.create("detaches", CLASS, script=script, seen=python_paths())
    pods.until_running("detaches")
    pods.until_said("detaches", "detached", seconds=PYTHON_SECONDS)
    lap("the pod's program has detached the driver")
    agent.until_slice(lambda names: adapter.name not in names)
    claim = pods.claim("detaches", CLASS)
    pods.until_spec(claim, {node: whole[node]})
    pods.until_health("detaches", "Healthy")
    lap("the device has left the slice, and is healthy")
    pods.delete("detaches")
    agent.until_slice(lambda names: adapter.name in names)
    lap("the pod is deleted, and the device is in the slice again")
    assert agent.desk.numbered(adapter.address).keys() == whole.keys()
    assert agent.desk.logged("claim.gave_back", device=adapter.name)


def test_a_radio_is_a_pod_s(gadgets: Gadgets, pods: Pods, agent: GuestAgent, lap: Lap) -> None:
    """Its node comes with the claim. For a socket to the radio the kernel asks for a capability of
    the pod's own, before it finds that this radio, which never answers, is not ready."""
    address = gadgets.plug_radio(2, {"serialnumber": "R1"})
    name = f"usb-{address}-1-0"
    agent.until_slice(lambda names: name in names)
    lap("plugged in: in the slice")
    [hci] = agent.desk.control.names(f"/sys/bus/usb/devices/{address}:1.0/bluetooth")
    take = python("tests.vm.inside.hci", hci.removeprefix("hci"))
    script = f"{HAVE}echo that is all\n{IN_PROJECT}\n{take}\n{LESS} {take}\necho done\n{WAIT}"
    pods.create(
        "takes",
        "bluetooth-radio",
        script=script,
        seen=python_paths(),
        capabilities=["NET_ADMIN"],
    )
    pods.until_running("takes")
    lap("scheduled, prepared, running")
    assert pods.until_devices("takes") == agent.desk.numbered(f"{address}:1.0")
    said = pods.until_said("takes", "done", seconds=PYTHON_SECONDS)
    assert said[-3:-1] == [f"{hci}: Device or resource busy", f"{hci}: Operation not permitted"]
    lap("it has the radio's usbfs node, and tried its socket")


def test_a_kubelet_s_new_start_leaves_a_pod_its_adapter(
    adapter: Adapter, pods: Pods, node: GuestNode, agent: GuestAgent, client: Client, lap: Lap
) -> None:
    run_with(adapter, pods, agent)
    claim = pods.claim("listens", CLASS)
    spec = pods.spec(claim)
    started = life(pods.until_running("listens"))
    before = client.get(agent.slice_path)
    times = len(agent.desk.logged(REGISTERED))
    lap("running")
    node.restart_kubelet()
    lap("the kubelet is ready again")
    agent.until_slice(lambda names: names == agent.base | {adapter.name}, before=before)
    agent.until_logged(REGISTERED, times=times + 1)
    lap("slice and registration are back")
    adapter.ask("still there")
    assert life(pods.until_running("listens")) == started
    assert pods.spec(claim) == spec
    pods.kill("listens")
    pods.until_running("listens", restarts=1)
    pods.until_said("listens", "opened")
    adapter.ask("there again")
    lap("its container was killed, and reads again")
    pods.delete("listens")
    assert pods.spec(claim) == {}
    lap("deleted")
