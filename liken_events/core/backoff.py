"""How long to wait after a failure.

An API server that is down or throttles is asked again by every node at once. Equal waits keep them
in step, and short ones keep it down; a wait without a bound makes a node deaf after a long outage.

This file is the arithmetic: growing, jittered, bounded, and never shorter than what the other side
asked for. Clock and dice belong to the caller, who also counts the failures and decides when to
forget them.
"""

from dataclasses import dataclass

_MOST_DOUBLINGS = 62
"""Exponent at which growth stops being computed: every ceiling is reached, no float overflows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Backoff:
    """Parameters of a growing wait.

    Attributes:
        base: seconds of the longest wait after the first failure; above 0.
        ceiling: seconds beyond which the wait does not grow; at least `base`.
        factor: by how much it grows with each further failure; between 1 and 1000.
    """

    base: float
    ceiling: float
    factor: float = 2.0

    def delay(self, attempt: int, random01: float, retry_after: float | None = None) -> float:
        """Seconds to wait before the next attempt.

        Half of the grown wait is fixed and half is chance, so that nodes which failed together do
        not come back together. The chance is added to what the other side asked for, too: it told
        all nodes the same number.

        Args:
            attempt: failures in a row until now; 1 for the wait after the first.
            random01: an even chance between 0 and 1.
            retry_after: seconds that the other side asked to wait, or None.
        """
        steps = min(max(attempt, 1) - 1, _MOST_DOUBLINGS)
        half = min(self.ceiling, self.base * self.factor**steps) / 2
        return max(half, retry_after or 0.0) + half * random01


SOON = Backoff(base=5.0, ceiling=20.0)
"""Pauses while the other side answers and asks to be asked again: it works, and will be ready
within moments. An API server that is busy asks for 1 s (`Retry-After`), and it asks all nodes
alike. All whom it refused in one second would be back in one, and it would refuse them again; two
thousand nodes spread over these waits ask at most 200 times a second together in the long run."""
