"""Many nodes on one real API server: left alone, and after the server was away.

What is nothing on one node is a lot on two thousand, and what nodes do at the same moment meets at
one server. A watch that is opened again now and then is all that a quiet node may ask for. After
an outage every node has something to say; if all say it at once the server is away again.

This file runs simulated nodes in one process (`bench.simulated_nodes`), beside one agent that is a
process of its own, and reads the server's audit log. The log says when requests came: what one
process could not send in time is missing there, so that process's share of a core is told, too.
"""

import json
import math
import os
import select
import shutil
import subprocess
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from statistics import fmean
from types import TracebackType
from typing import Any, Self

from bench.agent_process import NODE, AgentProcess
from bench.audited import AuditedControlPlane, Request
from bench.effort import Effort
from bench.idle import WORKERS_END_SECONDS
from bench.measurement import Measurement, measured, percentile
from bench.simulated_nodes import AT_ONCE, MODULE, node_name
from liken_events.cluster.kubernetes_watch import Pace
from liken_events.converge import BACKOFF
from tests.cluster.real.control_plane import LOOPBACK
from tests.cluster.real.polling import poll

GROUP = "cluster"

LATE_BOUND = BACKOFF.ceiling + 30.0
"""Seconds until the last node has published. A sink waits for 60 s at most, and for some 20 s more
where the server refuses what it cannot judge yet (403, 429). The rest is for the server, which is
busy."""

HERD_BOUND = 0.3
"""Requests in any one second, for each node, after an outage that is as long as the longest wait.
Each node has to list, to watch and to write, which is 3, and more where it is refused at first.
Spread evenly over the longest waits (the second half of 30 s and of 60 s) that makes 0.17."""

START_SECONDS = 600.0
"""Bound for all nodes' start: some 30 ms of work for each, on a busy machine."""

ANSWER_SECONDS = 30.0


class Fleet:
    """The process with the simulated nodes. Use as a context manager.

    Args:
        control_plane: whose server they publish to.
        directory: for the account's files and the log; made here.
        count: of nodes.
    """

    def __init__(self, control_plane: AuditedControlPlane, directory: str, count: int) -> None:
        os.makedirs(directory)
        with open(os.path.join(directory, "token"), "w", encoding="ascii") as token:
            token.write(control_plane.token)
        shutil.copy(control_plane.credentials.certificate, os.path.join(directory, "ca.crt"))
        line = [sys.executable, "-m", MODULE, LOOPBACK, str(control_plane.port), directory]
        self.log_path = os.path.join(directory, "log")
        with open(self.log_path, "w", encoding="utf-8") as log:
            self._process = subprocess.Popen(
                [*line, str(count)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._process.kill()
        self._process.communicate()

    def ask(self, command: str, *, seconds: float = ANSWER_SECONDS) -> Any:  # noqa: ANN401
        """Sends a command and returns the answer.

        Raises:
            TimeoutError: there was none; the message ends as the process's log does.
        """
        sending, receiving = self._process.stdin, self._process.stdout
        assert sending is not None
        assert receiving is not None
        sending.write(command.encode() + b"\n")
        sending.flush()
        ready, _, _ = select.select([receiving], [], [], seconds)
        line = receiving.readline() if ready else b""
        if not line:
            with open(self.log_path, encoding="utf-8") as log:
                raise TimeoutError(
                    f"no answer to {command} in {seconds:g} s: {log.read()[-2000:]}"
                )
        return json.loads(line)

    def said(self) -> str:
        """The warnings and errors of its nodes so far."""
        with open(self.log_path, encoding="utf-8") as log:
            return log.read()


def measure_nodes(
    control_plane: AuditedControlPlane, agent: AgentProcess, directory: str, effort: Effort
) -> Iterator[Measurement]:
    """All numbers of simulated nodes, and of an agent that has published and is left alone
    beside them."""
    count = effort.nodes
    title = f"{count:,} nodes"
    control_plane.add_nodes(node_name(index) for index in range(count))
    with Fleet(control_plane, directory, count) as fleet:
        before = fleet.ask("report")
        control_plane.requests()
        began = time.monotonic()
        fleet.ask("start", seconds=START_SECONDS)
        started = time.monotonic() - began
        time.sleep(WORKERS_END_SECONDS)
        first = control_plane.requests()
        used = agent.cpu(), fleet.ask("report")["cpu"]
        time.sleep(effort.nodes_quiet_seconds)
        quiet = control_plane.requests()
        after = fleet.ask("report")
        _explain(quiet, fleet.said())
        yield from _quiet(first, quiet, count, effort.nodes_quiet_seconds)
        for what, cpu in (("agent", agent.cpu() - used[0]), (title, after["cpu"] - used[1])):
            yield measured(GROUP, f"CPU in these quiet seconds, {what}", "ms", [cpu], scale=1000)
        yield measured(GROUP, f"{title}, started {AT_ONCE} at a time", "s", [started])
        memory = (after["resident"] - before["resident"]) / count
        yield measured(GROUP, f"{title}, resident memory for each", "MB", [memory])
        yield measured(GROUP, f"{title}, threads of their process", "threads", [after["threads"]])
        yield from _restart(control_plane, fleet, title, effort)


def _explain(quiet: Sequence[Request], said: str) -> None:
    """Writes down what a quiet node should not have asked, and what the nodes said: the promise
    alone does not tell why it is not kept."""
    others = [each for each in quiet if each.verb != "watch"]
    for each in others:
        sys.stderr.write(
            f"{each.node}: {each.verb} {each.status}"
            f" {each.received - quiet[0].received:.1f} s after the first quiet request\n"
        )
    if others:
        sys.stderr.write(said)


def _quiet(
    first: Sequence[Request], quiet: Sequence[Request], count: int, seconds: float
) -> Iterator[Measurement]:
    """What was asked while nothing happened."""
    # A watch lasts for `Pace.watch` at least.
    most = math.ceil(seconds / Pace().watch)
    watches = Counter(each.node for each in quiet if each.verb == "watch")
    others = Counter(each.node for each in quiet if each.verb != "watch")
    nodes = [node_name(index) for index in range(count)]
    every = f"in {seconds:g} quiet seconds"
    for what, names in (("agent", [NODE]), (f"{count:,} nodes, each", nodes)):
        yield measured(GROUP, f"watches opened again {every}, {what}", "requests",
                       [watches[name] for name in names], bound=most)  # fmt: skip
        asked = sum(others[name] for name in names)
        yield measured(GROUP, f"other requests {every}, {what.removesuffix(', each')}",
                       "requests", [asked], bound=0)  # fmt: skip
    lives = _first_lives([*first, *quiet], nodes)
    if len(lives) == count:  # those that are missing would be the long ones
        yield measured(GROUP, f"{count:,} nodes, how long a watch lasts", "s", lives)
        yield measured(GROUP, f"{count:,} nodes, requests for each in a quiet hour", "requests",
                       [3600 / fmean(lives) * len(quiet) / sum(watches.values())])  # fmt: skip


def _first_lives(requests: Sequence[Request], nodes: Sequence[str]) -> list[float]:
    """Of each node whose first watch was followed by another: seconds in between."""
    opened: dict[str, list[float]] = defaultdict(list)
    for each in requests:
        if each.verb == "watch":
            opened[each.node].append(each.received)
    return [opened[name][1] - opened[name][0] for name in nodes if len(opened[name]) > 1]


def _restart(
    control_plane: AuditedControlPlane, fleet: Fleet, title: str, effort: Effort
) -> Iterator[Measurement]:
    """Changes all nodes' devices while the API server is away."""
    control_plane.stop_api_server()
    control_plane.requests()
    fleet.ask("change")
    time.sleep(effort.outage_seconds)
    used, since = fleet.ask("report")["cpu"], time.monotonic()
    control_plane.start_api_server()
    times: list[float | None] = []

    def all_published() -> bool:
        times[:] = fleet.ask("times")
        return None not in times

    assert poll(all_published, LATE_BOUND + 60), f"{times.count(None)} nodes did not publish"
    share = (fleet.ask("report")["cpu"] - used) / (time.monotonic() - since)
    asked = control_plane.requests()
    # It listens before it knows who may do what, and refuses everybody until then.
    back = min(each.answered for each in asked if each.status < 400)
    published = sorted(when - back for when in times if when is not None)
    what = f"{title} that changed in {effort.outage_seconds:g} s without API server"
    yield measured(GROUP, f"{what}: its return to a node's slice", "s", published)
    for rank in (10, 90):
        yield measured(GROUP, f"{what}: {rank} % of the nodes", "s", [percentile(published, rank)])
    yield measured(GROUP, f"{what}: the last", "s", [published[-1]], bound=LATE_BOUND)
    yield measured(GROUP, f"{what}: requests", "requests", [len(asked)])
    for status, refused in sorted(Counter(each.status for each in asked).items()):
        if status >= 400:
            yield measured(GROUP, f"{what}: of them answered with {status}", "requests", [refused])
    yield measured(
        GROUP,
        f"{what}: requests in any one second, most",
        "requests",
        [_most_in_a_second([each.received for each in asked])],
        # After a shorter outage the nodes' waits are shorter, and what is to be done is the same.
        bound=effort.nodes * HERD_BOUND if effort.outage_seconds >= BACKOFF.ceiling else None,
    )
    yield measured(GROUP, f"{what}: cores that the nodes' process took", "x", [share])


def _most_in_a_second(times: Sequence[float]) -> int:
    """The most times that lie within one second, wherever it begins."""
    ordered = sorted(times)
    most = first = 0
    for last, when in enumerate(ordered):
        while when - ordered[first] >= 1.0:
            first += 1
        most = max(most, last - first + 1)
    return most
