"""Hardware and claims that come and go in any order, with two agents of which either is called and
killed at any moment.

After each step with a refresh each spec is compared with what the machine has, by rules of its own
that are shorter than the agent's.
"""

import os
import shutil
import tempfile
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import trio
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from liken_events.core.model.claims import ClaimReference, Refused
from liken_events.core.model.prepared import Prepared
from liken_events.core.model.snapshot import Device, Key, Node
from liken_events.simulate.tree import MachineTree
from tests.fakes.cdi_rules import complaints
from tests.fakes.claims import claim_body
from tests.fakes.crashes import Killed, killed_before
from tests.fakes.devices import tty, usb
from tests.fakes.keeping import NOWHERE, Keeping
from tests.fakes.machines import machine

SLOTS = (1, 2, 3)
MODELS = {"10c4:ea60": "cp210x", "0403:6001": "ftdi_sio"}
CLAIMS = tuple(f"0000000{number}-7d5b-4f0a-9c1e-2b8d6a4e0f13" for number in range(3))
VIRTUAL = "/devices/virtual/tty"
NUMBERS = tuple(range(2, 6))
"""Few, so that a number is soon given to another device."""

slots, models = st.sampled_from(SLOTS), st.sampled_from(sorted(MODELS))
claims, numbers = st.sampled_from(CLAIMS), st.sampled_from(NUMBERS)
seen = st.sampled_from([True, True, True, False])
several = st.lists(slots, min_size=1, max_size=2, unique=True)


def key(slot: int) -> Key:
    return Key(bus="usb", address=f"1-{slot}:1.0")


def name(slot: int) -> str:
    return f"usb-1-{slot}-1-0"


class Life(RuleBasedStateMachine):
    """One machine with two agents, each of which is started again and again.

    Attributes:
        kept: the agent that is called now.
        other: the other one, which does nothing until its turn.
        held: what the kubelet was told is prepared: uid to slot to model.
        fresh: whether the specs were refreshed since the machine changed.
        known: the paths that each held device had when it was last there.
    """

    def __init__(self) -> None:
        super().__init__()
        self.root = tempfile.mkdtemp()
        self.tree = MachineTree.build(machine([]), f"{self.root}/machine", clutter=False)
        self.kept = Keeping(self.tree, self.root)
        self.other = self.kept.anew()
        os.mkdir(self.kept.cdi)
        self.foreign = Path(self.kept.cdi, "vendor.json")
        self.foreign.write_text("not ours")
        self.signature = self.foreign.stat()
        self.held: dict[str, dict[str, str]] = {}
        self.virtual: set[str] = set()
        self.boots = 1
        self.fresh = False
        self.known: dict[tuple[str, str], set[str]] = {}
        self.start_both_anew()
        for slot, model in zip(SLOTS, sorted(MODELS), strict=False):
            self.hardware("plug", slot, model, 0, seen=True)
            self.call("prepare", CLAIMS[slot], [slot])

    def teardown(self) -> None:
        shutil.rmtree(self.root)

    # What the machine has.

    @property
    def devices(self) -> dict[Key, Device]:
        return {device.key: device for device in self.tree.snapshot.devices}

    @property
    def paths(self) -> set[str]:
        """Of all nodes that anybody has."""
        nodes = [node.path for device in self.devices.values() for node in device.nodes]
        nodes += [item.bus_node.path for item in self.devices.values() if item.bus_node]
        return {*nodes, *self.virtual}

    @property
    def left(self) -> set[str]:
        """Of the ttys of held devices that are away, and that nobody else has."""
        prepared = self.prepared.values()
        held = [device for item in prepared for device in item.devices]
        paths = {node.path for device in held for node in device.nodes if node.subsystem == "tty"}
        return paths - self.paths

    def free_tty(self) -> Node:
        """The lowest number that is free, as the kernel gives it."""
        number = next(n for n in range(99) if f"/dev/ttyUSB{n}" not in self.paths)
        return tty(f"ttyUSB{number}", number)

    def plug(self, slot: int, model: str, number: int) -> None:
        """The number is taken from those that are free."""
        taken = {item.bus_node.minor + 1 for item in self.devices.values() if item.bus_node}
        free = [item for item in NUMBERS if item not in taken]
        self.tree.plug(
            usb(f"1-{slot}:1.0", model, "ff0000", MODELS[model], free[number % len(free)],
                nodes=[self.free_tty()])
        )  # fmt: skip

    def changed(self, *, seen: bool) -> None:
        """The machine changed; `seen` if the loop gets to know before anything else happens."""
        self.fresh = False
        if seen:
            self.refresh()

    # What happens to it.

    @rule(what=st.sampled_from(["plug"] * 3 + ["exchange", "bind", "virtual"]),
          slot=slots, model=models, number=numbers, seen=seen)  # fmt: skip
    def hardware(self, what: str, slot: int, model: str, number: int, seen: bool) -> None:
        device = self.devices.get(key(slot))
        if what == "virtual":
            self.virtual_device()
        elif device is None:
            self.plug(slot, model, number)
        elif what == "bind" and device.driver is None:
            self.tree.bind(device.key, MODELS[model_of(device)], [self.free_tty()])
        elif what == "bind":
            self.tree.unbind(device.key)
        else:
            self.tree.unplug(device.key)
            if what == "exchange":  # back, as itself or as another model, before anybody looks
                self.plug(slot, model, number)
        self.changed(seen=seen)

    def virtual_device(self) -> None:
        """A device on no bus takes a path that a held device left, or the next free one; or the
        one that did goes."""
        if self.virtual:
            shutil.rmtree(self.tree.sys + VIRTUAL)
            self.virtual.clear()
        else:
            path = min(self.left or {self.free_tty().path})
            place = f"{VIRTUAL}/{path.removeprefix('/dev/')}"
            os.makedirs(self.tree.sys + place)
            Path(f"{self.tree.sys}{place}/uevent").write_text(f"DEVNAME={path[5:]}\n")
            self.virtual.add(path)
            for kept in (self.kept, self.other):
                kept.nodes.announce(path, place)

    # What the agents are asked.

    @rule()
    def exchange(self) -> None:
        """The kubelet calls the other one from now on, which has heard of all hardware and of all
        claims."""
        self.exchange_agents()
        trio.run(self.kept.holdings.take_over)
        self.tell_of_virtual()
        self.kept.look()

    @rule(what=st.sampled_from(["prepare"] * 4 + ["unprepare"]), uid=claims, wanted=several)
    def call(self, what: str, uid: str, wanted: list[int]) -> None:
        claim, names = self.claim(uid, wanted)
        if what == "prepare":
            may = self.may_prepare(uid, names)
            outcome = trio.run(self.kept.keeper.prepare, claim)
            assert isinstance(outcome, tuple) == may, outcome
            self.learn(uid, names, outcome)
        else:
            assert trio.run(self.kept.keeper.unprepare, claim) is None
            self.held.pop(uid, None)
            assert not os.path.exists(self.kept.specs.path(uid))

    @rule(what=st.sampled_from(["refresh"] * 4 + ["early", "start"] * 2 + ["boot"]))
    def agent(self, what: str) -> None:
        match what:
            case "refresh":
                self.refresh()
            case "early":  # somebody has a reason to look, and the loop does not know yet
                trio.run(self.kept.holdings.refresh, self.kept.inventories.get())
            case "start":
                self.start_anew()
            case "boot":
                self.boot()

    @rule(what=st.sampled_from(["prepare", "unprepare", "refresh"]), uid=claims, wanted=several,
          step=st.integers(1, 12))  # fmt: skip
    def killed(self, what: str, uid: str, wanted: list[int], step: int) -> None:
        """The agent ends in the middle of its work on files, if the work has as many steps."""
        claim, names = self.claim(uid, wanted)
        outcome: object = None
        work: dict[str, Callable[[], Awaitable[Any]]] = {
            "prepare": lambda: self.kept.keeper.prepare(claim),
            "unprepare": lambda: self.kept.keeper.unprepare(claim),
            "refresh": self.kept.refresh,
        }
        try:
            with killed_before(step):
                outcome = trio.run(work[what])
        except Killed:
            self.known.clear()  # the newest may not have been noted
            if what == "unprepare":
                self.held.pop(uid, None)  # it may be known still: whoever asked asks again
            self.start_anew()
            return
        if what == "prepare":
            self.learn(uid, names, outcome)
        elif what == "unprepare":
            self.held.pop(uid, None)

    @rule(uid=claims, is_removed=st.booleans())
    def meddle(self, uid: str, is_removed: bool) -> None:
        """Somebody removes or spoils a spec, and the agent is told that files changed."""
        path = Path(self.kept.specs.path(uid))
        if path.exists():
            path.unlink()
            if not is_removed:
                path.write_text("{")
            self.refresh()

    def start_anew(self) -> None:
        """The agent ended, and starts."""
        self.kept = self.kept.anew()
        trio.run(self.kept.holdings.restore)
        assert self.held.keys() <= self.kept.holdings.prepared.keys()
        self.tell_of_virtual()
        self.kept.look()
        self.fresh = False

    def tell_of_virtual(self) -> None:
        """A node that was made before an agent knew of the claim whose path it took is told of by
        nobody: it is found under the dev root of a real machine."""
        for path in self.virtual:
            self.kept.nodes.announce(path, f"{VIRTUAL}/{path.removeprefix('/dev/')}")

    def start_both_anew(self) -> None:
        """One after the other."""
        for _ in range(2):
            self.exchange_agents()
            self.start_anew()

    def exchange_agents(self) -> None:
        self.kept, self.other = self.other, self.kept
        self.fresh = False

    def boot(self) -> None:
        """All numbers are others now. The directories are on a disk, so the files are there."""
        self.boots += 1
        self.kept = self.kept.anew(boot=f"boot-{self.boots}")
        self.other = self.kept.anew()
        self.held.clear()
        self.start_both_anew()
        assert os.listdir(self.kept.cdi) == ["vendor.json"]
        assert not os.path.isdir(self.kept.records) or os.listdir(self.kept.records) == []

    def refresh(self) -> None:
        assert trio.run(self.kept.refresh)
        self.fresh = True

    # What must be so.

    @invariant()
    def specs_can_be_read(self) -> None:
        for uid in self.kept.holdings.prepared:
            text = Path(self.kept.specs.path(uid))
            if text.exists():
                assert complaints(text.read_text(), newest="0.5.0") == []

    @invariant()
    def others_are_left_alone(self) -> None:
        assert self.foreign.stat() == self.signature

    @invariant()
    def specs_say_what_there_is(self) -> None:
        if not self.fresh:
            return
        prepared = self.kept.holdings.prepared
        assert self.held.keys() <= prepared.keys()
        files = {f"liken.sh-{uid}.json" for uid in prepared}
        assert {*os.listdir(self.kept.cdi)} == {*files, "vendor.json"}
        for uid, item in prepared.items():
            for device in item.devices:
                nodes = self.kept.specs.nodes(uid, device.name)
                here = self.devices.get(device.key)
                model = self.held.get(uid, {}).get(device.name, device.model)
                assert model == device.model
                if here is None or f"{here.vendor}:{here.product}" != model:
                    assert nodes
                    assert all(len(node) == 1 for node in nodes), "no numbers of what is away"
                    strangers = self.paths & {node[0] for node in nodes}
                    assert not strangers, "nor the path of another one"
                    own = {node[0] for node in nodes if not node[0].startswith(NOWHERE)}
                    assert own <= self.known.get((uid, device.name), own)
                else:
                    assert nodes == described(here)
                    self.known[uid, device.name] = {node[0] for node in nodes}

    # For short.

    @property
    def prepared(self) -> dict[str, Prepared]:
        """What is prepared, whichever agent did it."""
        return {item.reference.uid: item for item in self.kept.files.peek()}

    def reference(self, uid: str) -> ClaimReference:
        return ClaimReference(namespace="default", name=f"c{uid[:8]}", uid=uid)

    def claim(self, uid: str, wanted: Sequence[int]) -> tuple[ClaimReference, list[str]]:
        """What is allocated to a claim stays so while it is prepared."""
        item = self.prepared.get(uid)
        there = [slot for slot in wanted if key(slot) in self.devices] or wanted
        names = [d.name for d in item.devices] if item else [name(slot) for slot in there]
        reference = self.reference(uid)
        body = claim_body(*names, name=reference.name, uid=uid)
        self.kept.cluster.claims["default", reference.name] = body
        return reference, names

    def may_prepare(self, uid: str, names: Sequence[str]) -> bool:
        """Whether all devices are there and free."""
        prepared = self.prepared
        if any(
            device.name in names
            for other, item in prepared.items() if other != uid
            for device in item.devices
        ):  # fmt: skip
            return False
        own = {d.name: d.model for d in prepared[uid].devices} if uid in prepared else {}
        for item in names:
            here = self.devices.get(key(int(item.split("-")[2])))
            if here is None or own.get(item, model_of(here)) != model_of(here):
                return False
            if here.driver is None and item not in own:
                return False
        return True

    def learn(self, uid: str, names: Sequence[str], outcome: object) -> None:
        """The kubelet hears an answer; the runtime finds what it says."""
        if isinstance(outcome, Refused):
            return
        assert isinstance(outcome, tuple)
        spec = self.kept.specs.read(uid)
        assert spec is not None
        assert {f"liken.sh/device={item['name']}" for item in spec["devices"]} == {
            item.cdi_id for item in outcome
        }
        for item in names:
            self.known.pop((uid, item), None)
        self.held[uid] = {
            item: model_of(self.devices[key(int(item.split("-")[2]))]) for item in names
        }


def model_of(device: Device) -> str:
    return f"{device.vendor}:{device.product}"


def described(device: Device) -> list[tuple[Any, ...]]:
    """A device's nodes as a spec has to have them; without a driver the usbfs node alone."""
    assert device.bus_node is not None
    nodes = sorted([device.bus_node, *device.nodes], key=lambda node: node.path)
    return [(node.path, "c", node.major, node.minor) for node in nodes]


TestLife = Life.TestCase
TestLife.settings = settings(
    max_examples=60,
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
