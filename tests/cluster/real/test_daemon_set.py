"""The package as it is installed: its image, and its DaemonSet's pod with just what that is given.

What a container of these rights can do is seen, not assumed: which events it hears, what it can
write, which sockets it can make.
"""

import glob
import os
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from liken_events.core.model import snapshot
from liken_events.core.model.snapshot import Device, Key
from liken_events.simulate.uevents import Uevent
from liken_events.sources.uevent import BUFFER_BYTES
from tests.cluster.real.agent_image import build, what_is_missing
from tests.cluster.real.agents import SLICES, names
from tests.cluster.real.client import RESOURCE, Client, Object
from tests.cluster.real.control_plane import ControlPlane
from tests.cluster.real.daemon_set import DaemonSet
from tests.cluster.real.documented import Documented
from tests.cluster.real.made_up_machine import (
    FULL,
    STICK_CLASS,
    STICK_NODES,
    MadeUpMachine,
    machine,
    numbered,
)
from tests.cluster.real.node import Node
from tests.cluster.real.node_configuration import SOCKET
from tests.cluster.real.pods import Pods
from tests.cluster.real.programs import Programs
from tests.fakes.devices import pci

pytestmark = pytest.mark.timeout(1500)
"""The first test builds the image: 2 min on two free cores."""

IMPORT_SECONDS = 120.0

SLICE_SECONDS = 30.0

NET_ADMIN = 1 << 12
"""From `linux/capability.h`."""

FILTERED = 2
"""`SECCOMP_MODE_FILTER`, from `linux/seccomp.h`."""

WHAT_IT_CAN = """\
import errno, json, os

def outcome(path, flags):
    try:
        descriptor = os.open(path, flags)
    except OSError as error:
        return errno.errorcode[error.errno]
    try:
        os.write(descriptor, b"no such device")
    except OSError as error:
        return errno.errorcode[error.errno]
    return "written"

with open("/proc/self/status") as file:
    status = dict(line.split(":", 1) for line in file)
print(json.dumps({
    "capabilities": [int(status[f"Cap{kind}"], 16) for kind in ("Prm", "Eff", "Bnd")],
    "seccomp": int(status["Seccomp"]),
    "no_new_privileges": int(status["NoNewPrivs"]),
    "root": outcome("/file", os.O_CREAT | os.O_WRONLY),
    "dev": outcome("/host/dev/file", os.O_CREAT | os.O_WRONLY),
    "below_dev": outcome("/host/dev/shm/file", os.O_CREAT | os.O_WRONLY),
    "sys": outcome("/host/sys/file", os.O_CREAT | os.O_WRONLY),
    "records": oct(os.stat("/run/liken-events/records").st_mode),
    "plugins": sorted(os.listdir("/var/lib/kubelet/plugins")),
    "proc": outcome("/host/proc/sys/kernel/hostname", os.O_WRONLY),
    "kvm": outcome("/host/dev/kvm", os.O_RDONLY),
    "drivers_probe": outcome("/host/sys/bus/pci/drivers_probe", os.O_WRONLY),
    "mounts": os.access("/host/proc/1/mountinfo", os.R_OK),
}))
"""
"""Tries what the comments of the manifest say. No driver is asked for a device that there is."""


class KernelFeed:
    """Has the kernel say that a device of this machine changed, whatever it is given to say.

    That is what `udevadm trigger` does too.
    """

    def __init__(self, device: str) -> None:
        self._device = device

    def send(self, uevents: Iterable[Uevent]) -> None:
        Path(self._device, "uevent").write_text("change", encoding="ascii")

    def close(self) -> None:
        """Nothing is open."""


@pytest.fixture(scope="module")
def image() -> str:
    """The archive of the agent's image."""
    missing = what_is_missing()
    if missing is not None:
        pytest.skip(missing)
    return build()


@pytest.fixture(scope="module")
def installed(image: str, programs: Programs, control_plane: ControlPlane) -> Iterator[Node]:
    """A node of its own that has the image: nothing else is registered there."""
    with (
        tempfile.TemporaryDirectory(prefix="installed-") as directory,
        Node(programs, control_plane, directory, "installed") as node,
    ):
        line = [programs.containerd, "import-images", SOCKET, image]
        importing = node.room.start("import-agent", line, {"PATH": os.environ["PATH"]})
        importing.wait(seconds=IMPORT_SECONDS)
        yield node
    control_plane.client.delete(node.path)  # its slices go with it


@pytest.fixture
def udevd(installed: Node) -> Iterator[None]:
    """The node looks as if udevd ran on it. Where it does, nothing is made up."""
    control = Path(f"{installed.room.root}/run/udev/control")
    if control.exists():
        yield
        return
    control.parent.mkdir(exist_ok=True)
    control.touch()
    yield
    control.unlink()


def real_device() -> str:
    """The directory of a PCI function that this machine has and the made-up one has not."""
    taken = {device.key.address for device in machine().devices}
    found = [
        path
        for path in sorted(glob.glob("/sys/bus/pci/devices/*"))
        if os.path.basename(path) not in taken
    ]
    if not found:
        pytest.skip("this machine has no PCI function whose events the kernel could send")
    return os.path.realpath(found[-1])


def serial_card(directory: str) -> Device:
    """A PCI serial card where a real device is, so that the kernel's events are about it."""
    address = os.path.basename(directory)
    node = snapshot.Node(path="/dev/ttyS7", subsystem="tty", major=4, minor=71, place="tty/ttyS7")
    return replace(
        pci(address, "1415:c158", "070006", "serial", nodes=[numbered(node, FULL)]),
        key=Key(bus="pci", address=address),
        path=directory.removeprefix("/sys"),
    )


@pytest.mark.usefixtures("udevd")
def test_its_pod_runs_with_the_rights_that_it_says_and_no_others(
    installed: Node, control_plane: ControlPlane
) -> None:
    """On the real `/sys`, `/proc` and `/dev` of the node."""
    kvm = Path(f"{installed.room.root}/dev/kvm")
    if not kvm.exists():
        os.mknod(kvm, 0o20660, os.makedev(10, 232))
    with DaemonSet(control_plane, installed) as agent:
        for event in ("offer.published", "kubelet.registered", "host_device.registered"):
            agent.until_logged(event)
        # Where udevd runs its events are heard, which is known by a file of its own.
        assert agent.until_logged("uevent.group")["group"] == "udev"
        # All that is asked for, which the kernel doubles (socket(7)), takes NET_ADMIN.
        assert agent.until_logged("uevent.listening")["buffer_bytes"] == 2 * BUFFER_BYTES
        assert agent.run_inside(WHAT_IT_CAN) == {
            "capabilities": [NET_ADMIN] * 3,
            "seccomp": FILTERED,
            "no_new_privileges": 1,
            "root": "EROFS",
            "dev": "EROFS",
            "below_dev": "EROFS",  # another file system, mounted there
            "sys": "EROFS",
            "records": "0o40700",
            "plugins": ["liken.sh"],
            "proc": "EROFS",
            "kvm": "EPERM",  # the cgroup's rules for devices
            "drivers_probe": "ENODEV",  # it was written, and the bus looked
            "mounts": True,
        }
        assert agent.status()["restartCount"] == 0
        assert agent.troubles == []


def test_a_pod_gets_its_device_and_the_kernel_is_heard(
    installed: Node, control_plane: ControlPlane, client: Client, documented: Documented
) -> None:
    """The hardware is made up; the events, the sockets, the specs and the slice are not."""
    directory = real_device()
    card = serial_card(directory)
    with tempfile.TemporaryDirectory(prefix="machine-") as root:
        made_up = MadeUpMachine(
            f"{root}/tree", f"{installed.room.root}/dev", KernelFeed(directory)
        )
        sys = made_up.tree.sys
        places = {"sys": sys, "sys-bus": f"{sys}/bus", "proc": made_up.tree.proc}
        with DaemonSet(control_plane, installed, places) as agent:
            agent.until_logged("kubelet.registered")
            path = f"{SLICES}/{installed.name}-liken.sh"

            def until_offered() -> Object:
                wanted = sorted(device.name for device in made_up.inventory.offered)
                return client.until(
                    path, lambda body: sorted(names(body)) == wanted, seconds=SLICE_SECONDS
                )

            before = until_offered()
            pods = Pods(client, installed, "default")
            pods.create("installed", STICK_CLASS)
            pods.until_running("installed")
            assert pods.until_devices("installed") == STICK_NODES
            pods.until_health("installed", "Healthy")
            claim = pods.claim("installed", STICK_CLASS)
            assert pods.spec(claim) == STICK_NODES

            made_up.change(lambda tree: tree.plug(card))
            assert len(names(until_offered())) == len(names(before)) + 1
            pods.delete("installed")
            assert pods.specs() == []
            assert agent.troubles == []
            client.delete(
                f"{RESOURCE}/namespaces/default/resourceclaims/{claim['metadata']['name']}"
            )
