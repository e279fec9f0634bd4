"""Other agents made of the same code, to compare with: `python -m bench.variants NAME run …`.

`poller` has no source of events: it reads the whole machine at each safety interval and publishes
what differs, by the same plan and the same sink. That is what agents do that do not listen.

`late` hears nothing of the kubelet: it looks every second whether there is another one, and tries
again five seconds after it failed to register, as device plugins do.

`whole` replaces the slice as a whole at each change, by a PUT at the version that it saw, and gets
it back as the answer, as clients do.

`unfiltered` is the agent on a kernel that takes no socket filter: it reads and discards the noise
itself.
"""

import os
import sys
from collections.abc import Sequence
from typing import Any

import trio

from bench.agent_process import Variant
from liken_events import cli, log
from liken_events.agent import choose_cluster, run_agent
from liken_events.arguments import parse
from liken_events.commands.follow import Teller
from liken_events.config import load
from liken_events.core.backoff import Backoff
from liken_events.core.plan.slices import ObservedSlice, PatchSlice
from liken_events.latest import Latest
from liken_events.sources import uevent_filter

_MODULE = "bench.variants"

POLLER = Variant(module=_MODULE, words=("poller",))
LATE = Variant(module=_MODULE, words=("late",))
UNFILTERED = Variant(module=_MODULE, words=("unfiltered",))
WHOLE = Variant(module=_MODULE, words=("whole",))


def _poll(words: list[str]) -> int:
    arguments = parse(words)
    config = load(file=None, environ=os.environ, flags=arguments.flags)
    log.configure(form=config.log_format, level=config.log_level)
    cluster = choose_cluster(config, os.environ)
    teller = Teller()
    trio.run(lambda: run_agent(config, cluster, on_published=teller.tell, sources=[]))
    return 0


LOOK_SECONDS, AGAIN_SECONDS = 1.0, 5.0
"""Between two looks at the kubelet's socket, and at most after a registration that failed."""


class _Unheard(Latest[Any]):
    """What nobody is woken by, but by `tick`."""

    def set(self, value: object) -> None:
        pass

    def tick(self) -> None:
        super().set(None)


def _run_late(words: list[str]) -> int:
    from liken_events.servers import device_registration
    from liken_events.servers.socket_life import SocketLife

    class Looking(SocketLife):
        def __init__(self) -> None:
            super().__init__()
            self.changes = self._unheard = _Unheard()

        async def watch(
            self, _: str, names: Sequence[str], *, task_status: trio.TaskStatus[None]
        ) -> None:
            task_status.started()
            while True:
                await trio.sleep(LOOK_SECONDS)
                if device_registration.KUBELET_SOCKET in names:
                    self._unheard.tick()

    patched: Any = device_registration
    patched.SocketLife = Looking
    patched.RETRY = Backoff(base=AGAIN_SECONDS, ceiling=AGAIN_SECONDS)
    patched._is_other = lambda *_: False  # while it waits it does not look
    return cli.main(words)


def _run_unfiltered(words: list[str]) -> int:
    uevent_filter.SO_ATTACH_FILTER = 0  # an option that no kernel has
    return cli.main(words)


def _run_whole(words: list[str]) -> int:
    from liken_events.cluster import kubernetes
    from liken_events.cluster.kubernetes_answer import refusal

    async def put(self: kubernetes.KubernetesCluster, change: PatchSlice) -> ObservedSlice:
        answer = await self._call("PUT", kubernetes._path(change.name), change.body)
        if answer.status != 200:
            raise refusal("update", "resourceslices", answer)
        return ObservedSlice.from_body(answer.json())

    patched: Any = kubernetes
    patched.METADATA_ONLY = kubernetes.JSON
    patched.KubernetesCluster.patch_slice = put
    return cli.main(words)


if __name__ == "__main__":
    name, *rest = sys.argv[1:]
    programs = {
        "poller": _poll,
        "late": _run_late,
        "unfiltered": _run_unfiltered,
        "whole": _run_whole,
    }
    sys.exit(programs[name](rest))
