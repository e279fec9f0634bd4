"""Two other agents made of the same code, to compare with: `python -m bench.variants NAME run …`.

`poller` has no source of events: it reads the whole machine at each safety interval and publishes
what differs, by the same plan and the same sink. That is what agents do that do not listen.

`unfiltered` is the agent on a kernel that takes no socket filter: it reads and discards the noise
itself.
"""

import os
import sys

import trio

from bench.agent_process import Variant
from liken_events import cli, log
from liken_events.agent import choose_cluster, run_agent
from liken_events.arguments import parse
from liken_events.commands.follow import Teller
from liken_events.config import load
from liken_events.sources import uevent_filter

_MODULE = "bench.variants"

POLLER = Variant(module=_MODULE, words=("poller",))
UNFILTERED = Variant(module=_MODULE, words=("unfiltered",))


def _poll(words: list[str]) -> int:
    arguments = parse(words)
    config = load(file=None, environ=os.environ, flags=arguments.flags)
    log.configure(form=config.log_format, level=config.log_level)
    cluster = choose_cluster(config, os.environ)
    teller = Teller()
    trio.run(lambda: run_agent(config, cluster, on_published=teller.tell, sources=[]))
    return 0


def _run_unfiltered(words: list[str]) -> int:
    uevent_filter.SO_ATTACH_FILTER = 0  # an option that no kernel has
    return cli.main(words)


if __name__ == "__main__":
    name, *rest = sys.argv[1:]
    sys.exit({"poller": _poll, "unfiltered": _run_unfiltered}[name](rest))
