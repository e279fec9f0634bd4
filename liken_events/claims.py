"""The agent's part for claims: the keeper, and all that asks it.

Claims come from the kubelet, or, on a machine without one, from files. Specs follow the machine
before the slice does.

This file puts the keeper together and runs its tasks. In which order they start and stop relative
to the others is decided in `agent`.
"""

from collections.abc import Awaitable, Callable

import trio

from liken_events.cluster import Cluster
from liken_events.cluster.claim_file import ClaimFile
from liken_events.cluster.directory import DirectoryCluster
from liken_events.config import Config, ConfigError
from liken_events.core.model.device import Inventory
from liken_events.core.model.snapshot import Key
from liken_events.latest import Latest
from liken_events.node_watch import NodeWatch
from liken_events.sinks.cdi import ClaimKeeper
from liken_events.sinks.claim_follower import ClaimFollower
from liken_events.sinks.claim_reader import ClaimReader
from liken_events.sinks.holdings import Holdings
from liken_events.sinks.spec_files import SpecFiles, boot_id
from liken_events.sinks.spec_writer import Looks, SpecWriter
from liken_events.sinks.usb_drivers import UsbDrivers
from liken_events.supervise import keep_running
from liken_events.unix_socket import PathTooLong


def spec_files_of(config: Config) -> SpecFiles:
    """Where specs and records are."""
    return SpecFiles(cdi=config.cdi_dir, records=config.record_dir, boot=boot_id(config.proc_root))


def is_registering(config: Config, cluster: Cluster) -> bool:
    """Whether the kubelet is to know of the driver."""
    if config.kubelet == "auto":
        return not isinstance(cluster, DirectoryCluster)
    return config.kubelet == "on"


def check_kubelet_dir(config: Config, cluster: Cluster) -> None:
    """Raises ConfigError if the kubelet's directory is too deep for sockets."""
    if is_registering(config, cluster):
        from liken_events.servers import device_registration, registry

        try:
            registry.KubeletPaths.below(config.kubelet_dir, config.instance)
            device_registration.check_paths(config.device_plugin_dir, config.host_devices)
        except PathTooLong as error:
            raise ConfigError(str(error)) from None


class ClaimsPart:
    """The parts of one agent that have to do with claims.

    Args:
        config: all settings.
        cluster: where claims are.
        looks: fresh looks at the machine.
        inventories: what the loop found.
        nodes: the paths that are watched for it.
        unsettled: the devices that the loop waits for.

    Attributes:
        ready: the inventories whose specs are written: what may be published.
    """

    def __init__(
        self,
        config: Config,
        cluster: Cluster,
        looks: Looks,
        *,
        inventories: Latest[Inventory],
        nodes: NodeWatch,
        unsettled: Callable[[], frozenset[Key]],
    ) -> None:
        self.ready: Latest[Inventory] = Latest()
        self._config = config
        self._cluster = cluster
        files = spec_files_of(config)
        writer = SpecWriter(files=files, looks=looks, aliases=config.aliases)
        self._holdings = Holdings(files=files, writer=writer, nodes=nodes)
        self._keeper = ClaimKeeper(
            node=config.node_name,
            holdings=self._holdings,
            reader=ClaimReader(cluster),
            drivers=UsbDrivers(config.sys_root, looks, config.aliases),
            inventories=inventories,
            nodes=nodes,
            unsettled=unsettled,
        )

    async def restore(self) -> None:
        """Takes over what an earlier run left. Comes before all else."""
        await self._holdings.restore()

    def start_following(self, nursery: trio.Nursery) -> None:
        """Starts what keeps specs right and tells `ready`."""
        keeper = self._keeper
        _start(nursery, "specs", lambda: keeper.follow(self.ready), once=True)
        _start(nursery, "spec doubts", keeper.follow_doubts)
        _start(nursery, "node watch", keeper.follow_nodes)
        _start(nursery, "spec watch", lambda: keeper.follow_files(self._config.cdi_dir))

    def start_serving(self, nursery: trio.Nursery) -> None:
        """Starts what asks for claims to be prepared and ended. There must be an inventory."""
        if is_registering(self._config, self._cluster):
            _start(nursery, "kubelet", self._serve_kubelet)
        if isinstance(self._cluster, DirectoryCluster):
            files: Latest[tuple[ClaimFile, ...]] = Latest()
            watch, follower = (
                self._cluster.claims.watch,
                ClaimFollower(self._keeper, files, self.ready),
            )
            _start(nursery, "claim files", lambda: watch(files))
            _start(nursery, "claims", follower.run)
        else:
            _start(nursery, "claim cleaning", self._keeper.clean, once=True)

    def close(self) -> None:
        """Ends the streams of health, so that servers stop at once."""
        self._holdings.health.close()

    async def _serve_kubelet(self) -> None:
        # Loaded here and not at the top: grpc takes 10 MB, and a machine without a kubelet does
        # not need it.
        from liken_events.servers import registry

        await registry.serve(
            paths=registry.KubeletPaths.below(self._config.kubelet_dir, self._config.instance),
            node=self._config.node_name,
            claims=self._keeper,
            health=self._holdings.health,
        )


def _start(
    nursery: trio.Nursery,
    name: str,
    part: Callable[[], Awaitable[None]],
    *,
    once: bool = False,
) -> None:
    """Runs a part that is restarted if it fails; `once` if it may end."""

    async def run() -> bool:
        await part()
        return not once

    nursery.start_soon(keep_running, name, run)
