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
    """

    rounds: int = 5
    repeats: int = 12
    events: int = 100_000
    quiet_seconds: float = 60.0
    poll_seconds: float = 21.0
    changes: int = 50
    change_seconds: float = 45.0
    restarts: int = 200


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
)
# Just short of the safety interval of 600 s, whose look is accounted for by itself.
FULL = Effort(rounds=9, quiet_seconds=500.0, poll_seconds=590.0, change_seconds=600.0)
