"""Configuration: one frozen value from defaults, a file, the environment and the command line.

An agent runs from a unit file, a DaemonSet or a shell, and each of them has its own way to say a
thing. Later beats earlier: file, environment (`LIKEN_EVENTS_…`), flag. A wrong value must be found
at the start and by name, not by what it does an hour later.

This file merges the three ways and checks every value. It reads the file and looks at paths; it
starts nothing. Which settings there are is said in `options`.
"""

import difflib
import os
import re
import socket
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from liken_events.core.model.host_devices import (
    KVM,
    BadHostDevice,
    HostDevice,
    check_together,
    from_table,
    from_text,
)
from liken_events.core.model.names import printable
from liken_events.core.model.prepared import Aliases
from liken_events.core.timing import Timing
from liken_events.options import BY_KEY, ENVIRONMENT, Kind, Option, Raw

CONFIG_VARIABLE = ENVIRONMENT + "CONFIG"
"""Names the file, where no flag does."""

NODE_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?")
"""A DNS subdomain, as node names are."""

LONGEST_NODE_NAME = 253 - len("-liken.sh-99")
"""The slice's name is made of it and is a DNS subdomain of at most 253 characters."""

INSTANCE = re.compile(r"[A-Za-z0-9][-A-Za-z0-9._]{0,62}")
"""A part of a socket's file name, with room for any uid."""

_SERVICE_LINK = re.compile(r"(\w+_)?(SERVICE_(HOST|PORT.*)|PORT(_\d+_(TCP|UDP|SCTP).*)?)")
"""What Kubernetes puts into every pod's environment for a service that happens to be named
`liken-events`, or `liken-events-metrics`."""

CDI_DIRECTORY = "/var/run/cdi"
RECORD_DIRECTORY = "/run/liken-events"
"""Both are on a tmpfs: what they hold means nothing after a boot."""

NOTHING = "none"
"""Instead of a list of host devices: there are none, the default included."""

_ALIAS = re.compile(r"[0-9a-f]{4}:[0-9a-f]{4}(=[0-9a-f]{4}:[0-9a-f]{4})+", re.IGNORECASE)

Value: TypeAlias = str | float | bool | tuple[str, ...] | tuple[HostDevice, ...]

MOST_SECONDS = 1e9
"""Longest time that can be set: thirty years, which no clock arithmetic here overflows with."""


class ConfigError(Exception):
    """One sentence that names the file, variable or flag, the key, and what is wrong."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """All settings. Field names are the options' keys."""

    node_name: str = ""
    cluster: str = "auto"
    cluster_dir: str = ""
    sys_root: str = "/sys"
    dev_root: str = "/dev"
    proc_root: str = "/proc"
    cdi_dir: str = CDI_DIRECTORY
    record_dir: str = ""
    kubelet: str = "auto"
    kubelet_dir: str = "/var/lib/kubelet"
    instance: str = ""
    device_plugin_dir: str = "/var/lib/kubelet/device-plugins"
    host_devices: tuple[HostDevice, ...] = (KVM,)
    pci_ids: str = ""
    uevents: str = "auto"
    log_format: str = "auto"
    log_level: str = "info"
    settle_quiet: float = Timing().quiet
    settle_ceiling: float = Timing().ceiling
    settle_longest: float = Timing().longest
    settle_probing_usb: float = Timing().probing_usb
    settle_probing_pci: float = Timing().probing_pci
    settle_probing_disk: float = Timing().probing_disk
    safety_interval: float = 600.0
    protect: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()
    alias: tuple[str, ...] = ()
    divide_pool: bool = False

    @property
    def timing(self) -> Timing:
        """The settle times."""
        return Timing(
            quiet=self.settle_quiet,
            ceiling=self.settle_ceiling,
            longest=self.settle_longest,
            probing_usb=self.settle_probing_usb,
            probing_pci=self.settle_probing_pci,
            probing_disk=self.settle_probing_disk,
        )

    @property
    def aliases(self) -> Aliases:
        """The models that are one."""
        return Aliases(groups=tuple(frozenset(text.lower().split("=")) for text in self.alias))


def load(
    *, file: str | None, environ: Mapping[str, str], flags: Mapping[str, Raw | None]
) -> Config:
    """Merges the three ways and checks every value.

    Args:
        file: path of a TOML file, or None.
        environ: the process's environment.
        flags: option key to value, None where the flag was not given.

    Raises:
        ConfigError: the first thing that is wrong.
    """
    values: dict[str, Value] = {}
    origins = {key: option.flag for key, option in BY_KEY.items()}
    if file is not None:
        for key, raw in _read_file(file).items():
            origins[key] = f"{file}: '{key}'"
            values[key] = _checked(BY_KEY[key], raw, origins[key])
    for variable, text in sorted(environ.items()):
        option = _option_of_variable(variable)
        if option is not None:
            origins[option.key] = variable
            values[option.key] = _checked(option, _from_text(option, text), variable)
    for key, flag in flags.items():
        if flag is not None:
            raw = _from_text(BY_KEY[key], flag) if isinstance(flag, str) else flag
            origins[key] = BY_KEY[key].flag
            values[key] = _checked(BY_KEY[key], raw, origins[key])
    values.setdefault("node_name", socket.gethostname().lower())
    values.setdefault("cluster_dir", default_directory(environ, os.geteuid()))
    values.setdefault("record_dir", default_records(str(values.get("cdi_dir", CDI_DIRECTORY))))
    _check_contents(values, origins)
    return Config(**values)  # type: ignore[arg-type]  # each value was checked by its option's kind


def _check_contents(values: Mapping[str, Value], origins: Mapping[str, str]) -> None:
    """Refuses texts that are of the right kind, and cannot mean anything."""
    aliases = values.get("alias", ())
    for alias in map(str, aliases if isinstance(aliases, tuple) else ()):
        if not _ALIAS.fullmatch(alias):
            raise ConfigError(
                f"{origins['alias']}: {alias!r} is not of the form vendor:product=vendor:product "
                "(four hex digits each), such as 1a6e:089a=18d1:9302"
            )
    protected = values.get("protect", ())
    for path in map(str, protected if isinstance(protected, tuple) else ()):
        if not os.path.normpath(path).startswith("/dev/") or "\0" in path:
            raise ConfigError(f"{origins['protect']}: {path!r} is no path under /dev")
    name = values["node_name"]
    if not isinstance(name, str) or not NODE_NAME.fullmatch(name) or len(name) > LONGEST_NODE_NAME:
        raise ConfigError(
            f"{origins['node_name']}: {name!r} is no name that a Kubernetes node can have "
            "(lower case letters, digits, '-' and '.')"
        )
    instance = values.get("instance")
    if isinstance(instance, str) and not INSTANCE.fullmatch(instance):
        raise ConfigError(
            f"{origins['instance']}: {instance!r} cannot be part of a socket's name (at most "
            "63 letters, digits, '-', '.' and '_', the first a letter or digit)"
        )


def default_directory(environ: Mapping[str, str], uid: int) -> str:
    """The embedded default's directory: the system's for root, the user's own otherwise."""
    if uid == 0:
        return "/var/lib/liken-events"
    state = environ.get("XDG_STATE_HOME") or os.path.join(
        environ.get("HOME") or os.path.expanduser("~"), ".local", "state"
    )
    return os.path.join(state, "liken-events")


def default_records(cdi_dir: str) -> str:
    """Where records go: never into the directory that runtimes read, and with the same life."""
    return RECORD_DIRECTORY if cdi_dir == CDI_DIRECTORY else f"{cdi_dir}.records"


def check_roots(config: Config) -> None:
    """Looks whether the roots are what they should be.

    Raises:
        ConfigError: one is no directory, or the sysfs root has no sysfs in it.
    """
    for key in ("sys_root", "dev_root", "proc_root"):
        path = getattr(config, key)
        if not os.path.isdir(path):
            raise ConfigError(f"{BY_KEY[key].flag}: {path} is no directory")
    if not any(os.path.isdir(os.path.join(config.sys_root, name)) for name in ("bus", "devices")):
        raise ConfigError(
            f"--sys-root: {config.sys_root} is no sysfs tree: it has neither 'bus' nor 'devices'"
        )
    if os.path.realpath(config.record_dir) == os.path.realpath(config.cdi_dir):
        raise ConfigError(
            f"--record-dir: {config.record_dir} is the CDI directory, which runtimes read; name "
            "another one"
        )
    if config.pci_ids and not os.path.isfile(config.pci_ids):
        raise ConfigError(f"--pci-ids: {config.pci_ids} is no file")


def _read_file(path: str) -> dict[str, Raw]:
    try:
        with open(path, "rb") as file:
            content = tomllib.loads(file.read().decode("utf-8-sig"))  # some editors write a BOM
        pairs = _flatten(content)
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from None
    except RecursionError:
        raise ConfigError(f"{path}: is no TOML: too many levels") from None
    except ValueError as error:  # of TOML, of UTF-8, or of a number with thousands of digits
        raise ConfigError(f"{path}: is no TOML: {error}") from None
    found: dict[str, Raw] = {}
    for key, value in pairs:
        if key not in BY_KEY:
            near = difflib.get_close_matches(key, BY_KEY, n=1)
            hint = f"; did you mean '{near[0]}'?" if near else ""
            raise ConfigError(f"{path}: unknown key '{key}'{hint}")
        if key in found:
            raise ConfigError(f"{path}: '{key}' is given twice, once in another spelling")
        found[key] = value
    return found


def _flatten(table: Mapping[str, object], prefix: str = "") -> list[tuple[str, Raw]]:
    """`[settle] quiet = 1` is `settle_quiet = 1`; a dash in a key is an underscore."""
    found: list[tuple[str, Raw]] = []
    for name, value in table.items():
        key = prefix + name.replace("-", "_")
        is_group = bool(value) or any(known.startswith(f"{key}_") for known in BY_KEY)
        if (
            isinstance(value, dict)
            and is_group
            and not (key in BY_KEY and BY_KEY[key].kind == "tables")
        ):
            found += _flatten(value, key + "_")
        else:
            found.append((key, value))  # type: ignore[arg-type]  # checked by `_checked`
    return found


def _option_of_variable(variable: str) -> Option | None:
    if not variable.startswith(ENVIRONMENT):
        return None
    rest = variable.removeprefix(ENVIRONMENT)
    option = BY_KEY.get(rest.lower())
    if option is None and variable != CONFIG_VARIABLE and not _SERVICE_LINK.fullmatch(rest):
        raise ConfigError(f"{variable}: there is no such setting")
    return option


def _from_text(option: Option, text: str) -> Raw:
    """The value that a variable's text means; a text that means none is left for the check to
    refuse."""
    if option.kind in ("list", "tables"):
        return [part.strip() for part in text.split(",") if part.strip()]
    if option.kind == "switch":
        return {"true": True, "1": True, "false": False, "0": False}.get(text.lower(), text)
    if option.kind == "number":
        try:
            return float(text)
        except ValueError:
            return text
    return text


def _checked(option: Option, raw: object, where: str) -> Value:
    """The value, if it is one that the option takes."""
    try:
        value = _CHECKS[option.kind](raw, option)
    except BadHostDevice as error:
        raise ConfigError(f"{where}: {error}") from None
    if value is None:
        expected = _EXPECTED[option.kind] or f"one of {', '.join(option.choices)}"
        try:
            shown = repr(raw)
        except ValueError:  # Python writes no number with more than 4300 digits
            shown = "a huge number"
        raise ConfigError(f"{where}: expected {expected}, found {shown}")
    return value


_EXPECTED: Mapping[Kind, str] = {
    "number": "a number of seconds above 0",
    "switch": "true or false",
    "list": "a list of texts",
    "tables": "a list: tables with [[ ]] around their heading, or texts RESOURCE=PATH",
    "choice": "",
    "path": "a path",
    "text": "a text",
}


def _number(raw: object, _: Option) -> Value | None:
    is_number = (
        isinstance(raw, int | float) and not isinstance(raw, bool) and 0 < raw < MOST_SECONDS
    )
    return float(raw) if is_number and isinstance(raw, int | float) else None


def _switch(raw: object, _: Option) -> Value | None:
    return raw if isinstance(raw, bool) else None


def _list(raw: object, _: Option) -> Value | None:
    if isinstance(raw, list | tuple) and all(isinstance(item, str) for item in raw):
        return tuple(raw)
    return None


def _tables(raw: object, _: Option) -> Value | None:
    if not isinstance(raw, list | tuple) or not all(isinstance(i, str | dict) for i in raw):
        return None
    items = [] if list(raw) == [NOTHING] else raw
    found = tuple(_host_device(number, item) for number, item in enumerate(items, 1))
    check_together(found)
    return found


def _host_device(number: int, item: str | Mapping[str, object]) -> HostDevice:
    """One of a list; what is wrong with it is said with its name, or its number."""
    name = item if isinstance(item, str) else item.get("resource") or f"entry {number}"
    try:
        return from_text(item) if isinstance(item, str) else from_table(item)
    except BadHostDevice as error:
        raise BadHostDevice(f"'{printable(str(name))}': {error}") from None


def _choice(raw: object, option: Option) -> Value | None:
    return raw if isinstance(raw, str) and raw in option.choices else None


def _path(raw: object, _: Option) -> Value | None:
    return os.path.abspath(raw) if isinstance(raw, str) and raw and "\0" not in raw else None


def _filled(raw: object, _: Option) -> Value | None:
    return raw if isinstance(raw, str) and raw else None


_CHECKS: Mapping[Kind, Callable[[object, Option], Value | None]] = {
    "number": _number,
    "switch": _switch,
    "list": _list,
    "tables": _tables,
    "choice": _choice,
    "path": _path,
    "text": _filled,
}
