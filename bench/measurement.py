"""One measured number, and the promise it is held to.

A single number hides how much it moves, and a median hides a bad tail. So a measurement keeps its
samples and shows the median with the lowest and the highest.

This file holds that value and its JSON form. Measuring is left to the modules of the groups,
showing to `__main__`.
"""

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Self

from liken_events.core.model.json import Json


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """One number.

    Attributes:
        group: name of the group of promises it belongs to.
        what: what was measured, as a clause for a person.
        unit: `ms`, `µs`, `MB`, `x` for a ratio, or what is counted.
        samples: at least one; the median is what counts.
        bound: what the median must not exceed; None for a number that is only told.
        machine: what it was measured on, if that is not the machine that the benchmark runs on.
    """

    group: str
    what: str
    unit: str
    samples: tuple[float, ...]
    bound: float | None = None
    machine: str | None = None

    @property
    def median(self) -> float:
        """The number that counts."""
        return statistics.median(self.samples)

    @property
    def passed(self) -> bool:
        """Whether the promise was kept; true where none was made."""
        return self.bound is None or self.median <= self.bound

    def on(self, machine: str) -> Self:
        """The same number, measured on that machine."""
        return replace(self, machine=machine)

    def to_json(self) -> dict[str, Json]:
        """The measurement as one JSON object."""
        return {
            "group": self.group,
            "what": self.what,
            "unit": self.unit,
            "median": self.median,
            "lowest": min(self.samples),
            "highest": max(self.samples),
            "samples": len(self.samples),
            "bound": self.bound,
            "passed": None if self.bound is None else self.passed,
            **({} if self.machine is None else {"machine": self.machine}),
        }


def measured(
    group: str,
    what: str,
    unit: str,
    samples: Iterable[float],
    *,
    bound: float | None = None,
    scale: float = 1.0,
) -> Measurement:
    """A measurement from raw samples, each multiplied by `scale` (1000 for seconds in ms)."""
    scaled = tuple(sample * scale for sample in samples)
    return Measurement(group=group, what=what, unit=unit, samples=scaled, bound=bound)


def percentile(samples: Sequence[float], rank: int) -> float:
    """What `rank` percent of the samples do not exceed; it is one of them."""
    ordered = sorted(samples)
    return ordered[max(0, -(-len(ordered) * rank // 100) - 1)]
