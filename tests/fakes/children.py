"""The program that starts children while calls go on, in a process of its own: whether grpc's
handlers run in a fork is decided when it is loaded, and tests load it as they like.

Prints how many children it had, how many calls were answered meanwhile, and the most threads that
a child had.
"""

import os
import subprocess
import sys
import warnings
from functools import partial

import trio

from liken_events._generated.pluginregistration_pb2 import PluginInfo
from liken_events.rpc import Server, Service, Unary
from tests.fakes.grpc_calls import Threads, dial
from tests.fakes.waiting import until

CHILDREN = 60
SECONDS = 40.0


async def same(request: PluginInfo) -> PluginInfo:
    return request


def fork() -> int:
    """Forks a child, as a library may do it. Returns the number of its threads."""
    pid = os.fork()
    if pid == 0:
        os._exit(len(os.listdir("/proc/self/task")))
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


async def main(path: str) -> None:
    started = calls = most = 0
    threads = Threads()
    service = Service(
        name="test.Subject", methods=(Unary(name="Same", request=PluginInfo, answer=same),)
    )
    with dial(path) as channel:
        call = channel.unary_unary(
            "/test.Subject/Same", PluginInfo.SerializeToString, PluginInfo.FromString
        )

        async def traffic() -> None:
            nonlocal calls
            while True:
                await threads.run_unary(call, PluginInfo(name="x"), timeout=5)
                calls += 1

        async with Server(path, (service,)).serving(), trio.open_nursery() as nursery:
            for _ in range(4):
                nursery.start_soon(traffic)
            with trio.fail_after(SECONDS):
                for _ in range(CHILDREN):
                    most = max(most, await threads.run(fork))
                    await threads.run(partial(subprocess.run, ["true"], check=True))
                    started += 2
                await until(lambda: calls >= started)
            nursery.cancel_scope.cancel()
    sys.stdout.write(f"{started} {calls} {most}\n")


if __name__ == "__main__":
    warnings.simplefilter("ignore", DeprecationWarning)  # forking beside threads is the point
    trio.run(main, sys.argv[1])
