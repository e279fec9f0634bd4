"""How long to measure: `--quick` to see that everything runs, `--full` for times that are not
extrapolated."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Effort:
    """Repetitions and lengths.

    Attributes:
        rounds: how often two variants take turns, and how often something slow is repeated.
        repeats: how often something fast is repeated in each round.
        events: of a flood.
        quiet_seconds: of the look at an idle agent.
        poll_seconds: of the look at agents that poll while nothing happens.
        changes: of the machine, while two agents poll.
        change_seconds: over which these are spread.
        restarts: of a kubelet.
        plugs: of each kind of device, in a guest.
        polls: of each kind of device, in a guest with an agent that polls: each takes seconds.
        published: changes of a device that go to a real API server.
        nodes: simulated ones on one API server.
        nodes_quiet_seconds: for which these and an agent are left alone.
        outage_seconds: for which that API server is away, its start not counted.
    """

    rounds: int = 5
    repeats: int = 12
    events: int = 100_000
    quiet_seconds: float = 60.0
    poll_seconds: float = 21.0
    changes: int = 50
    change_seconds: float = 45.0
    restarts: int = 200
    plugs: int = 8
    polls: int = 2
    published: int = 200
    nodes: int = 2000
    nodes_quiet_seconds: float = 600.0
    outage_seconds: float = 60.0


NORMAL = Effort()
QUICK = Effort(
    rounds=2,
    repeats=4,
    events=10_000,
    quiet_seconds=3.0,
    poll_seconds=11.0,
    changes=5,
    change_seconds=5.0,
    restarts=20,
    plugs=2,
    polls=1,
    published=20,
    nodes=200,
    nodes_quiet_seconds=120.0,
    outage_seconds=10.0,
)
# Just short of the safety interval of 600 s, whose look is accounted for by itself.
FULL = Effort(rounds=9, quiet_seconds=500.0, poll_seconds=590.0, change_seconds=600.0)
