"""`run --simulate`: the agent on a made-up machine that changes.

Many machines that people try a new program on have nothing to claim: virtual machines, containers.
So a recorded machine is built as a temporary tree, and a script plugs, re-enumerates, unbinds and
pulls hardware out there, with real uevents in a private network namespace. The agent that follows
is the very same.

This file starts both, waits after each step until the slice says what the tree shows, and prints
the step with the time that took. The tree, the namespace and the script are in `simulate`.
"""

import contextlib
import os
import sys
import tempfile
from dataclasses import replace

import trio
from rich.console import Console
from rich.text import Text

from liken_events import log, tables
from liken_events.agent import policy_of, run_agent
from liken_events.arguments import Arguments
from liken_events.cluster.directory import SLICES, DirectoryCluster
from liken_events.commands import CommandError
from liken_events.commands.look import read_snapshot
from liken_events.config import Config
from liken_events.core.decode.uevent import decode
from liken_events.core.model.device import Inventory, PublishedDevice
from liken_events.core.model.publish import inventory
from liken_events.core.model.snapshot import Snapshot
from liken_events.core.plan.slice_body import slice_name
from liken_events.inbox import Inbox
from liken_events.latest import Latest
from liken_events.report import changes
from liken_events.simulate import namespace, recordings
from liken_events.simulate.script import Played, play, script_for
from liken_events.simulate.tree import MachineTree
from liken_events.sources.mounts import MountsSource

PAUSE_SECONDS = 0.5
"""Before each step, so that a person can read the one before."""

SPREAD_SECONDS = 0.05
"""Over which the uevents of one step are spread: about as long as a stick takes whose driver is
loaded already."""

INDENT = "    "
"""In front of what a step changed. With it, the usual change fits 80 columns."""

PATIENCE_SECONDS = 20.0
"""How long a step may take until the slice says so. Longer than the longest probe that is waited
for."""


def simulate(
    config: Config,
    arguments: Arguments,
    machine: str,
    *,
    pause: float = PAUSE_SECONDS,
    spread: float = SPREAD_SECONDS,
) -> int:
    """Runs the agent on a recorded machine, and the script on that machine.

    Args:
        config: settings; the roots and the home of slices are the simulation's own.
        arguments: what was typed, to be typed again in a private namespace.
        machine: name of a recording (`desk`) or path of a snapshot file.
        pause, spread: the script's pace, see `play`.

    Raises:
        CommandError: there is no such machine, or none can be made of what the file says.
    """
    snapshot = _recording(machine)
    feed_reason = ""
    if not namespace.is_inside():
        try:
            sys.stdout.flush()
            namespace.reexec(_words(arguments, machine))
        except namespace.NoNamespace as error:
            feed_reason = str(error)
    if config.log_level == "info":
        log.configure(form=config.log_format, level="warning")  # the steps tell what happens
    with tempfile.TemporaryDirectory(prefix="liken-events-") as root:
        tree = _build(snapshot, root, machine)
        simulation = _Simulation(config, tree, root, pause, spread)
        if feed_reason:
            simulation.say(f"(uevents are handed over in-process: {feed_reason})")
        return trio.run(simulation.run, arguments.keep)


class _Simulation:
    """One tree, one agent, one script."""

    def __init__(
        self, config: Config, tree: MachineTree, root: str, pause: float, spread: float
    ) -> None:
        self._config = replace(
            config,
            cluster="directory",
            cluster_dir=os.path.join(root, "cluster"),
            cdi_dir=os.path.join(root, "cdi"),
            record_dir=os.path.join(root, "records"),
            kubelet="off",
            sys_root=tree.sys,
            dev_root=tree.dev,
            proc_root=tree.proc,
            pci_ids=os.path.join(root, "pci.ids"),
            uevents="kernel",
        )
        self._tree = tree
        self._pause = pause
        self._spread = spread
        self._out: Console = tables.console()
        self._inbox = Inbox()
        self._published: Latest[Inventory] = Latest()
        self._known: tuple[PublishedDevice, ...] = ()
        self._took: list[float] = []

    def say(self, text: str, style: str = "dim") -> None:
        """One line for the person."""
        self._out.print(Text(text, style=style))

    async def run(self, keep: bool) -> int:
        """Plays the script. 1 if the slice did not come to say what the tree shows."""
        steps = script_for(self._tree.snapshot)
        path = os.path.join(
            self._config.cluster_dir, SLICES, slice_name(self._config.node_name) + ".yaml"
        )
        status = 0
        async with trio.open_nursery() as nursery:
            await nursery.start(self._agent, nursery)
            await self._published.wait_newer(0)
            self._known = self._published.get().offered
            tables.overview(self._published.get(), self._out)
            self.say(f"The slice is {path}. Now things happen:\n")

            async def tell(step: Played) -> None:
                nonlocal status
                if not await self._tell(step, len(steps)):
                    status = 1

            with contextlib.closing(namespace.open_feed(self._take)) as feed:
                await play(
                    self._tree, feed, tell, steps=steps, pause=self._pause, spread=self._spread
                )
            self._conclude(len(steps))
            if keep:
                self.say("The agent goes on until Ctrl-C.")
                await trio.sleep_forever()
            nursery.cancel_scope.cancel()
        return status

    async def _agent(self, nursery: trio.Nursery, *, task_status: trio.TaskStatus[None]) -> None:
        cluster = DirectoryCluster(self._config.cluster_dir)
        cluster.prepare()
        inside = namespace.is_inside()
        await run_agent(
            self._config,
            cluster,
            on_published=self._published.set,
            inbox=self._inbox,
            # Without a namespace of our own the socket would tell of the real machine.
            sources=None if inside else [MountsSource(self._config.proc_root)],
            task_status=task_status,
        )
        nursery.cancel_scope.cancel()  # it was told to stop

    def _take(self, datagram: bytes) -> None:
        """The way of a uevent where there is no namespace: what the source would do with it."""
        trigger = decode(datagram)
        if trigger is not None:
            self._inbox.mark(trigger)

    async def _tell(self, step: Played, count: int) -> bool:
        """Waits until the slice says what the tree shows, and prints what changed."""
        wanted = inventory(self._tree.snapshot, policy_of(self._config)).offered
        self.say(f"{step.index + 1:2}/{count}  {step.title}", style="bold")
        with trio.move_on_after(PATIENCE_SECONDS) as patience:
            while self._published.get().offered != wanted:
                await self._published.wait_newer(self._published.number)
        now = self._published.get()
        found = list(changes(self._known, now, trio.current_time()))
        for change in found:
            if change.seconds is not None:
                self._took.append(change.seconds)
            tables.changed(change, self._out, INDENT)
        self._known = now.offered
        if patience.cancelled_caught:
            self.say(f"{INDENT}the slice does not say so after {PATIENCE_SECONDS:g} s", "red")
            return False
        if not found:
            self.say(f"{INDENT}nothing that is offered changes")
        return True

    def _conclude(self, count: int) -> None:
        text = f"\n{count} steps, {len(self._took)} changes"
        if self._took:
            times = [round(seconds * 1000) for seconds in self._took]
            text += (
                f", each in the slice {min(times)} to {max(times)} ms after its last event. A "
                f"device that was plugged in is looked at after "
                f"{self._config.settle_quiet * 1000:.0f} ms of quiet, which is part of that."
            )
        self.say(text, style="bold")
        self.say("On this machine itself: liken-events explain, liken-events watch.")


def _recording(machine: str) -> Snapshot:
    """A recorded machine by its name, or by the path of a file."""
    if machine == "desk":
        return recordings.desk()
    if not os.path.exists(machine):
        raise CommandError(f"'{machine}' is neither the recorded machine 'desk' nor a file")
    return read_snapshot(machine)


def _build(snapshot: Snapshot, root: str, machine: str) -> MachineTree:
    """The tree. What a stranger's file says becomes names of files and their content, and need not
    be fit for either."""
    try:
        return MachineTree.build(snapshot, root)
    except UnicodeError:
        reason = "one of its texts has half a character"
    except ValueError as error:
        reason = str(error)
    except OSError as error:  # a name that is too long, a file where a directory should be
        reason = error.strerror or str(error)
    raise CommandError(f"{machine}: no machine can be made of it: {reason}")


def _words(arguments: Arguments, machine: str) -> list[str]:
    """What to type in the private namespace: the same, but for sure on the simulated machine."""
    kept = []
    words = iter(arguments.words)
    for word in words:
        name = word.partition("=")[0]
        if name in ("--simulate", "--simulate-if-empty"):
            if "=" not in word:
                next(words, None)
            continue
        kept.append(word)
    return [*kept, "--simulate", machine]
