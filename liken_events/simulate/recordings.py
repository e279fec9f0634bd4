"""The recorded machine that comes with the package.

A recording is a snapshot in its JSON form, as `liken-events snapshot` writes it. `desk` is a
desktop computer with a GPU, sound, three disks, and the USB devices that people give to workloads:
a Zigbee stick, a UPS, a radio, a webcam.

What the JSON means is said in `core.model.snapshot`; making a machine of it is left to
`simulate.tree`.
"""

from importlib import resources

from liken_events.core.model.recording import from_json
from liken_events.core.model.snapshot import Snapshot


def desk() -> Snapshot:
    """The desktop computer of the demonstration."""
    return from_json(resources.files(__package__).joinpath("desk.json").read_text("utf-8"))
