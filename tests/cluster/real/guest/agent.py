"""The agent as a process in a guest, with its own rights and no others: it sees the guest's own
devices, kernel and udevd, and the API server outside."""

from collections.abc import Callable

from tests.cluster.real.agents import SLICES, names
from tests.cluster.real.client import Client, Object
from tests.cluster.real.guest.node import GuestNode
from tests.vm.desk import Desk

REGISTERED = "kubelet.registered"
"""What it logs when a kubelet knows the driver. Of host devices, `/dev/kvm`, an emulated machine
has none."""

READY_SECONDS = 120.0
"""Bound for its start, which takes 10 s, and for the kubelet to know it."""

SLICE_SECONDS = 60.0
"""Bound for the slice to follow a plug, which takes 2 s."""


class GuestAgent:
    """The agent of a guest, which runs and has published all.

    Args:
        node: where it runs.
        client: with all rights.
        kubeconfig: its own; a file that is there in the guest too.

    Attributes:
        desk: the guest, with what the agent logs.
        slice_path: the slice's path in the API.
        base: the names of the devices that were there at the start.
    """

    def __init__(self, node: GuestNode, client: Client, kubeconfig: str) -> None:
        self.slice_path = f"{SLICES}/{node.name}-liken.sh"
        self._client = client
        machine = node.machine
        argv = [
            *("env", f"KUBECONFIG={kubeconfig}", machine.python, "-m", "liken_events", "run"),
            *("--cluster=kubernetes", f"--node-name={node.name}"),
            *("--log-format=json", "--log-level=debug"),
        ]
        self.desk = Desk(machine, machine.control.do("start", argv=argv)["pid"])
        self.until_logged("offer.published")
        self.until_logged(REGISTERED)
        self.base = set(names(self.until_slice(lambda found: bool(found))))

    def logs(self) -> dict[str, str]:
        """The end of its log, to be shown when a test fails."""
        lines = [item["text"] for item in self.desk.records("line")[-60:]]
        return {"agent": "\n".join(lines), "console": self.desk.machine.console()}

    def until_logged(self, event: str, *, times: int = 1) -> None:
        """Waits until it has logged an event so often."""
        self.desk.until(
            lambda: len(self.desk.logged(event)) >= times,
            f"{event} {times} times",
            READY_SECONDS,
        )

    def until_slice(
        self, condition: Callable[[set[str]], bool], *, before: Object | None = None
    ) -> Object:
        """Waits until there is a slice, and a condition holds for its devices' names; returns it.

        Args:
            condition: see there.
            before: one that was deleted; another is waited for.
        """
        old = before["metadata"]["uid"] if before is not None else None
        return self._client.until(
            self.slice_path,
            lambda body: body["metadata"]["uid"] != old and condition(set(names(body))),
            seconds=SLICE_SECONDS,
        )

    def ensure(self) -> None:
        """It runs."""
        assert not self.desk.ended, self.logs()
