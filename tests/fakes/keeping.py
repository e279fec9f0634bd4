"""A keeper of claims on a made-up machine: claims in memory, specs and records in real files."""

import errno
import os
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from liken_events.core.model.claims import ClaimReference
from liken_events.core.model.device import Cause, Inventory
from liken_events.core.model.prepared import NO_ALIASES, Aliases
from liken_events.core.model.publish import Policy, inventory
from liken_events.core.model.snapshot import Key
from liken_events.latest import Latest
from liken_events.node_watch import NodeWatch
from liken_events.simulate.tree import MachineTree
from liken_events.sinks.cdi import ClaimKeeper
from liken_events.sinks.claim_reader import ClaimReader
from liken_events.sinks.holdings import Holdings
from liken_events.sinks.spec_files import SpecFiles
from liken_events.sinks.spec_writer import SpecWriter
from liken_events.sinks.usb_drivers import UsbDrivers
from liken_events.sources.looks import Looks
from liken_events.sources.sysfs import Roots
from tests.fakes.claims import NODE, Specs, claim_body, uid_of
from tests.fakes.cluster import FakeCluster
from tests.fakes.devices import tty, usb

STICK = usb("1-9:1.0", "10c4:ea60", "ff0000", "cp210x", 12, serial="Z1", nodes=[tty("ttyUSB9", 9)])
STICK_NAME = "usb-1-9-1-0"
BUS = ("/dev/bus/usb/001/012", "c", 189, 11)
TTY = ("/dev/ttyUSB9", "c", 188, 9)

OTHER = usb(
    "1-8:1.0", "0403:6001", "ff0000", "ftdi_sio", 3, serial="Z2", nodes=[tty("ttyUSB8", 8)]
)
OTHER_NAME = "usb-1-8-1-0"

NOWHERE = "/dev/liken.sh/"


def roots(tree: MachineTree) -> Roots:
    """Where a made-up machine is."""
    return Roots(sys=tree.sys, dev=tree.dev, proc=tree.proc, pci_ids=tree.pci_ids)


class WatchedLooks(Looks):
    """Looks that are counted, and that can fail, hang, and meet a change.

    Attributes:
        looked: the slots that were looked at, oldest first.
        failing: slots that cannot be looked at.
        gates: looks at these slots end only when the event is set.
        before, after: called around each look.
    """

    def __init__(self, tree: MachineTree) -> None:
        super().__init__(roots(tree), Policy())
        self.looked: list[Key] = []
        self.failing: set[Key] = set()
        self.gates: dict[Key, threading.Event] = {}
        self.before: Callable[[], object] = lambda: None
        self.after: Callable[[], object] = lambda: None

    def look(self, key: Key) -> Any:
        self.looked.append(key)
        self.before()
        if key in self.gates:
            assert self.gates[key].wait(30)
        if key in self.failing:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        found = super().look(key)
        self.after()
        return found


class Keeping:
    """A keeper and all that it works with.

    Args:
        tree: the machine.
        root: where specs and records are; a second keeper on the same root is one that was
            started anew.
        cluster: the claims' home.
        boot: id of the boot.
        aliases: models that are one.

    Attributes:
        cdi, records: the directories.
        specs: the specs as a runtime reads them.
        looks, files, writer, holdings, keeper, nodes: the parts.
        inventories: what the loop found; see `look`.
        unsettled: what the loop waits for.
    """

    def __init__(
        self,
        tree: MachineTree,
        root: Path | str,
        *,
        cluster: FakeCluster | None = None,
        boot: str = "boot-1",
        aliases: Aliases = NO_ALIASES,
    ) -> None:
        self.tree, self.root, self.boot, self.aliases = tree, root, boot, aliases
        self.cluster = FakeCluster() if cluster is None else cluster
        self.cdi, self.records = os.path.join(root, "cdi"), os.path.join(root, "records")
        self.specs = Specs(self.cdi)
        self.inventories: Latest[Inventory] = Latest()
        self.unsettled: frozenset[Key] = frozenset()
        self.nodes = NodeWatch()
        self.looks = WatchedLooks(tree)
        self.files = SpecFiles(cdi=self.cdi, records=self.records, boot=boot)
        self.writer = SpecWriter(files=self.files, looks=self.looks, aliases=aliases)
        self.holdings = Holdings(files=self.files, writer=self.writer, nodes=self.nodes)
        self.keeper = ClaimKeeper(
            node=NODE,
            holdings=self.holdings,
            reader=ClaimReader(self.cluster),
            drivers=UsbDrivers(tree.sys, self.looks, aliases),
            inventories=self.inventories,
            nodes=self.nodes,
            unsettled=lambda: self.unsettled,
        )

    def anew(self, *, boot: str | None = None) -> "Keeping":
        """The keeper after a restart of the agent; nothing is restored yet."""
        return Keeping(
            self.tree,
            self.root,
            cluster=self.cluster,
            boot=self.boot if boot is None else boot,
            aliases=self.aliases,
        )

    def look(self, *causes: tuple[Key, float]) -> Inventory:
        """The loop finds the machine as it is; `causes` are the slots of which it heard, and
        when."""
        found = inventory(self.tree.snapshot)
        for key, at in causes:
            found.causes[key] = Cause(text="test", at=at)
        self.inventories.set(found)
        return found

    async def refresh(self) -> bool:
        """The loop finds the machine as it is, and the specs follow."""
        return await self.holdings.refresh(self.look())

    def claim(self, *devices: str, **more: Any) -> ClaimReference:
        """A claim to which these devices are allocated; not prepared yet."""
        more.setdefault("name", f"c{len(self.cluster.claims)}")
        body = claim_body(*devices, **more)
        metadata = body["metadata"]
        self.cluster.claims[metadata["namespace"], metadata["name"]] = body
        return ClaimReference(
            namespace=metadata["namespace"], name=metadata["name"], uid=uid_of(body)
        )

    def body(self, reference: ClaimReference) -> dict[str, Any]:
        """The claim's object, to be changed."""
        found = self.cluster.claims[reference.namespace, reference.name]
        assert isinstance(found, dict)
        return found

    def delete(self, reference: ClaimReference) -> None:
        """The claim's object is deleted."""
        del self.cluster.claims[reference.namespace, reference.name]

    async def prepared(self, *devices: str, **more: Any) -> ClaimReference:
        """A claim that is prepared."""
        reference = self.claim(*devices, **more)
        outcome = await self.keeper.prepare(reference)
        assert isinstance(outcome, tuple), outcome
        return reference

    def nodes_of(self, reference: ClaimReference, device: str = STICK_NAME) -> list[Any]:
        """A device's nodes in a claim's spec."""
        return self.specs.nodes(reference.uid, device)

    def spec_path(self, reference: ClaimReference) -> str:
        """Where a claim's spec is."""
        return self.specs.path(reference.uid)

    def record_path(self, reference: ClaimReference) -> str:
        """Where a claim's record is."""
        return os.path.join(self.records, f"{reference.uid}.json")

    @property
    def left(self) -> list[str]:
        """The names of all files in both directories."""
        return sorted(
            name
            for place in (self.cdi, self.records)
            if os.path.isdir(place)
            for name in os.listdir(place)
        )


def names_of(references: Iterable[ClaimReference]) -> list[str]:
    """What is in the two directories if just these claims are prepared."""
    return sorted(
        name for item in references for name in (f"{item.uid}.json", f"liken.sh-{item.uid}.json")
    )
