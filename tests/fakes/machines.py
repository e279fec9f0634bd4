"""Whole machines for tests, as snapshots: a desktop, a server, a home-lab node and an empty
virtual machine.

Each holds what was the undoing of some narrower rule: a GPU behind its own bridges, a disk in use
only through RAID, encryption and volumes, one path of a multipath disk, members of a filesystem
over two disks, two sticks with one serial number, two interfaces with one usbfs node.
"""

from collections.abc import Iterable
from dataclasses import replace

from liken_events.core.model.snapshot import (
    Device,
    Disk,
    Node,
    Snapshot,
    Storage,
    Use,
    sort_devices,
    sort_disks,
    sort_uses,
)
from liken_events.simulate.disks import disks_of
from liken_events.simulate.recordings import desk
from tests.fakes.devices import (
    drm,
    event,
    hiddev,
    hidraw,
    i2c,
    nvme_disk,
    pci,
    root_hub,
    scsi_disk,
    snd,
    tty,
    usb,
    virtio_disk,
)

INTEL = "Intel Corporation"
AMD = "Advanced Micro Devices, Inc. [AMD/ATI]"
SILABS = ("Silicon Labs", "CP2102 USB to UART Bridge Controller")


def machine(
    devices: Iterable[Device], uses: Iterable[Use] = (), disks: Iterable[Disk] = ()
) -> Snapshot:
    """A snapshot of these devices; `disks` adds block devices that lie on others, or says more of
    one."""
    known = tuple(devices)
    table = {disk.name: disk for device in known for disk in disks_of(device)}
    table |= {disk.name: disk for disk in disks}
    return Snapshot(
        devices=sort_devices(known),
        storage=Storage(uses=sort_uses(uses), disks=sort_disks(table.values())),
    )


def desktop() -> Snapshot:
    """The desk of the demonstration, with a headset, a gamepad and a printer more."""
    base = desk()
    headset, gamepad = ("Plantronics", "Blackwire 3220 Series"), "0003:054C:09CC.0007"
    more = [
        usb("1-5:1.0", "047f:c056", "010100", "snd-usb-audio", 8, words=headset, serial="A1B2C3",
            nodes=[snd(1, "controlC1", 8), snd(1, "pcmC1D0p", 9), snd(1, "pcmC1D0c", 10)]),
        usb("1-5:1.1", "047f:c056", "010200", "snd-usb-audio", 8, words=headset, serial="A1B2C3"),
        usb("1-6:1.0", "054c:09cc", "030000", "usbhid", 9, words=("Sony", "Wireless Controller"),
            nodes=[hidraw(gamepad, 3), event(f"{gamepad}/input", 20, 12)]),
        usb("1-7:1.0", "04b8:0005", "070102", "usblp", 10, words=("EPSON", "USB Printer"),
            nodes=[Node(path="/dev/usb/lp0", subsystem="usbmisc", major=180, minor=16,
                        place="usbmisc/lp0")]),
    ]  # fmt: skip
    return replace(base, devices=sort_devices([*base.devices, *more]))


def server() -> Snapshot:
    """Two GPUs; the system on a RAID, data on a volume on an encrypted partition, the rest on NVMe
    disks.

    Only `nvme3` and the GPUs are free: `nvme0` serves the multipath disk that is mounted on
    `/var`, `nvme1` and `nvme2` make up the filesystem on `/srv`.
    """
    switch, pool = "0000:00:01.1/0000:01:00.0/0000:02:00.0", "7f9a2c1e-5d3b-4c8e-9a61-0f2b8d7e4c35"
    gpu = (AMD, "Navi 23 WKS-XL [Radeon PRO W6600]")
    disk = ("Samsung Electronics Co Ltd", "NVMe SSD Controller PM173X")
    devices = [
        pci("0000:00:01.1", "1022:1483", "060400", "pcieport"),
        pci("0000:00:01.1/0000:01:00.0", "1002:1478", "060400", "pcieport", words=(AMD, None)),
        pci(switch, "1002:1479", "060400", "pcieport", words=(AMD, None)),
        pci(f"{switch}/0000:03:00.0", "1002:73e3", "030000", "amdgpu", words=gpu,
            nodes=[drm("card1", 1), drm("renderD128", 128), i2c(0)]),
        pci("0000:00:03.1/0000:23:00.0", "1002:73e3", "030000", "amdgpu", words=gpu,
            nodes=[drm("card2", 2), drm("renderD129", 129), i2c(1)]),
        pci("0000:00:17.0", "8086:a182", "010601", "ahci", words=(INTEL, "C620"),
            nodes=scsi_disk("ata1/", 0, 0, 1)),
        pci("0000:00:18.0", "8086:a1d2", "010601", "ahci", words=(INTEL, "C620"),
            nodes=scsi_disk("ata7/", 6, 1, 2)),
        pci("0000:00:1d.0/0000:41:00.0", "144d:a824", "010802", "nvme", words=disk,
            nodes=nvme_disk(0, 0, 0, multipath=True), hidden_disks=["nvme0c0n1"]),
        pci("0000:00:1d.1/0000:42:00.0", "144d:a824", "010802", "nvme", words=disk,
            nodes=nvme_disk(1, 8, 1)),
        pci("0000:00:1d.2/0000:43:00.0", "144d:a824", "010802", "nvme", words=disk,
            nodes=nvme_disk(2, 16, 0)),
        pci("0000:00:1d.3/0000:44:00.0", "144d:a824", "010802", "nvme", words=disk,
            nodes=nvme_disk(3, 24, 2)),
        pci("0000:00:1f.6", "8086:1563", "020000", "ixgbe", words=(INTEL, "Ethernet 10G X550T")),
    ]  # fmt: skip
    uses = [
        Use(what="/", fstype="ext4", source="/dev/md0", number="9:0"),
        Use(what="/data", fstype="xfs", source="/dev/mapper/vault-data", number="253:1"),
        Use(what="/srv", fstype="btrfs", source="/dev/nvme1n1p1"),
        Use(what="/var", fstype="ext4", source="/dev/nvme0n1p1", number="259:33"),
        Use(what="swap", fstype="swap", source="/dev/dm-2"),
    ]
    disks = [
        Disk(name="md0", number="9:0", slaves=("sda1", "sdb1")),
        Disk(name="dm-0", number="253:0", slaves=("sdb2",), mapper="vault"),
        Disk(name="dm-1", number="253:1", slaves=("dm-0",), mapper="vault-data"),
        Disk(name="dm-2", number="253:2", slaves=("dm-0",), mapper="vault-swap"),
        Disk(name="nvme0n1", number="259:32"),
        Disk(name="nvme0n1p1", number="259:33", whole="nvme0n1"),
        Disk(name="nvme1n1p1", number="259:9", whole="nvme1n1", btrfs=(pool,)),
        Disk(name="nvme2n1", number="259:16", btrfs=(pool,)),
    ]
    return machine(devices, uses, disks)


def homelab() -> Snapshot:
    """A small node full of USB: twins, a UPS, a disk in use and one that is not, and a two-port
    serial adapter."""
    ups, ftdi = "0003:051D:0002.0001", ("FTDI", "Dual RS232-HS")
    devices = [
        pci("0000:00:14.0", "8086:31a8", "0c0330", "xhci_hcd", words=(INTEL, "N4100 xHCI")),
        pci("0000:00:1f.6", "10ec:8168", "020000", "r8169", words=("Realtek", "RTL8111")),
        root_hub(1, 2),
        root_hub(2, 3),
        usb("1-1:1.0", "10c4:ea60", "ff0000", "cp210x", 2, words=SILABS, serial="0001",
            nodes=[tty("ttyUSB0", 0)]),
        usb("1-2:1.0", "10c4:ea60", "ff0000", "cp210x", 3, words=SILABS, serial="0001",
            nodes=[tty("ttyUSB1", 1)]),
        usb("1-3:1.0", "051d:0002", "030000", "usbhid", 4, words=("APC", "Back-UPS XS 950U"),
            serial="3B2112X41890", nodes=[hidraw(ups, 0), hiddev(0)]),
        usb("1-4:1.0", "0403:6010", "ffffff", "ftdi_sio", 5, words=ftdi, serial="FT4XYZ",
            nodes=[tty("ttyUSB2", 2)]),
        usb("1-4:1.1", "0403:6010", "ffffff", "ftdi_sio", 5, words=ftdi, serial="FT4XYZ",
            nodes=[tty("ttyUSB3", 3)]),
        usb("2-1:1.0", "1058:25a2", "080650", "usb-storage", 2, words=("WD", "Elements 25A2"),
            serial="575834314443", nodes=scsi_disk("", 0, 0, 1)),
        usb("2-2:1.0", "0781:5581", "080650", "usb-storage", 3, words=("SanDisk", "Ultra"),
            serial="4C530001230818109192", nodes=scsi_disk("", 1, 1, 1)),
    ]  # fmt: skip
    uses = [
        Use(what="/", fstype="ext4", source="/dev/mmcblk0p2", number="179:2"),
        Use(what="/mnt/my backup", fstype="ext4", source="/dev/sda1", number="8:1"),
    ]
    disks = [
        Disk(name="mmcblk0", number="179:0"),
        Disk(name="mmcblk0p1", number="179:1", whole="mmcblk0"),
        Disk(name="mmcblk0p2", number="179:2", whole="mmcblk0"),
    ]
    return machine(devices, uses, disks)


def empty_vm() -> Snapshot:
    """A virtual machine with nothing to claim: its only disk is in use."""
    devices = [
        pci("0000:00:00.0", "8086:1237", "060000", words=(INTEL, "440FX - 82441FX PMC [Natoma]")),
        pci("0000:00:03.0", "1af4:1000", "020000", "virtio-pci", board="1af4:0001"),
        pci("0000:00:04.0", "1af4:1001", "010000", "virtio-pci", board="1af4:0002",
            nodes=virtio_disk(1, "vda", 2)),
    ]  # fmt: skip
    return machine(devices, [Use(what="/", fstype="ext4", source="/dev/vda2", number="254:2")])
