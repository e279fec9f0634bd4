from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from liken_events.core.model.device import Cause
from liken_events.core.model.machine import MOST_CAUSES, Machine
from liken_events.core.model.publish import Policy, inventory, judge
from liken_events.core.model.snapshot import Device, Key, Snapshot, Storage, sort_devices
from liken_events.core.model.storage import dependence
from tests.core import generated
from tests.fakes.machines import homelab, server

HOME = homelab()
SERIAL = {device.key: device for device in HOME.devices if device.driver == "ftdi_sio"}
FIRST, SECOND = SERIAL
PORT = SERIAL[FIRST].path.rpartition("/")[0]
NO_MOUNTS = Storage(disks=HOME.storage.disks)


def taken(snapshot: Snapshot) -> Machine:
    machine = Machine(Policy())
    machine.replace(snapshot)
    return machine


def test_a_new_machine_is_empty() -> None:
    machine = Machine(Policy())
    assert machine.inventory() == inventory(Snapshot())
    assert machine.snapshot() == Snapshot()
    assert machine.paths == {}


def test_a_full_look_is_taken_as_it_is() -> None:
    machine = Machine(Policy())
    assert machine.replace(HOME) == {device.key for device in HOME.devices}
    assert machine.snapshot() == HOME
    assert machine.storage == HOME.storage
    assert machine.inventory() == inventory(HOME)
    assert machine.paths == {device.path: device.key for device in HOME.devices}
    assert machine.replace(HOME) == set()


def test_a_full_look_tells_which_devices_are_judged_otherwise() -> None:
    machine = taken(HOME)
    changed = replace(SERIAL[FIRST], serial="other")
    rest = [device for device in HOME.devices if device.key not in SERIAL]
    assert machine.replace(replace(HOME, devices=sort_devices([*rest, changed]))) == set(SERIAL)
    disk = Key(bus="usb", address="2-1:1.0")
    assert machine.replace(replace(machine.snapshot(), storage=NO_MOUNTS)) == {disk}


def test_a_full_look_leaves_devices_alone_whose_own_look_is_still_to_come() -> None:
    machine = taken(HOME)
    changed = [replace(device, serial="other") for device in HOME.devices]
    assert machine.replace(replace(HOME, devices=tuple(changed)), {FIRST}) == {
        device.key for device in HOME.devices
    } - {FIRST}
    known = {device.key: device for device in machine.snapshot().devices}
    assert known[FIRST] == SERIAL[FIRST]
    assert known[SECOND].serial == "other"


def test_a_full_look_takes_unsettled_devices_out_that_are_gone_and_none_in_that_are_new() -> None:
    without = replace(
        HOME, devices=tuple(device for device in HOME.devices if device.key != FIRST)
    )
    machine = taken(HOME)
    assert machine.replace(without, {FIRST}) == {FIRST}
    assert machine.snapshot() == without
    assert machine.replace(HOME, {FIRST}) == set()
    assert machine.snapshot() == without


def test_a_full_look_judges_unsettled_disks_by_the_mounts_of_now() -> None:
    machine = taken(replace(HOME, storage=NO_MOUNTS))
    disk = Key(bus="usb", address="2-1:1.0")
    assert machine.replace(HOME, {disk}) == {disk}
    assert machine.inventory() == inventory(HOME)


def test_the_interfaces_of_a_usb_device_are_known_while_they_are_there() -> None:
    machine = taken(HOME)
    assert machine.interfaces(PORT) == {FIRST, SECOND}
    assert machine.interfaces("/devices/elsewhere") == frozenset()
    machine.put(FIRST, None)
    assert machine.interfaces(PORT) == {SECOND}
    machine.put(SECOND, None)
    assert machine.interfaces(PORT) == frozenset()
    machine.put(FIRST, SERIAL[FIRST])
    assert machine.interfaces(PORT) == {FIRST}
    machine.put(FIRST, replace(SERIAL[FIRST], path="/devices/moved/1-4/1-4:1.0"))
    assert machine.interfaces(PORT) == frozenset()
    assert machine.interfaces("/devices/moved/1-4") == {FIRST}


def test_a_device_that_is_gone_is_forgotten_and_may_be_gone_twice() -> None:
    machine = taken(HOME)
    for _ in range(2):
        machine.put(FIRST, None)
        assert FIRST not in {device.key for device in machine.snapshot().devices}
        assert SERIAL[FIRST].path not in machine.paths
    machine.put(Key(bus="pci", address="never"), None)
    assert len(machine.snapshot().devices) == len(HOME.devices) - 1


def test_other_mounts_change_the_judgement_of_disks_alone() -> None:
    machine = taken(HOME)
    disk = Key(bus="usb", address="2-1:1.0")
    assert machine.put_storage(HOME.storage) == set()
    assert machine.put_storage(NO_MOUNTS) == {disk}
    assert machine.storage == NO_MOUNTS
    assert machine.inventory() == inventory(replace(HOME, storage=NO_MOUNTS))
    assert machine.put_storage(HOME.storage) == {disk}
    assert machine.inventory() == inventory(HOME)


def test_the_policy_holds_for_every_look() -> None:
    policy = Policy(ignore=("driver=ftdi_sio",), limit=2)
    machine = Machine(policy)
    machine.replace(HOME)
    assert machine.inventory() == inventory(HOME, policy)
    machine.put(FIRST, SERIAL[FIRST])
    assert machine.inventory() == inventory(HOME, policy)


def test_the_newest_causes_are_remembered() -> None:
    machine = taken(server())
    keys = [Key(bus="usb", address=f"{number}") for number in range(MOST_CAUSES + 2)]
    for number, key in enumerate(keys[:-2]):
        machine.note(key, Cause(text=f"add {number}", at=number))
    told = machine.inventory().causes
    assert list(told) == keys[:-2]
    again = Cause(text="change", at=1.0)
    machine.note(keys[0], again)
    for key in keys[-2:]:
        machine.note(key, again)
    kept = machine.inventory().causes
    assert set(kept) == set(keys) - {keys[1], keys[2]}
    assert kept[keys[0]] == again
    assert set(told) == set(keys[:-2])


POLICIES = [Policy(), Policy(limit=1), Policy(limit=3), Policy(limit=None, ignore=("usb-1*",))]


class Looks(RuleBasedStateMachine):
    """Looks at one device, at the mounts or at everything, in any order, and after each of them
    the same inventory as a fresh look at the whole machine gives."""

    def __init__(self) -> None:
        super().__init__()
        self.policy = Policy()
        self.machine = Machine(self.policy)
        self.devices: dict[Key, Device] = {}
        self.storage = Storage()

    @initialize(policy=st.sampled_from(POLICIES))
    def start(self, policy: Policy) -> None:
        self.policy = policy
        self.machine = Machine(policy)

    @property
    def snapshot(self) -> Snapshot:
        return Snapshot(devices=sort_devices(self.devices.values()), storage=self.storage)

    def judged(self) -> dict[Key, object]:
        depends = dependence(self.storage)
        return {key: judge(item, depends, self.policy) for key, item in self.devices.items()}

    @rule(device=generated.devices())
    def look_at_one(self, device: Device) -> None:
        self.devices[device.key] = device
        self.machine.put(device.key, device)

    @rule(data=st.data())
    def look_again_at_one(self, data: st.DataObject) -> None:
        if self.devices:
            key = data.draw(st.sampled_from(sorted(self.devices)))
            other = data.draw(generated.devices())
            device = replace(other, key=key, path=self.devices[key].path)
            self.look_at_one(device)

    @rule(data=st.data())
    def find_one_gone(self, data: st.DataObject) -> None:
        if self.devices:
            key = data.draw(st.sampled_from(sorted(self.devices)))
            del self.devices[key]
            self.machine.put(key, None)

    @rule(storage=generated.storages)
    def look_at_mounts(self, storage: Storage) -> None:
        before = self.judged()
        self.storage = storage
        changed = self.machine.put_storage(storage)
        after = self.judged()
        assert changed == {key for key in after if after[key] != before[key]}

    @rule(snapshot=generated.machines(most=2), data=st.data())
    def look_at_everything(self, snapshot: Snapshot, data: st.DataObject) -> None:
        stay = [device for device in self.devices.values() if data.draw(st.booleans())]
        found = {device.key: device for device in (*stay, *snapshot.devices)}
        unsettled = {key for key in {*found, *self.devices} if data.draw(st.booleans())}
        before = self.judged()
        self.devices = {
            key: self.devices[key] if key in unsettled else device
            for key, device in found.items()
            if key not in unsettled or key in self.devices
        }
        self.storage = snapshot.storage
        whole = Snapshot(devices=sort_devices(found.values()), storage=snapshot.storage)
        changed = self.machine.replace(whole, unsettled)
        after = self.judged()
        keys = before.keys() | after.keys()
        assert changed == {key for key in keys if before.get(key) != after.get(key)}

    @invariant()
    def it_is_what_a_full_look_gives(self) -> None:
        assert self.machine.snapshot() == self.snapshot
        assert self.machine.inventory() == inventory(self.snapshot, self.policy)
        assert self.machine.paths == {item.path: key for key, item in self.devices.items()}
        above = {path.rpartition("/")[0] for path in self.machine.paths}
        for port in above:
            assert self.machine.interfaces(port) == {
                key for path, key in self.machine.paths.items() if path.rpartition("/")[0] == port
            }


TestLooks = Looks.TestCase
TestLooks.settings = settings(max_examples=25, stateful_step_count=12, deadline=None)


@given(generated.machines(most=3), st.data())
def test_devices_and_mounts_may_be_read_in_any_order(
    snapshot: Snapshot, data: st.DataObject
) -> None:
    machine = Machine(Policy())
    steps: list[Device | Storage] = [*snapshot.devices, snapshot.storage]
    for step in data.draw(st.permutations(steps)):
        if isinstance(step, Storage):
            machine.put_storage(step)
        else:
            machine.put(step.key, step)
    assert machine.snapshot() == snapshot
    assert machine.inventory() == inventory(snapshot)
