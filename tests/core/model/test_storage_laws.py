"""Laws of what a machine stands on, on block devices stacked in any way."""

from dataclasses import dataclass, field, replace

from hypothesis import given, settings
from hypothesis import strategies as st

from liken_events.core.model.device import Reason
from liken_events.core.model.names import printable
from liken_events.core.model.publish import inventory
from liken_events.core.model.snapshot import Device, Disk, Snapshot, Storage, Use
from liken_events.core.model.storage import dependence, has_disks
from tests.core import generated
from tests.fakes.devices import nvme_disk, pci, scsi_disk, usb
from tests.fakes.machines import machine


@dataclass
class Stack:
    """Block devices that were put on each other, and what is known of them from building them.

    Attributes:
        bottom: name of each block device to the controllers that it lies on in the end.
        members: id of each btrfs filesystem to the names of its block devices.
    """

    devices: list[Device] = field(default_factory=list)
    disks: dict[str, Disk] = field(default_factory=dict)
    bottom: dict[str, set[str]] = field(default_factory=dict)
    members: dict[str, set[str]] = field(default_factory=dict)

    def add(self, device: Device) -> None:
        """A controller with disks of its own."""
        self.devices.append(device)
        for disk in machine([device]).storage.disks:
            self.put(disk, {device.key.address})

    def put(self, disk: Disk, bottom: set[str]) -> None:
        self.disks[disk.name] = disk
        self.bottom[disk.name] = bottom

    def below(self, names: set[str]) -> set[str]:
        return set().union(*(self.bottom[name] for name in names))


@st.composite
def stacks(draw: st.DrawFn) -> Stack:
    stack = Stack()
    for number in range(draw(st.integers(1, 3))):
        nodes = scsi_disk("", number, number, draw(st.integers(0, 2)))
        stack.add(usb(f"2-{number + 1}:1.0", "0781:5581", "080650", "usb-storage", 2, nodes=nodes))
    for number in range(draw(st.integers(0, 2))):
        chain, hidden = f"0000:00:1d.0/0000:4{number}:00.0", f"nvme{number}c0n1"
        if draw(st.booleans()):
            nodes = nvme_disk(number, 8 * number, draw(st.integers(0, 2)))
            stack.add(pci(chain, "144d:a824", "010802", "nvme", nodes=nodes))
        else:
            nodes = nvme_disk(number, 0, 0, multipath=True)
            device = pci(chain, "144d:a824", "010802", "nvme", nodes=nodes, hidden_disks=[hidden])
            stack.devices.append(device)
            served = Disk(name=f"nvme{number}n1", number=f"259:{100 + number}")
            stack.put(served, {device.key.address})
    for number in range(draw(st.integers(0, 4))):
        kind = draw(st.sampled_from(["dm-", "md", "bcache"]))
        slaves = draw(st.sets(st.sampled_from(sorted(stack.disks)), min_size=1, max_size=3))
        stack.put(
            Disk(
                name=f"{kind}{number}",
                number=f"{250 + len(kind)}:{number}",
                slaves=tuple(sorted(slaves)),
                mapper=f"volume{number}" if kind == "dm-" else None,
            ),
            stack.below(slaves),
        )
        if draw(st.booleans()):  # partitions of a RAID
            part = f"{kind}{number}p1"
            whole = Disk(name=part, number=f"259:{200 + number}", whole=f"{kind}{number}")
            stack.put(whole, stack.below(slaves))
    free = set(stack.disks)
    for pool in ("7f9a", "6c0a"):
        found = draw(st.sets(st.sampled_from(sorted(free)), max_size=3)) if free else set()
        free -= found
        stack.members[pool] = found
        for name in found:
            stack.disks[name] = replace(stack.disks[name], btrfs=(pool,))
    return stack


@st.composite
def used(draw: st.DrawFn, stack: Stack) -> tuple[list[Use], set[str]]:
    """Some filesystems and swap areas, and the controllers that they lie on."""
    uses: list[Use] = []
    names: set[str] = set()
    for index, name in enumerate(sorted(draw(st.sets(st.sampled_from(sorted(stack.disks)))))):
        disk = stack.disks[name]
        names.add(name)
        for pool in disk.btrfs:
            names |= stack.members[pool]
        path = f"/dev/mapper/{disk.mapper}" if disk.mapper else f"/dev/{name}"
        by_path = Use(what=f"/mnt/{index}", fstype="btrfs", source=path, number="0:23")
        by_number = Use(what=f"/mnt/{index}", fstype="ext4", source="/odd", number=disk.number)
        swap = Use(what="swap", fstype="swap", source=path)
        uses.append(draw(st.sampled_from([by_path, by_number, swap])))
    return uses, stack.below(names)


@given(st.data())
def test_exactly_the_disks_that_the_machine_stands_on_are_withheld(data: st.DataObject) -> None:
    stack = data.draw(stacks())
    uses, needed = data.draw(used(stack))
    found = inventory(machine(stack.devices, uses, stack.disks.values()))
    assert {device.key.address for device in found.offered} == {
        device.key.address for device in stack.devices
    } - needed
    for judgement in found.judgements:
        if judgement.device.key.address in needed:
            assert judgement.withheld is not None
            assert judgement.withheld.reason == Reason.IN_USE


@given(generated.storages, generated.devices())
def test_what_is_said_of_any_disk_is_one_printable_line(storage: Storage, device: Device) -> None:
    withheld = dependence(storage).withhold(device)
    if withheld is not None:
        assert has_disks(device)
        assert withheld.detail == printable(withheld.detail)


@given(generated.storages, st.data())
def test_the_order_of_block_devices_makes_no_difference(
    storage: Storage, data: st.DataObject
) -> None:
    shuffled = replace(storage, disks=tuple(data.draw(st.permutations(storage.disks))))
    assert set(dependence(shuffled).disks) == set(dependence(storage).disks)


@given(generated.storages, generated.uses)
def test_one_more_mount_never_frees_a_disk(storage: Storage, use: Use) -> None:
    before = dependence(storage)
    after = dependence(replace(storage, uses=(*storage.uses, use)))
    assert after.unknown is not None or set(after.disks) >= set(before.disks)
    assert before.unknown is None or after.unknown is not None


@settings(max_examples=20)
@given(generated.machines())
def test_no_machine_offers_a_disk_while_its_mounts_cannot_be_told(snapshot: Snapshot) -> None:
    doubtful = replace(snapshot, storage=replace(snapshot.storage, unknown="unreadable"))
    for device in inventory(doubtful).offered:
        assert not any(node.block for node in device.nodes)
