"""The list of settings: what there is, what each takes, and what it is for.

Each setting can be given in a file, in the environment and on the command line, and is explained
in the help. One table keeps the four in step.

Reading the three ways and checking the values is left to `config`, the help to `arguments`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

ENVIRONMENT = "LIKEN_EVENTS_"

Kind: TypeAlias = Literal["text", "choice", "path", "number", "switch", "list", "tables"]
Raw: TypeAlias = str | float | bool | Sequence[object]


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """One setting: its key (`settle_quiet`), what it takes, and what it is for."""

    key: str
    kind: Kind
    help: str
    choices: tuple[str, ...] = ()
    metavar: str = ""

    @property
    def flag(self) -> str:
        """`--settle-quiet`"""
        return "--" + self.key.replace("_", "-")

    @property
    def variable(self) -> str:
        """`LIKEN_EVENTS_SETTLE_QUIET`"""
        return ENVIRONMENT + self.key.upper()


OPTIONS = (
    Option(
        key="node_name",
        kind="text",
        metavar="NAME",
        help="name of this node: the pool, and part of the slice's name (default: the host name)",
    ),
    Option(
        key="cluster",
        kind="choice",
        choices=("auto", "kubernetes", "directory"),
        help="where slices go; auto takes in-cluster configuration, else KUBECONFIG, else a "
        "directory",
    ),
    Option(
        key="cluster_dir",
        kind="path",
        metavar="DIR",
        help="the directory that stands for an API server (default: /var/lib/liken-events "
        "for root, else $XDG_STATE_HOME/liken-events)",
    ),
    Option(
        key="sys_root",
        kind="path",
        metavar="DIR",
        help="what is /sys on the machine that is looked at",
    ),
    Option(
        key="dev_root",
        kind="path",
        metavar="DIR",
        help="what is /dev there",
    ),
    Option(
        key="proc_root",
        kind="path",
        metavar="DIR",
        help="what is /proc there: the host's, not the container's",
    ),
    Option(
        key="cdi_dir",
        kind="path",
        metavar="DIR",
        help="where CDI specs of prepared claims go: a directory that the runtime reads",
    ),
    Option(
        key="record_dir",
        kind="path",
        metavar="DIR",
        help="where it is remembered what prepared claims hold (default: /run/liken-events; for "
        "specs elsewhere, their directory with .records appended)",
    ),
    Option(
        key="kubelet",
        kind="choice",
        choices=("auto", "on", "off"),
        help="whether to register with the kubelet; auto does with an API server, not with a "
        "directory",
    ),
    Option(
        key="kubelet_dir",
        kind="path",
        metavar="DIR",
        help="the kubelet's root directory",
    ),
    Option(
        key="instance",
        kind="text",
        metavar="NAME",
        help="what sets this agent apart from another one on the node, such as its pod's uid: "
        "both serve the kubelet while one replaces the other (default: they take turns)",
    ),
    Option(
        key="device_plugin_dir",
        kind="path",
        metavar="DIR",
        help="where the kubelet has the sockets of device plugins, whatever its root directory is",
    ),
    Option(
        key="host_devices",
        kind="tables",
        metavar="RESOURCE=PATH",
        help="an extended resource that any number of pods may have, and its node: several have + "
        "between them, a pattern gives one unit for each match; none for no resource at all; may "
        "be repeated",
    ),
    Option(
        key="pci_ids",
        kind="path",
        metavar="FILE",
        help="the pci.ids database that names PCI devices (default: the first of the usual "
        "places)",
    ),
    Option(
        key="uevents",
        kind="choice",
        choices=("auto", "udev", "kernel"),
        help="whose uevents to listen to; auto takes udevd's where they can be heard",
    ),
    Option(
        key="log_format",
        kind="choice",
        choices=("auto", "console", "json"),
        help="form of the log on standard error; auto takes console on a terminal",
    ),
    Option(
        key="log_level",
        kind="choice",
        choices=("debug", "info", "warning", "error"),
        help="least important log lines to show",
    ),
    Option(
        key="settle_quiet",
        kind="number",
        metavar="SECONDS",
        help="a device that is plugged in is looked at after this long without an event",
    ),
    Option(
        key="settle_ceiling",
        kind="number",
        metavar="SECONDS",
        help="and after this long at the latest",
    ),
    Option(
        key="settle_longest",
        kind="number",
        metavar="SECONDS",
        help="what the ceiling grows to for a device that is never quiet",
    ),
    Option(
        key="settle_probing_usb",
        kind="number",
        metavar="SECONDS",
        help="longest wait for a driver's probe after a USB device was added",
    ),
    Option(
        key="settle_probing_pci",
        kind="number",
        metavar="SECONDS",
        help="longest wait for a driver's probe after a PCI device was added",
    ),
    Option(
        key="settle_probing_disk",
        kind="number",
        metavar="SECONDS",
        help="longest wait for a disk's or tape's driver after a device found one",
    ),
    Option(
        key="safety_interval",
        kind="number",
        metavar="SECONDS",
        help="how often everything is read again without a reason",
    ),
    Option(
        key="protect",
        kind="list",
        metavar="DISK",
        help="a block device that belongs to the machine, mounted or not, such as "
        "/dev/disk/by-id/...; may be repeated",
    ),
    Option(
        key="ignore",
        kind="list",
        metavar="PATTERN",
        help="devices that are not published: address, name, vendor:product or driver=NAME, "
        "with * and ?; may be repeated",
    ),
    Option(
        key="alias",
        kind="list",
        metavar="MODELS",
        help="models that are one device, which comes back with other ids when it is used: "
        "vendor:product=vendor:product, such as 1a6e:089a=18d1:9302; may be repeated",
    ),
    Option(
        key="divide_pool",
        kind="switch",
        help="spread more than 128 devices over several slices instead of leaving devices out",
    ),
)

BY_KEY = {option.key: option for option in OPTIONS}
