from collections.abc import Iterable
from dataclasses import replace

import pytest

from liken_events.core.model.device import Reason, Withheld
from liken_events.core.model.snapshot import Device, Disk, Key, Node, Storage, Use
from liken_events.core.model.storage import Dependence, dependence, has_disks, may_lie_on_disk

SDA, SDA1, SDA2 = (
    Disk(name="sda", number="8:0"),
    Disk(name="sda1", number="8:1", whole="sda"),
    Disk(name="sda2", number="8:2", whole="sda"),
)
SDB, SDB1 = Disk(name="sdb", number="8:16"), Disk(name="sdb1", number="8:17", whole="sdb")
SDC, SDC1 = Disk(name="sdc", number="8:32"), Disk(name="sdc1", number="8:33", whole="sdc")
PLAIN = (SDA, SDA1, SDA2, SDB, SDB1, SDC, SDC1)
RAID = Disk(name="md0", number="9:0", slaves=("sda1", "sdb1"))
VAULT = Disk(name="dm-0", number="253:0", slaves=("md0",), mapper="vault")
DATA = Disk(name="dm-1", number="253:1", slaves=("dm-0",), mapper="vg-data")
STACK = (*PLAIN, RAID, VAULT, DATA)
CACHED = Disk(name="bcache0", number="252:0", slaves=("sdb", "sda2"))
UNDER_RAID = {"md0", "sda", "sda1", "sdb", "sdb1"}


def mounted(source: str, number: str | None = None, fstype: str = "ext4", what: str = "/x") -> Use:
    return Use(what=what, fstype=fstype, source=source, number=number)


def swap(source: str, number: str | None = None) -> Use:
    return Use(what="swap", fstype="swap", source=source, number=number)


def protected(source: str, number: str | None = None) -> Use:
    return Use(what=source, fstype="protected", source=source, number=number)


def pooled(disk: Disk, *pools: str) -> Disk:
    return replace(disk, btrfs=pools)


@pytest.mark.parametrize(
    ("use", "disks", "expected"),
    [
        (mounted("/dev/sda1", "8:1"), PLAIN, {"sda", "sda1"}),
        (mounted("/dev/sdb", "8:16"), PLAIN, {"sdb"}),
        (mounted("/dev/root", "8:2"), PLAIN, {"sda", "sda2"}),
        (mounted("/dev/sda2", "99:99"), PLAIN, {"sda", "sda2"}),
        (mounted("/dev/sda2"), PLAIN, {"sda", "sda2"}),
        (mounted("/dev/md0", "9:0"), STACK, UNDER_RAID),
        (mounted("/dev/mapper/vault", "253:0"), STACK, UNDER_RAID | {"dm-0"}),
        (mounted("/dev/mapper/vg-data", "253:1"), STACK, UNDER_RAID | {"dm-0", "dm-1"}),
        (mounted("/dev/mapper/vg-data"), STACK, UNDER_RAID | {"dm-0", "dm-1"}),
        (mounted("/dev/dm-1"), STACK, UNDER_RAID | {"dm-0", "dm-1"}),
        (mounted("/dev/bcache0", "252:0"), (*PLAIN, CACHED), {"bcache0", "sdb", "sda2", "sda"}),
        (
            mounted("/dev/cciss/c0d0p1"),
            (Disk(name="cciss!c0d0", number="104:0"),
             Disk(name="cciss!c0d0p1", number="104:1", whole="cciss!c0d0")),
            {"cciss!c0d0", "cciss!c0d0p1"},
        ),
        (
            mounted("/dev/sda1", "0:23", "btrfs"),
            (SDA, pooled(SDA1, "7f9a"), pooled(SDB, "7f9a"), pooled(SDC1, "6c0a"), SDC),
            {"sda", "sda1", "sdb"},
        ),
        (
            mounted("/dev/mapper/vault", "0:23", "btrfs"),
            (*PLAIN, RAID, pooled(VAULT, "7f9a"), pooled(SDC1, "7f9a")),
            UNDER_RAID | {"dm-0", "sdc1", "sdc"},
        ),
        (
            mounted("/dev/sda1:/dev/sdb1", "0:23", "bcachefs"),
            PLAIN,
            {"sda", "sda1", "sdb", "sdb1"},
        ),
        (swap("/dev/sda2"), PLAIN, {"sda", "sda2"}),
        (swap("/dev/dm-1"), STACK, UNDER_RAID | {"dm-0", "dm-1"}),
        (swap("/swapfile"), PLAIN, set()),
        (swap("/dev/zram0"), (*PLAIN, Disk(name="zram0", number="254:0")), {"zram0"}),
        (protected("/dev/sdc"), PLAIN, {"sdc"}),
        (protected("/dev/disk/by-id/ata-X", "8:32"), PLAIN, {"sdc"}),
        (protected("/dev/absent"), PLAIN, set()),
        (mounted("server:/export", "0:50", "nfs4"), PLAIN, set()),
        (mounted("/dev/gone1", "8:49"), PLAIN, set()),
        (mounted("/dev/sda1:/dev/sdb1", "0:23", "ext4"), PLAIN, set()),
    ],
)  # fmt: skip
def test_a_use_is_followed_down_to_the_disks_below_it(
    use: Use, disks: tuple[Disk, ...], expected: set[str]
) -> None:
    found = dependence(Storage(uses=(use,), disks=disks))
    assert set(found.disks) == expected
    assert found.unknown is None


@pytest.mark.parametrize(
    ("use", "what"),
    [
        (mounted("tank/data", "0:40", "zfs", "/tank"), "/tank"),
        (mounted("/dev/mapper/gone", "0:23", "btrfs", "/srv"), "/srv"),
        (mounted("/dev/gone1:/dev/gone2", "0:23", "bcachefs", "/pool"), "/pool"),
        (swap("/dev/mapper/gone"), "swap area"),
    ],
)
def test_what_lies_on_some_disk_that_is_not_known_makes_all_disks_doubtful(
    use: Use, what: str
) -> None:
    found = dependence(Storage(uses=(mounted("/dev/sda1", "8:1"), use), disks=PLAIN))
    assert found.unknown is not None
    assert what in found.unknown
    assert found.withhold(holder("sdc")) == Withheld(
        reason=Reason.STORAGE_UNKNOWN, detail=f"/dev/sdc may be in use: {found.unknown}"
    )


def test_a_circle_of_block_devices_has_an_end() -> None:
    first = Disk(name="dm-0", number="253:0", slaves=("dm-1",))
    second = Disk(name="dm-1", number="253:1", slaves=("dm-0", "dm-1"), whole="dm-0")
    found = dependence(Storage(uses=(mounted("/dev/dm-0", "253:0"),), disks=(first, second)))
    assert set(found.disks) == {"dm-0", "dm-1"}


def holder(*names: str, hidden: Iterable[str] = ()) -> Device:
    """A disk controller with these block devices."""
    nodes = tuple(Node(path=f"/dev/{name}", subsystem="block") for name in names)
    return Device(
        key=Key(bus="pci", address="0000:00:17.0"),
        path="/devices/pci0000:00/0000:00:17.0",
        nodes=(*nodes, Node(path="/dev/sg0", subsystem="scsi_generic")),
        hidden_disks=tuple(hidden),
    )


@pytest.mark.parametrize(
    ("device", "detail"),
    [
        (holder("sda", "sda1", "sda2"), "/dev/sda1 is mounted on /boot"),
        (holder("sdb", "sdb1"), "/dev/sdb carries /dev/mapper/vg-data, which is mounted on /data"),
        (holder("sdc"), "/dev/sdc is protected by the configuration"),
        (holder("sdd"), "/dev/sdd is an active swap area"),
        (holder("cciss/c0d0"), "/dev/cciss/c0d0 is mounted on /a\\x0ab"),
        (
            holder("cciss/c0d1"),
            "/dev/cciss/c0d1 carries /dev/cciss/c0d1p1, which is mounted on /var",
        ),
        (holder(hidden=["nvme0c0n1"]), "nvme0c0n1 is mounted on /srv"),
        (holder(hidden=["nvme1n1"]), "nvme1n1 is mounted on /opt"),
        (holder("sde", "sde1"), None),
        (holder(hidden=["nvme2c0n1"]), None),
        (holder(), None),
    ],
)
def test_a_device_is_withheld_with_the_node_and_the_place_that_it_is_in_use_for(
    device: Device, detail: str | None
) -> None:
    disks = [
        *(replace(disk, slaves=("sdb1",)) if disk.name == "dm-0" else disk for disk in STACK),
        Disk(name="sdd", number="8:48"),
        Disk(name="cciss!c0d0", number="104:0"),
        Disk(name="cciss!c0d1", number="104:16"),
        Disk(name="cciss!c0d1p1", number="104:17", whole="cciss!c0d1"),
        Disk(name="nvme0n1", number="259:0"),
        Disk(name="nvme1n1", number="259:1"),
    ]
    uses = [
        mounted("/dev/cciss/c0d0", what="/a\nb"),
        mounted("/dev/sda1", "8:1", what="/boot"),
        mounted("/dev/mapper/vg-data", "253:1", what="/data"),
        mounted("/dev/nvme1n1", "259:1", what="/opt"),
        mounted("/dev/nvme0n1", "259:0", what="/srv"),
        mounted("/dev/cciss/c0d1p1", what="/var"),
        protected("/dev/sdc"),
        swap("/dev/sdd"),
    ]
    expected = None if detail is None else Withheld(reason=Reason.IN_USE, detail=detail)
    assert dependence(Storage(uses=tuple(uses), disks=tuple(disks))).withhold(device) == expected


@pytest.mark.parametrize(
    ("uses", "detail"),
    [
        ([("sda1", "/a"), ("sda", "/b")], "/dev/sda is mounted on /b"),
        ([("sda", "/a"), ("sda1", "/b")], "/dev/sda is mounted on /a"),
        ([("sda", "/a"), ("sda", "/b")], "/dev/sda is mounted on /a"),
        ([("sda1", "/a"), ("sda2", "/b")], "/dev/sda carries /dev/sda1, which is mounted on /a"),
    ],
)
def test_of_several_reasons_the_first_that_is_direct_is_told(
    uses: list[tuple[str, str]], detail: str
) -> None:
    mounts = tuple(mounted(f"/dev/{name}", what=what) for name, what in uses)
    withheld = dependence(Storage(uses=mounts, disks=PLAIN)).withhold(holder("sda"))
    assert withheld == Withheld(reason=Reason.IN_USE, detail=detail)


def test_only_block_devices_can_be_in_use() -> None:
    character = Node(path="/dev/sda", subsystem="scsi_generic")
    device = replace(holder(), nodes=(character,))
    found = dependence(Storage(uses=(mounted("/dev/sda", "8:0"),), disks=PLAIN))
    assert found.withhold(device) is None
    assert found.withhold(holder("sda")) is not None


def test_unreadable_mounts_withhold_all_disks_and_nothing_else() -> None:
    found = dependence(Storage(disks=PLAIN, unknown="the mounts could not be read (\x1b)"))
    detail = "/dev/sda may be in use: the mounts could not be read (\\x1b)"
    assert found == Dependence(unknown="the mounts could not be read (\x1b)")
    assert found.withhold(holder("sda", "sda1")) == Withheld(
        reason=Reason.STORAGE_UNKNOWN, detail=detail
    )
    assert found.withhold(holder(hidden=["nvme0c0n1"])) is not None
    assert found.withhold(holder()) is None


def test_a_machine_without_mounts_withholds_nothing() -> None:
    assert dependence(Storage(disks=PLAIN)) == Dependence()
    assert dependence(Storage()).withhold(holder("sda")) is None


@pytest.mark.parametrize(
    ("use", "expected"),
    [
        (mounted("/dev/sda1", "8:1"), True),
        (mounted("odd", "8:1"), True),
        (mounted("/dev/sda1", "0:23", "btrfs"), True),
        (mounted("tank/data", "0:40", "zfs"), True),
        (mounted("a:b", "0:41", "bcachefs"), True),
        (mounted("/dev/fuse", "0:42", "fuse"), True),
        (mounted("/dev/sda1", None), True),
        (mounted("overlay", "0:50", "overlay"), False),
        (mounted("tmpfs", "0:51", "tmpfs"), False),
        (mounted("server:/export", "0:52", "nfs4"), False),
        (mounted("none", None), False),
    ],
)
def test_most_mounts_of_a_container_host_lie_on_no_disk(use: Use, expected: bool) -> None:
    assert may_lie_on_disk(use) is expected


@pytest.mark.parametrize(
    ("device", "expected"),
    [(holder("sda"), True), (holder(hidden=["nvme0c0n1"]), True), (holder(), False)],
)
def test_storage_matters_to_devices_with_block_devices(device: Device, expected: bool) -> None:
    assert has_disks(device) is expected
