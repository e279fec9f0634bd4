"""Recorded machines: the one that comes with the package, and files of users.

A recording is a snapshot in its JSON form, as `liken-events snapshot` writes it. `desk` is a
desktop computer with a GPU, sound, three disks, and the USB devices that people give to workloads:
a Zigbee stick, a UPS, a radio, a webcam.

What the JSON means is said in `core.model.snapshot`; making a machine of it is left to
`simulate.tree`.
"""

from importlib import resources

from liken_events.core.model.recording import from_json
from liken_events.core.model.snapshot import Snapshot

DESK = "desk"
"""Name of the machine that comes with the package."""


def desk() -> Snapshot:
    """The desktop computer of the demonstration."""
    return from_json(resources.files(__package__).joinpath("desk.json").read_text("utf-8"))


def load(name: str) -> Snapshot:
    """The machine of the package of that name, or else the one that a file of that path holds.

    Raises:
        OSError: there is no such file, or it cannot be read.
        RecordingError: the file holds no snapshot.
    """
    if name == DESK:
        return desk()
    with open(name, encoding="utf-8", errors="replace") as file:
        return from_json(file.read())
