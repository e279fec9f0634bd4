"""The agent as a process, which hears from a socket what the kernel would say.

The kernel's messages stay within a network namespace. In the machine's own, made-up ones would
reach its udevd; from another one, an API server on loopback is not reached. So all is the agent's
own but the netlink socket.

Takes one argument, an object of JSON: `config` (fields of `Config`), `socket` (the address at
which messages arrive), and `kubeconfig` or `account` (a directory as the kubelet mounts it).
"""

import json
import os
import socket
import sys

import trio

from liken_events.agent import run_agent
from liken_events.cluster.kubernetes import KubernetesCluster
from liken_events.cluster.kubernetes_access import InCluster, Kubeconfig, Load
from liken_events.commands.follow import Teller
from liken_events.config import Config
from liken_events.core.decode.uevent import decode
from liken_events.inbox import Inbox
from liken_events.log import configure
from liken_events.simulate.uevents import MAX_BYTES


class Told:
    """A source: datagrams of a unix socket instead of netlink's."""

    name = "told"

    def __init__(self, path: str) -> None:
        self._path = path

    async def run(self, inbox: Inbox, *, task_status: trio.TaskStatus[None]) -> None:
        with trio.socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
            await sock.bind(self._path)
            task_status.started()
            while True:
                trigger = decode(await sock.recv(MAX_BYTES))
                if trigger is not None:
                    inbox.mark(trigger)


def main() -> None:
    settings = json.loads(sys.argv[1])
    configure(form="json", level="debug")
    load: Load = (
        InCluster(environ=os.environ, directory=settings["account"])
        if "account" in settings
        else Kubeconfig(path=settings["kubeconfig"])
    )
    config = Config(**settings["config"])
    cluster, teller = KubernetesCluster(load), Teller()
    told = Told(settings["socket"])
    trio.run(lambda: run_agent(config, cluster, on_published=teller.tell, sources=[told]))


if __name__ == "__main__":
    main()
