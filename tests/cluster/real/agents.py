"""An agent on a made-up machine, as a process that speaks to a real API server."""

import json
import os
import signal
import socket
import sys
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import Any, Self

import liken_events
from liken_events.core.plan.slice_body import slice_name
from liken_events.simulate.tree import MachineTree
from liken_events.simulate.uevents import Uevent
from tests.cluster.real.client import RESOURCE, Object
from tests.cluster.real.control_plane import LOOPBACK, ControlPlane
from tests.cluster.real.processes import Process

SLICES = f"{RESOURCE}/resourceslices"
NODES = "/api/v1/nodes"

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(liken_events.__file__)))

SAY_SECONDS = 10.0
"""Bound for a message: the socket holds ten that nobody reads."""

TROUBLE = {"warning", "error", "critical"}


class Agent:
    """One run of the agent. Use as a context manager, in the main thread.

    Leaving it ends the agent as a supervisor does, and checks that it has met no bug.

    Args:
        control_plane: where slices go.
        tree: the machine; only one agent may run on it.
        node: the name of the node.
        account: a directory with a service account's token; None for the administrator's.
        divide_pool: see `Config`.

    Attributes:
        tree: see there.
        path: of the node's slice, or the first of them, in the API.
    """

    def __init__(
        self,
        control_plane: ControlPlane,
        tree: MachineTree,
        node: str,
        *,
        account: str | None = None,
        divide_pool: bool = False,
    ) -> None:
        self.tree = tree
        self.path = f"{SLICES}/{slice_name(node)}"
        self._client = control_plane.client
        self._socket = f"\0{tree.root}"  # an abstract one: it is gone with its process
        credentials = control_plane.credentials
        access = (
            {"account": account}
            if account is not None
            else {"kubeconfig": credentials.kubeconfig(f"agent-{node}", control_plane.url)}
        )
        config = {
            "node_name": node,
            "sys_root": tree.sys,
            "dev_root": tree.dev,
            "proc_root": tree.proc,
            "pci_ids": tree.pci_ids,
            "cdi_dir": f"{tree.root}/cdi",
            "record_dir": f"{tree.root}/records",
            "kubelet": "off",
            "settle_quiet": 0.05,
            "settle_ceiling": 0.5,
            "settle_longest": 0.5,
            "divide_pool": divide_pool,
        }
        settings = {"config": config, "socket": self._socket, **access}
        self._line = [sys.executable, "-m", f"{__package__}.agent_process", json.dumps(settings)]
        self._environment = {
            "PATH": os.environ["PATH"],
            "PYTHONPATH": ROOT,
            "KUBERNETES_SERVICE_HOST": LOOPBACK,
            "KUBERNETES_SERVICE_PORT": str(control_plane.port),
        }

    def __enter__(self) -> Self:
        self._process = Process("agent", self._line, self.tree.root, self._environment)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._process.stop()
        if kind is None:
            assert self.logged("agent.stopped")
            assert not self.logged("part.failed")

    @property
    def log(self) -> list[dict[str, Any]]:
        """What it logged so far, oldest first."""
        with open(self._process.log, encoding="utf-8") as file:
            return [json.loads(line) for line in file if line.endswith("\n")]

    @property
    def troubles(self) -> list[dict[str, Any]]:
        """The warnings and errors."""
        return [line for line in self.log if line["level"] in TROUBLE]

    @property
    def offered(self) -> set[str]:
        """The devices of the slice; none if there is no slice."""
        body = self._client.find(self.path)
        return set() if body is None else set(names(body))

    def logged(self, event: str, *, reason: str = "") -> list[dict[str, Any]]:
        """The lines of an event, of which the reason holds this text."""
        return [
            line
            for line in self.log
            if line["event"] == event and reason in line.get("reason", "")
        ]

    def say(self, uevents: Iterable[Uevent]) -> None:
        """Has the kernel say this. An agent that is paused may be told ten things."""
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
            sock.settimeout(SAY_SECONDS)
            for uevent in uevents:
                sock.sendto(uevent.to_bytes(), self._socket)

    def pause(self) -> None:
        """Lets it not run for a while."""
        os.kill(self._process.pid, signal.SIGSTOP)

    def resume(self) -> None:
        """Lets it run again."""
        os.kill(self._process.pid, signal.SIGCONT)

    def until(self, condition: Callable[[], object], what: str, *, seconds: float = 10.0) -> None:
        """Waits for something that the agent is to do; what it logged is shown if it does not."""
        self._process.until(condition, what, seconds=seconds)

    def until_logged(self, event: str, *, reason: str = "", seconds: float = 10.0) -> None:
        """Waits until it has logged this."""
        self.until(lambda: self.logged(event, reason=reason), f"{event} {reason}", seconds=seconds)

    def until_offered(self, devices: Iterable[str], *, seconds: float = 10.0) -> Object:
        """Waits until the slice has just these devices; returns it."""
        wanted = set(devices)
        found: Object = {}

        def is_so() -> bool:
            nonlocal found
            found = self._client.find(self.path) or {}
            return bool(found) and set(names(found)) == wanted

        self.until(is_so, f"a slice of {sorted(wanted)}", seconds=seconds)
        return found

    def until_published(self) -> None:
        """Waits until the slices say what is offered at the start."""
        self.until_logged("offer.published", seconds=20)


def names(body: Object) -> list[str]:
    """The devices of a slice."""
    return [device["name"] for device in body["spec"].get("devices") or []]  # 1.34 says null


def version(body: Object) -> str:
    """The resourceVersion of an object."""
    found: str = body["metadata"]["resourceVersion"]
    return found


def writes(body: Object) -> int:
    """How many changes of its content a slice has seen: the API server counts them."""
    count: int = body["metadata"]["generation"]
    return count


def generation(body: Object) -> int:
    """The generation of a slice's pool, which its driver counts."""
    number: int = body["spec"]["pool"]["generation"]
    return number
