"""A kubelet that is a process of its own, so that it can be killed: all of its connections end at
once and without a word, and its socket stays.

As a program it lives until it is killed, for a minute at most.
"""

import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import trio

from tests.fakes.device_kubelet import DeviceKubelet
from tests.fakes.offered import works

LONGEST = 60.0


@asynccontextmanager
async def killed(root: Path) -> AsyncIterator[int]:
    """A kubelet with which the plugin of `FEW` is registered and usable; killed at the end of the
    block. Gives the number of registrations by then."""
    line = [sys.executable, "-m", __name__, str(root)]
    start = partial(subprocess.Popen, line, stdout=subprocess.PIPE, text=True)
    with await trio.to_thread.run_sync(start) as process:
        assert process.stdout is not None
        try:
            yield int(await trio.to_thread.run_sync(process.stdout.readline))
        finally:
            process.kill()


async def main(root: Path) -> None:
    kubelet = DeviceKubelet(root)
    with trio.move_on_after(LONGEST):
        async with kubelet.present():
            life = await kubelet.start(way="bind")
            await works(kubelet)
            sys.stdout.write(f"{len(life.registrations)}\n")
            sys.stdout.flush()
            await trio.sleep_forever()


if __name__ == "__main__":
    trio.run(main, Path(sys.argv[1]))
