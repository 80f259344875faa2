"""What a benchmark answers: figures, each with its target where there is one."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One measured number. `at_least` or `at_most` is its target."""

    name: str
    value: float
    unit: str = ""
    at_least: float | None = None
    at_most: float | None = None
    note: str = ""

    @property
    def target(self) -> str:
        if self.at_least is not None:
            return f"≥ {self.at_least:g}"
        return "" if self.at_most is None else f"≤ {self.at_most:g}"

    @property
    def meets_its_target(self) -> bool:
        return (self.at_least is None or self.value >= self.at_least) and (
            self.at_most is None or self.value <= self.at_most
        )


Say = Callable[[str], None]
"""Tells a waiting person what is being done."""


class Benchmark(Protocol):
    """The `measure` of a module of this package."""

    def __call__(self, *, short: bool, say: Say) -> list[Figure]: ...


def percentile(values: list[float], percent: float) -> float:
    """The smallest value that `percent` of the values do not exceed."""
    ranked = sorted(values)
    return ranked[min(len(ranked) - 1, int(len(ranked) * percent / 100))]
