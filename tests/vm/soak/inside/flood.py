"""A flood of uevents: `python -m tests.vm.soak.inside.flood 3000`.

Writing an action to a device's `uevent` makes the kernel tell of it. The device is `/dev/null`,
which is in nobody's way; the agent's filter lets it through, since it might be hardware.
"""

import os
import sys


def main(count: int) -> None:
    """Has the kernel tell of so many changes, as fast as it can."""
    descriptor = os.open("/sys/class/mem/null/uevent", os.O_WRONLY)
    for _ in range(count):
        os.pwrite(descriptor, b"change", 0)


main(int(sys.argv[1]))
