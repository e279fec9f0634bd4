"""The agent: which sources, which sinks, and in which order they start and stop.

This is the only module that knows both ends. It has two tables, of what is watched and of what
follows, and nested nurseries. Leaving a nursery ends what was started in it, so **the order of
shutdown is the order of indentation**: on SIGTERM the innermost ends first and nothing new comes
in; then the kubelet is no longer answered; then the sinks carry out the last inventory, within a
deadline; then the watch on what they see ends. Published slices and CDI specs stay: a restart must
not take devices away from those who hold them.

What each part does is said in its own module.
"""

import os
import signal
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager, nullcontext

import structlog
import trio

from liken_events.claims import ClaimsPart, is_registering
from liken_events.cluster import Cluster, SliceView
from liken_events.cluster.choice import in_cluster, kubeconfig
from liken_events.cluster.directory import DirectoryCluster
from liken_events.config import Config, ConfigError
from liken_events.converge import converge
from liken_events.core.backlog import Backlog
from liken_events.core.model.device import Inventory
from liken_events.core.model.machine import Machine
from liken_events.core.model.publish import MAX_OFFERED, Policy
from liken_events.host_devices import HostDevicesPart
from liken_events.inbox import Inbox
from liken_events.latest import Latest
from liken_events.node_watch import NodeWatch
from liken_events.reconcile import Reconciler
from liken_events.sinks.instance_lock import turn
from liken_events.sinks.slices import SliceSink, plan_slices
from liken_events.sources import Source
from liken_events.sources.looks import Looks
from liken_events.sources.mounts import MountsSource
from liken_events.sources.sysfs import Roots, Scanner
from liken_events.sources.uevent import UeventSource, choose_group
from liken_events.supervise import follow, keep_running

STOP_SECONDS = 5.0
"""How long the sinks may take to carry out the last inventory at a stop. Kubernetes kills a
container 30 s after SIGTERM, systemd after 90 s."""

log = structlog.get_logger()


def policy_of(config: Config) -> Policy:
    """What the configuration says about publishing."""
    return Policy(ignore=config.ignore, limit=None if config.divide_pool else MAX_OFFERED)


def roots_of(config: Config) -> Roots:
    """Where the machine is that is looked at."""
    return Roots(
        sys=config.sys_root,
        dev=config.dev_root,
        proc=config.proc_root,
        pci_ids=config.pci_ids or None,
        protect=config.protect,
    )


def choose_cluster(config: Config, environ: Mapping[str, str], *, prepare: bool = True) -> Cluster:
    """The home of slices that is configured, or that `auto` finds.

    Args:
        config: settings.
        environ: the process's environment.
        prepare: whether a directory is made if it is not there. Who only reads leaves none behind.

    Raises:
        ConfigError: it is not usable; the message names the path and what to do.
    """
    named = kubeconfig(environ)
    wanted = config.cluster
    if wanted == "auto":
        wanted = "kubernetes" if in_cluster(environ) or named else "directory"
    if wanted == "directory":
        directory = DirectoryCluster(config.cluster_dir)
        try:
            if prepare:
                directory.prepare()
        except OSError as error:
            raise ConfigError(
                f"--cluster-dir: {config.cluster_dir} cannot be written: {error.strerror}; "
                "name another directory"
            ) from None
        return directory
    # Loaded here and not at the top: the client takes 20 MB and half a second, and a machine
    # without a cluster does not need it.
    from liken_events.cluster import BadConfiguration
    from liken_events.cluster.kubernetes import KubernetesCluster

    if named is None and not in_cluster(environ):
        named = os.path.expanduser("~/.kube/config")
    try:
        return KubernetesCluster.connect(kubeconfig=None if in_cluster(environ) else named)
    except BadConfiguration as error:
        raise ConfigError(f"--cluster kubernetes: {error}") from None


def slices_turn(
    config: Config, inventories: Latest[Inventory]
) -> AbstractAsyncContextManager[bool]:
    """When this agent may write slices. Two that see a change at different moments, or are
    configured differently, would undo each other's writes for as long as both run."""
    if not config.instance:
        return nullcontext(True)
    return turn("slices", config.record_dir, inventories.wait_closed)


def sources_of(config: Config, backlog: Backlog) -> list[Source]:
    """What is watched; the backlog is told how far udevd is behind the kernel."""
    if config.uevents == "auto":
        group, reason = choose_group(proc=config.proc_root)
        log.info("uevent.group", group=group, reason=reason)
    else:
        group = "udev" if config.uevents == "udev" else "kernel"
    # The kernel gives a path to a new device before udevd says so: a spec must not name it then.
    # And what udevd has not told yet may be half of what is there.
    if group == "udev":
        uevents = [
            UeventSource("udev", backlog=backlog),
            UeventSource("kernel", early_only=True, backlog=backlog),
        ]
    else:
        uevents = [UeventSource("kernel")]
    return [*uevents, MountsSource(config.proc_root)]


async def follow_machine(
    config: Config,
    inventories: Latest[Inventory],
    *,
    inbox: Inbox | None = None,
    sources: list[Source] | None = None,
    nodes: NodeWatch | None = None,
    task_status: trio.TaskStatus[Reconciler] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Keeps `inventories` at the newest inventory of the machine, until it is cancelled.

    The watches exist before the first look: what is plugged in between is seen by both, and what
    is plugged in before by the look.

    Args:
        config: roots, policy and times.
        inventories: where the newest inventory goes.
        inbox: for a caller that marks triggers itself.
        sources: instead of the configured ones.
        nodes: told of each device node that comes.
        task_status: `started()` with the loop, once the first inventory is there.
    """
    box = inbox if inbox is not None else Inbox()
    backlog = Backlog()
    reconciler = Reconciler(
        reader=Scanner(roots_of(config)),
        machine=Machine(policy_of(config)),
        inbox=box,
        inventories=inventories,
        timing=config.timing,
        safety_seconds=config.safety_interval,
        nodes=nodes,
        backlog=backlog,
    )
    async with trio.open_nursery() as nursery:
        for source in sources_of(config, backlog) if sources is None else sources:
            await nursery.start(follow, source, box)
        await nursery.start(reconciler.run)
        task_status.started(reconciler)


async def run_agent(
    config: Config,
    cluster: Cluster,
    *,
    inventories: Latest[Inventory] | None = None,
    on_published: Callable[[Inventory], None] = lambda _: None,
    inbox: Inbox | None = None,
    sources: list[Source] | None = None,
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Runs the agent until SIGTERM or SIGINT, or until it is cancelled.

    Args:
        config: all settings.
        cluster: where slices go.
        inventories: for a caller that follows them too.
        on_published: called with each inventory that the slices now say.
        inbox, sources: see `follow_machine`.
        task_status: `started()` once the machine was looked at.
    """
    newest = inventories if inventories is not None else Latest[Inventory]()
    nodes = NodeWatch()
    loop: list[Reconciler] = []
    claims = ClaimsPart(
        config,
        cluster,
        Looks(roots_of(config), policy_of(config)),
        inventories=newest,
        nodes=nodes,
        unsettled=lambda: loop[0].unsettled if loop else frozenset(),
    )
    host_devices = HostDevicesPart(config, claims.ready)
    view = SliceView()
    slices = SliceSink(cluster, view, config.node_name, divide=config.divide_pool)
    done = trio.Event()

    async def watch_slices() -> bool:
        await cluster.watch_slices(config.node_name, view, task_status=trio.TASK_STATUS_IGNORED)
        return True

    async def follow_slices() -> bool:
        async with slices_turn(config, claims.ready) as is_ours:
            if is_ours:
                await converge(slices, plan_slices, claims.ready, on_done=on_published)
        done.set()
        return False

    async def serve_host_devices() -> bool:
        await host_devices.run()
        return True

    log.info("agent.starting", node=config.node_name, cluster=cluster.description)
    await claims.restore()
    async with trio.open_nursery() as watching:
        watching.start_soon(keep_running, "slice watch", watch_slices)
        async with trio.open_nursery() as following:
            claims.start_following(following)
            following.start_soon(keep_running, "slices", follow_slices)
            async with trio.open_nursery() as serving:
                async with trio.open_nursery() as reading:
                    reading.start_soon(_stop_on_signal, reading.cancel_scope)
                    loop.append(
                        await reading.start(_follow, config, newest, inbox, sources, nodes)
                    )
                    await claims.ready.wait_newer(0)  # nobody is answered from an old spec
                    claims.start_serving(serving)
                    if is_registering(config, cluster) and config.host_devices:
                        serving.start_soon(keep_running, "host devices", serve_host_devices)
                    task_status.started()
                claims.close()
                host_devices.close()
                serving.cancel_scope.cancel()
            newest.close()
            with trio.move_on_after(STOP_SECONDS) as deadline:
                await done.wait()
            if deadline.cancelled_caught:
                log.warning("agent.stopped_early", waited_seconds=STOP_SECONDS)
            following.cancel_scope.cancel()
        watching.cancel_scope.cancel()
    log.info("agent.stopped", result="published slices and CDI specs stay")


async def _follow(
    config: Config,
    inventories: Latest[Inventory],
    inbox: Inbox | None,
    sources: list[Source] | None,
    nodes: NodeWatch,
    *,
    task_status: trio.TaskStatus[Reconciler],
) -> None:
    await follow_machine(
        config, inventories, inbox=inbox, sources=sources, nodes=nodes, task_status=task_status
    )


async def _stop_on_signal(scope: trio.CancelScope) -> None:
    with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        async for number in signals:
            log.info("agent.stopping", signal=signal.Signals(number).name)
            scope.cancel()
            return
