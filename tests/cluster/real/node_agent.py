"""The agent as a process on a node, with its own rights and no others.

It looks at a made-up machine; what it writes is where it is on any node, so that kubelet and
containerd find it. Its account has the rights that the package gives, under a name of its own.
"""

import json
import os
import sys
from datetime import datetime
from typing import Any

from tests.cluster.real.agents import ROOT, SLICES, names
from tests.cluster.real.client import Client, Object
from tests.cluster.real.made_up_machine import MadeUpMachine
from tests.cluster.real.node import Node
from tests.cluster.real.processes import Process

REGISTERED = ("kubelet.registered", "host_device.registered")
"""What it logs when a kubelet knows all of it."""

READY_SECONDS = 30.0
"""Bound for all of a slice to be there after a start. On two free cores it takes 2 s."""


class NodeAgent:
    """The agent of a node. It runs after `start`.

    Args:
        node: where it runs.
        machine: what it looks at.
        client: with all rights.
        kubeconfig: its own, see `accounts.admit`.
        network: path of the network namespace that it is in.

    Attributes:
        slice_path: the slice's path in the API.
    """

    def __init__(
        self, node: Node, machine: MadeUpMachine, client: Client, kubeconfig: str, network: str
    ) -> None:
        self.slice_path = f"{SLICES}/{node.name}-liken.sh"
        self._node = node
        self._machine = machine
        self._client = client
        self._kubeconfig = kubeconfig
        self._network = network
        self._processes: list[Process] = []

    @property
    def log(self) -> list[dict[str, Any]]:
        """What the newest process logged so far."""
        with open(self._newest.log, encoding="utf-8") as file:
            return [json.loads(line) for line in file if line.endswith("}\n")]

    def logs(self) -> dict[str, str]:
        """The ends of the logs of the newest processes, to be shown when a test fails."""
        return {process.name: process.log_end(60) for process in self._processes[-2:]}

    def logged(self, event: str) -> list[dict[str, Any]]:
        """The newest process's lines of an event."""
        return [line for line in self.log if line["event"] == event]

    def start(self) -> None:
        """Starts a process, beside an older one if that runs: then the kubelet knows both."""
        tree = self._machine.tree
        name = f"agent-{len(self._processes) + 1}"
        line = [
            *(sys.executable, "-m", "liken_events", "run", "--cluster=kubernetes"),
            *(f"--node-name={self._node.name}", f"--instance={name}", f"--sys-root={tree.sys}"),
            *(f"--proc-root={tree.proc}", f"--pci-ids={tree.pci_ids}"),
            *("--uevents=kernel", "--log-format=json", "--log-level=debug"),
        ]
        environment = {
            "PATH": os.environ["PATH"],
            "PYTHONPATH": ROOT,
            "KUBECONFIG": self._kubeconfig,
        }
        process = self._node.room.start(name, line, environment, network=self._network)
        self._processes.append(process)

    def until_logged(self, *events: str, since: float = 0.0) -> list[float]:
        """Waits until the newest process has logged each of these events; returns when each was
        first.

        Args:
            events: their names.
            since: only after this, in seconds of the wall clock.
        """
        times: dict[str, float] = {}

        def are_there() -> bool:
            for line in self.log:
                time = datetime.fromisoformat(line["timestamp"]).timestamp()
                if line["event"] in events and time > since:
                    times.setdefault(line["event"], time)
            return times.keys() == set(events)

        self._newest.until(are_there, " and ".join(events), seconds=READY_SECONDS)
        return [times[event] for event in events]

    def until_published(self) -> Object:
        """Waits until the slice has just what the machine offers; returns it."""
        offered = {device.name for device in self._machine.inventory.offered}
        return self._client.until(
            self.slice_path, lambda body: set(names(body)) == offered, seconds=READY_SECONDS
        )

    def ensure(self) -> None:
        """Has one process run, which the kubelet knows and whose slice is there."""
        for process in self._processes[:-1]:
            process.stop()
        if not self._processes or not self._newest.is_running():
            self.start()
        self.until_logged(*REGISTERED, since=self._node.kubelet_started)
        self.until_published()

    def kill(self) -> None:
        """Ends the newest process as a crash does."""
        self._newest.kill()

    def stop_older(self) -> None:
        """Ends the process before the newest in order."""
        self._processes[-2].stop()

    def stop(self) -> None:
        """Ends all processes in order."""
        for process in self._processes:
            process.stop()

    @property
    def _newest(self) -> Process:
        return self._processes[-1]
