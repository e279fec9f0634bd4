"""The programs of a soak in the guest: the agent and a kubelet, each with one life after another,
and the one that tells of nodes.

What they say is looked at by `invariants`.
"""

import json
import signal
from collections.abc import Callable
from typing import Any

from tests.vm.control import GuestFailed
from tests.vm.desk import CDI, FLAGS, ROOT, SLICES
from tests.vm.machine import Machine
from tests.vm.soak.invariants import Broken, Watcher

KUBELET = f"{ROOT}/kubelet"
RESOURCE, NODE = "ate.dev/spare", "/dev/spare"
"""A host device: another node of `/dev/null`'s, which can be taken away and made again."""

RECORDS = f"{ROOT}/records"
QUESTIONS = f"{ROOT}/questions"

AGENT_FLAGS = (
    *FLAGS,
    "--kubelet=on",
    f"--kubelet-dir={KUBELET}",
    f"--device-plugin-dir={KUBELET}/device-plugins",
    f"--host-devices={RESOURCE}={NODE}",
    # What an event was to tell must not be found out without one.
    "--safety-interval=86400",
)

SMALL_BUFFER = ("setpriv", "--bounding-set=-net_admin")
"""Without CAP_NET_ADMIN, as in a pod that was not given it, the agent's receive buffer is 208 KiB
(`net.core.rmem_max`), which a flood can overrun. 32 MiB would take so many events that udevd would
work on them for minutes."""


START_SECONDS = 240.0
"""The longest wait for a program to start, which takes ten where nobody else uses the processors
and one and a half minutes where others do."""


LOOK_SECONDS = 60.0
"""How long a look may take, which takes half a second."""


class Programs:
    """What runs in the guest.

    Args:
        machine: the guest.
        watcher: looks at what they say.

    Attributes:
        agent: the pid of the agent that runs.
        lives: how often an agent was started.
        kills: how many agents were killed since the kubelet was started.
    """

    def __init__(self, machine: Machine, watcher: Watcher) -> None:
        self._machine = machine
        self._control = machine.control
        self._watcher = watcher
        self.agent = 0
        self.lives = 0
        self.kills = 0
        self._kubelet = 0
        self._looker = 0
        self._floods: list[int] = []
        self._down: list[tuple[float, int]] = []

    def start(self) -> None:
        """Starts all, and waits until the agent has published."""
        self._control.shell(f"mkdir -p {KUBELET}; mknod {NODE} c 1 3")
        for directory in (SLICES, CDI):
            self._control.do("follow", directory=directory)
        nodes = self._start("nodes")
        self._watcher.tells_nodes(nodes)
        self.until(
            lambda: nodes in self._watcher.said, "the kernel to be listened to", START_SECONDS
        )
        self._looker = self._start("look", QUESTIONS)
        self.until(lambda: self._looker in self._watcher.said, "the looker", START_SECONDS)
        self._kubelet = self._start("kubelet", KUBELET)
        self.start_agent()
        self.until_published()

    def start_agent(self) -> None:
        """Begins a life of the agent."""
        argv = [*SMALL_BUFFER, self._machine.python, "-m", "liken_events", *AGENT_FLAGS]
        self.agent = self._control.do("start", argv=argv)["pid"]
        self._watcher.is_agent(self.agent)
        self.lives += 1
        self._down = [(since, pid or self.agent) for since, pid in self._down]

    def kill_agent(self) -> None:
        """Ends it without a word."""
        self._watcher.is_killed(self.agent)
        at: float = self._control.do("stop", pid=self.agent, by=signal.SIGKILL)["time"]
        self._down.append((at, 0))
        self.kills += 1

    def restart_kubelet(self, *, wipe: bool) -> None:
        """Restarts it in the same process, as soon as that knows its orders."""
        self.until(
            lambda: self._kubelet in self._watcher.said, "the kubelet to start", START_SECONDS
        )
        self.kills = 0
        self._order(signal.SIGUSR1 if wipe else signal.SIGHUP)

    def kill_kubelet(self) -> None:
        """Ends it without a word, and starts another one."""
        self._watcher.is_killed(self._kubelet)
        self._order(signal.SIGKILL)
        self.kills = 0
        self._kubelet = self._start("kubelet", KUBELET)

    def ask_kubelet(self) -> dict[str, object]:
        """How things stand with the kubelet."""
        self.until(
            lambda: self._kubelet in self._watcher.said, "the kubelet to start", START_SECONDS
        )
        self._watcher.said[self._kubelet] = {}
        self._order(signal.SIGUSR2)
        self.until(lambda: "plugins" in self._watcher.said[self._kubelet], "the kubelet to answer")
        return self._watcher.said[self._kubelet]

    def look(self, **question: Any) -> dict[str, Any]:
        """What is there now; see `inside.look`."""
        said = self._watcher.said
        said[self._looker] = {}
        self._control.write(QUESTIONS, json.dumps(question) + "\n")
        self.until(lambda: said[self._looker], "a look", LOOK_SECONDS)
        return said[self._looker]

    def flood(self, count: int) -> None:
        """Begins a flood of uevents."""
        pid = self._start("flood", str(count))
        self._watcher.is_killed(pid)
        self._floods.append(pid)

    def until_published(self) -> None:
        """Waits until the agent has published; then it is known from when to when none was at
        work."""
        published = self._watcher.published
        self.until(lambda: self.agent in published, "the agent to publish", START_SECONDS)
        for since, pid in self._down:
            # An agent that was killed before it published gives its time to the next one.
            until = min(at for number, at in published.items() if number >= pid)
            self._watcher.ownership.down.append((since, until))
        self._down.clear()

    def until_floods_ended(self) -> None:
        """Waits until no flood is under way."""
        for pid in self._floods:
            self.until(lambda: pid in self._watcher.ended, "a flood to end", START_SECONDS)  # noqa: B023
            if self._watcher.ended[pid]:
                raise Broken(f"a flood ended with {self._watcher.ended[pid]}")
        self._floods.clear()

    def until(self, condition: Callable[[], object], what: str, seconds: float = 60.0) -> None:
        """Waits until a condition holds that a record makes true; looks at all records."""

        def holds() -> object:
            self._watcher.take()
            return condition()

        self._control.wait(holds, seconds, what)

    def is_quiet(self, seconds: float) -> bool:
        """Waits until there was no news for so long; false if there was some."""
        self._watcher.take()
        news = self._watcher.news
        try:
            self.until(lambda: self._watcher.news > news, "news", seconds)
        except GuestFailed:
            if self._control.ended:
                raise
            return True
        return False

    def _start(self, module: str, *arguments: str) -> int:
        argv = [self._machine.python, "-m", f"tests.vm.soak.inside.{module}", *arguments]
        pid: int = self._control.do("start", argv=argv)["pid"]
        return pid

    def _order(self, number: int) -> None:
        self._control.do("stop", pid=self._kubelet, by=number)
