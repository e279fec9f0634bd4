"""The commands for claims on one machine: `claim`, `claims`, `release`.

Without a cluster nobody schedules: a person chooses a device, and the claim file says that it was
allocated. The agent prepares it and writes the CDI spec, which podman and other runtimes read.

This file writes and removes claim files, and waits for what the agent makes of it. The files are
in `cluster.claim_files`, what became of claims in `commands.claim_states`, the tables in `tables`.
"""

import os
import sys
import uuid
from collections.abc import Callable, Iterable

import trio

from liken_events import tables
from liken_events.agent import choose_cluster, policy_of, roots_of
from liken_events.arguments import Arguments
from liken_events.claim_states import NO_AGENT, ClaimState, claim_states
from liken_events.claims import spec_files_of
from liken_events.cluster import ClusterError
from liken_events.cluster.claim_file import ClaimFile
from liken_events.cluster.claim_files import ClaimFiles
from liken_events.cluster.directory import DirectoryCluster
from liken_events.commands import CommandError
from liken_events.config import Config, check_roots
from liken_events.core.model.claims import API_VERSION, KIND, Claim, is_device_name, read_claim
from liken_events.core.model.json import Json, dump
from liken_events.core.model.names import printable
from liken_events.core.plan.cdi import device_id
from liken_events.core.plan.slice_body import DRIVER
from liken_events.inotify import DirectoryWatch
from liken_events.sources.looks import Looks

NAMESPACE = "default"
"""Of claims that `claim` makes, and of a name without one."""

PREPARE_SECONDS = 6.0
"""How long to wait for the agent: it waits 5 s for a device that is being plugged in."""


def claim(config: Config, arguments: Arguments) -> int:
    """Writes a claim for devices, waits until it is prepared, and prints its CDI ids."""
    check_roots(config)
    files = _files(config, prepare=True)
    looks = _looks(config)
    names = [_published_name(looks, device) for device in arguments.devices]
    if len(set(names)) < len(names):
        raise CommandError("one of the devices is named twice")
    name = arguments.name or names[0]
    uid = str(uuid.uuid4())
    try:
        with files.locked():
            for device in names:
                _check_free(looks, files.list(), device)
            files.write(_body(config, name, uid, names))
    except ClusterError as error:
        raise CommandError(f"no claim was made: {error.reason}") from None
    for device in names:
        sys.stdout.write(device_id(uid, device) + "\n")
    sys.stdout.flush()
    path = spec_files_of(config).spec_path(uid)
    if trio.run(_wait_until, path, lambda: os.path.exists(path)):
        return 0
    states = _states(config, looks, files.list())
    state = next((item for item in states if item.uid == uid), None)
    reason = NO_AGENT if state is None or not state.reason else state.reason
    sys.stderr.write(f"liken-events: the claim {NAMESPACE}/{name} waits: {reason}\n")
    return 1


def claims(config: Config, arguments: Arguments) -> int:
    """Lists all claims of this machine with what became of them."""
    check_roots(config)
    cluster = choose_cluster(config, os.environ, prepare=False)
    files = cluster.claims.list() if isinstance(cluster, DirectoryCluster) else ()
    found = _states(config, _looks(config), files)
    if arguments.output == "json":
        sys.stdout.write(dump([state.to_json() for state in found], indent=2) + "\n")
        return 0
    out = tables.console()
    if found:
        tables.claims(found, out)
    else:
        out.print("no claims; 'liken-events claim DEVICE' makes one", style="dim")
    return 0


def release(config: Config, arguments: Arguments) -> int:
    """Removes a claim, and waits until its devices are given back."""
    files = _files(config, prepare=False)
    namespace, _, name = (arguments.name or "").rpartition("/")
    namespace = namespace or NAMESPACE
    known = {(file.namespace, file.name): file for file in files.list()}
    try:
        if not files.remove(namespace, name):
            raise CommandError(
                f"there is no claim {printable(f'{namespace}/{name}')}; "
                "'liken-events claims' lists them"
            )
    except ClusterError as error:
        raise CommandError(error.reason) from None
    file = known.get((namespace, name))
    if file is None or not file.uid:
        return 0
    path = spec_files_of(config).spec_path(file.uid)
    if not trio.run(_wait_until, path, lambda: not os.path.exists(path)):
        raise CommandError(
            f"the claim is removed, but {path} is still there: 'liken-events run' gives its "
            "devices back, and does not seem to run"
        )
    return 0


def _files(config: Config, *, prepare: bool) -> ClaimFiles:
    cluster = choose_cluster(config, os.environ, prepare=prepare)
    if not isinstance(cluster, DirectoryCluster):
        raise CommandError(
            f"claims are files only on a machine without a cluster; with {cluster.description} "
            "make a ResourceClaim there, or say --cluster directory"
        )
    return cluster.claims


def _looks(config: Config) -> Looks:
    return Looks(roots_of(config), policy_of(config))


def _states(config: Config, looks: Looks, files: Iterable[ClaimFile]) -> list[ClaimState]:
    try:
        return claim_states(config, looks, files)
    except PermissionError as error:
        raise CommandError(
            f"{error.filename} cannot be read: {error.strerror}; ask as the agent's user"
        ) from None


def _published_name(looks: Looks, text: str) -> str:
    """The device that is meant, by its name or by an address that stands for one device."""
    if is_device_name(text) and text.startswith(("usb-", "pci-")):
        return text
    offered = looks.addressed(text)
    if len(offered) == 1:
        return offered[0]
    if offered:
        raise CommandError(f"'{text}' is several devices: name one of {', '.join(offered)}")
    raise CommandError(
        f"no device that can be claimed is called '{text}'; 'liken-events inventory' lists them"
    )


def _check_free(looks: Looks, files: Iterable[ClaimFile], device: str) -> None:
    """Raises CommandError if the device is withheld, or another claim has it for itself."""
    judgement = looks.named(device)
    if judgement is not None:
        published = {item.name: item for item in judgement.published}
        if device not in published:
            why = judgement.withheld
            reason = (
                "it is no part of its device" if why is None else f"{why.reason}: {why.detail}"
            )
            raise CommandError(f"{device} cannot be claimed: {reason}")
        if published[device].shareable:
            return
    for file in files:
        found = read_claim(file.body, file.reference, DRIVER)
        if isinstance(found, Claim) and any(item.device == device for item in found.allocated):
            raise CommandError(
                f"{device} is held by the claim {file.reference}; 'liken-events release "
                f"{file.reference}' ends it"
            )


def _body(config: Config, name: str, uid: str, devices: Iterable[str]) -> dict[str, Json]:
    """The ResourceClaim as the scheduler would leave it."""
    results: list[Json] = [
        {
            "request": f"device-{index}",
            "driver": DRIVER,
            "pool": config.node_name,
            "device": device,
        }
        for index, device in enumerate(devices)
    ]
    requests: list[Json] = [
        {"name": f"device-{index}", "exactly": {"deviceClassName": DRIVER}}
        for index in range(len(results))
    ]
    return {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "metadata": {"namespace": NAMESPACE, "name": name, "uid": uid},
        "spec": {"devices": {"requests": requests}},
        "status": {"allocation": {"devices": {"results": results}}},
    }


async def _wait_until(path: str, is_done: Callable[[], bool]) -> bool:
    """Waits until something is done about a file; whether it was."""
    with DirectoryWatch(os.path.dirname(path)) as watch, trio.move_on_after(PREPARE_SECONDS):
        while not is_done():
            await watch.changed()
    return is_done()
