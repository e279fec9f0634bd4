"""Whether a server has just come back.

An API server listens before it knows who may do what. For some seconds it answers 401 and 403 to
everybody, and nothing in these answers says that they will pass. Whoever believes them waits as
for a right that a person has to grant.

This file remembers, for all connections to one server together, when it was found again, and has
such an answer say for a while that coming back soon is right. How soon that is, and when to try
again after anything else, is decided by whoever called.
"""

import math

import trio

from liken_events.cluster import ClusterError, Forbidden, Unreachable

YOUNG_SECONDS = 60.0
"""For how long after its return a server may not know yet what we may do. It reads its roles and
accounts within seconds (two on free cores); a large cluster's take longer to read."""


class Comeback:
    """What is known of a server's return. Until its first answer it counts as away: an agent may
    be started with its server, or before the roles that its installation makes."""

    def __init__(self) -> None:
        self._is_lost = True
        self._young_until = -math.inf

    def lost(self) -> None:
        """Says that there was no answer."""
        self._is_lost = True

    def answered(self) -> None:
        """Says that there was an answer, whatever it was."""
        if self._is_lost:
            self._is_lost = False
            self._young_until = trio.current_time() + YOUNG_SECONDS

    def judged(self, error: ClusterError) -> ClusterError:
        """The same failure, or one with another `retry_after`."""
        match error:
            case Unreachable():
                self.lost()
            case Forbidden(retry_after=None) if trio.current_time() < self._young_until:
                return Forbidden(error.reason, retry_after=0.0)
        return error
