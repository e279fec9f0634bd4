"""The commands that follow the machine: `run` and `watch`.

`run` is the agent. On a terminal it first shows what is offered and what is withheld, then each
change as it happens; under a supervisor it only logs. `watch` is the same pipeline with nothing
published: each change is one line.

This file wires the agent to what is shown. The agent itself is in `agent`, the simulated machine
in `commands.demo`.
"""

import os
import sys
import time

import structlog
import trio

from liken_events import tables
from liken_events.agent import choose_cluster, follow_machine, policy_of, roots_of, run_agent
from liken_events.arguments import Arguments
from liken_events.claims import check_kubelet_dir
from liken_events.commands import demo
from liken_events.config import Config, check_roots
from liken_events.core.model import publish
from liken_events.core.model.device import Inventory, PublishedDevice
from liken_events.core.model.json import dump
from liken_events.latest import Latest
from liken_events.reconcile import Reconciler
from liken_events.report import changes, log_change
from liken_events.sources.sysfs import Scanner

log = structlog.get_logger()


def run(config: Config, arguments: Arguments) -> int:
    """Runs the agent until it is told to stop."""
    if arguments.simulate is not None:
        return demo.simulate(config, arguments, arguments.simulate)
    check_roots(config)
    if arguments.simulate_if_empty is not None:
        look = publish.inventory(Scanner(roots_of(config)).scan(), policy_of(config))
        if not look.offered:
            sys.stdout.write(
                f"Nothing on this machine can be claimed ({tables.summary(look)}), so here is "
                f"a simulated one: '{arguments.simulate_if_empty}'.\n"
            )
            sys.stdout.flush()
            return demo.simulate(config, arguments, arguments.simulate_if_empty)
    cluster = choose_cluster(config, os.environ)
    check_kubelet_dir(config, cluster)
    teller = Teller()
    trio.run(lambda: run_agent(config, cluster, on_published=teller.tell))
    return 0


def watch(config: Config, arguments: Arguments) -> int:
    """Prints each change of the offer as one line, and publishes nothing."""
    check_roots(config)
    trio.run(_watch, config, arguments.output == "json")
    return 0


class Teller:
    """Tells of each inventory that was published: the first as a whole, then what changed."""

    def __init__(self) -> None:
        self._known: tuple[PublishedDevice, ...] | None = None

    def tell(self, inventory: Inventory) -> None:
        """Takes the inventory that the slices say now."""
        if self._known is None:
            if sys.stdout.isatty():
                tables.overview(inventory, tables.console())
            log.info(
                "offer.published",
                offered=len(inventory.offered),
                withheld=sum(item.withheld is not None for item in inventory.judgements),
            )
        else:
            for change in changes(self._known, inventory, trio.current_time()):
                log_change(change)
        self._known = inventory.offered


async def _watch(config: Config, as_json: bool) -> None:
    inventories: Latest[Inventory] = Latest()
    async with trio.open_nursery() as nursery:
        await nursery.start(_follow, config, inventories)
        known: tuple[PublishedDevice, ...] = ()
        while True:
            inventory, number = inventories.get(), inventories.number
            for change in changes(known, inventory, trio.current_time()):
                if as_json:
                    clock = time.strftime("%Y-%m-%dT%H:%M:%S%z")
                    sys.stdout.write(dump({"time": clock, **change.to_json()}) + "\n")
                else:
                    tables.changed(change, tables.console(), time.strftime("%H:%M:%S  "))
            sys.stdout.flush()
            known = inventory.offered
            await inventories.wait_newer(number)


async def _follow(
    config: Config, inventories: Latest[Inventory], *, task_status: trio.TaskStatus[Reconciler]
) -> None:
    await follow_machine(config, inventories, task_status=task_status)
