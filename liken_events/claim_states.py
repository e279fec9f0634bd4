"""What became of each claim of this machine, as a value.

The agent tells only its log. What is prepared stands in its records, what is wished for in the
claim files, and how a device fares is seen by a look at it.

This file puts the three together, without asking the agent. How it is shown is left to `tables`.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from liken_events.claims import spec_files_of
from liken_events.cluster.claim_file import ClaimFile
from liken_events.config import Config
from liken_events.core.model.claims import Refused, read_claim
from liken_events.core.model.health import health
from liken_events.core.model.json import Json
from liken_events.core.model.prepared import Prepared, holder, look_at, resolve
from liken_events.core.plan.cdi import device_id
from liken_events.core.plan.slice_body import DRIVER
from liken_events.sources.looks import Looks

NO_AGENT = "the agent has not prepared it: is 'liken-events run' running? Its log says why"


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceState:
    """A claim's device: its published name, the id for a runtime, how it stands, what is wrong
    with it, and its nodes now."""

    name: str
    cdi_id: str
    presence: str = ""
    trouble: str = ""
    nodes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimState:
    """What became of a claim.

    Attributes:
        claim: `namespace/name`.
        uid: `""` if its file never said one.
        state: `prepared`, `unhealthy`, `waiting` or `broken`.
        reason: why it is not prepared, or what is wrong with its file.
        devices: those of our driver.
    """

    claim: str
    uid: str
    state: str
    reason: str = ""
    devices: tuple[DeviceState, ...] = ()

    def to_json(self) -> dict[str, Json]:
        """The state as one JSON object."""
        return {
            "claim": self.claim,
            "uid": self.uid,
            "state": self.state,
            "reason": self.reason,
            "devices": [
                {
                    "device": device.name,
                    "cdi": device.cdi_id,
                    "presence": device.presence,
                    "trouble": device.trouble,
                    "nodes": list(device.nodes),
                }
                for device in self.devices
            ],
        }


def claim_states(config: Config, looks: Looks, files: Iterable[ClaimFile]) -> list[ClaimState]:
    """All claims, from their files and from what is prepared, by name.

    Raises:
        OSError: the machine, or the records, cannot be read; they are readable by the agent's user
            alone.
    """
    records = {item.reference.uid: item for item in spec_files_of(config).peek()}
    found: dict[str, ClaimState] = {}
    all_records = tuple(records.values())
    for file in files:
        record = records.pop(file.uid, None)
        if file.problem:
            state = _broken(file)
        elif record is not None:
            state = _prepared(config, looks, record)
        else:
            state = _waiting(config, looks, file, all_records)
        found[str(file.reference)] = state
    for record in records.values():
        found[str(record.reference)] = _prepared(config, looks, record)
    return [found[name] for name in sorted(found)]


def _broken(file: ClaimFile) -> ClaimState:
    return ClaimState(claim=str(file.reference), uid=file.uid, state="broken", reason=file.problem)


def _prepared(config: Config, looks: Looks, record: Prepared) -> ClaimState:
    uid = record.reference.uid
    devices = []
    for device in record.devices:
        sight = look_at(device, looks.at(device.key), config.aliases)
        devices.append(
            DeviceState(
                name=device.name,
                cdi_id=device_id(uid, device.name),
                presence=sight.presence,
                trouble=health(device, sight).message,
                nodes=tuple(node.path for node in sight.nodes),
            )
        )
    is_well = not any(device.trouble for device in devices)
    return ClaimState(
        claim=str(record.reference),
        uid=uid,
        state="prepared" if is_well else "unhealthy",
        devices=tuple(devices),
    )


def _waiting(
    config: Config, looks: Looks, file: ClaimFile, records: Collection[Prepared]
) -> ClaimState:
    found = read_claim(file.body, file.reference, DRIVER)
    if isinstance(found, Refused):
        return ClaimState(
            claim=str(file.reference), uid=file.uid, state="waiting", reason=found.reason
        )
    reasons = []
    for item in found.allocated:
        resolved = resolve(item, looks.named(item.device), None, config.aliases)
        if isinstance(resolved, Refused):
            reasons.append(resolved.reason)
        elif (other := holder(resolved, records)) is not None:
            reasons.append(f"{item.device} is prepared for the claim {other.reference}")
    return ClaimState(
        claim=str(file.reference),
        uid=file.uid,
        state="waiting",
        reason=reasons[0] if reasons else NO_AGENT,
        devices=tuple(
            DeviceState(name=item.device, cdi_id=device_id(file.uid, item.device))
            for item in found.allocated
        ),
    )
