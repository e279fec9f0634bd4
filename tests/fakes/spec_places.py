"""The two directories of specs and records, with claims in them."""

import os
from pathlib import Path

from liken_events.core.model.prepared import Prepared, Presence, Sight
from liken_events.core.plan.cdi import spec
from liken_events.sinks.spec_files import SpecFiles
from tests.fakes.held import held, prepared
from tests.fakes.keeping import OTHER, STICK

UID, SECOND = "3f1c2a9e-7d5b-4f0a-9c1e-2b8d6a4e0f13", "0c2d6a4e-7d5b-4f0a-9c1e-2b8d6a4e0f13"
CLAIM, OTHERS = prepared(held(STICK), uid=UID), prepared(held(OTHER), uid=SECOND)


def text_of(claim: Prepared) -> str:
    """The spec of a claim whose devices are there."""
    sights = {d.name: Sight(presence=Presence.THERE, nodes=d.nodes) for d in claim.devices}
    text = spec(claim, sights, lambda *_: None)
    assert text is not None
    return text


class Place:
    """The two directories."""

    def __init__(self, top: Path) -> None:
        self.cdi, self.records = top / "cdi", top / "records"
        self.files = self.anew()

    def anew(self, boot: str = "boot-1") -> SpecFiles:
        """What reads and writes them after a restart."""
        return SpecFiles(cdi=str(self.cdi), records=str(self.records), boot=boot)

    def write(self, *claims: Prepared) -> None:
        for claim in claims:
            self.files.records.write(claim)
            self.files.write_spec(claim.reference.uid, text_of(claim))

    def spec(self, uid: str = UID) -> Path:
        return self.cdi / f"liken.sh-{uid}.json"

    def record(self, uid: str = UID) -> Path:
        return self.records / f"{uid}.json"

    @property
    def names(self) -> list[str]:
        places = (self.cdi, self.records)
        return sorted(name for place in places if place.is_dir() for name in os.listdir(place))


def identity(path: Path) -> tuple[int, int, int]:
    """What changes if a file is written, exchanged, or given another mode."""
    found = path.lstat()
    return found.st_ino, found.st_mtime_ns, found.st_mode
