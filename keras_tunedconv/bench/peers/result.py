"""What the contenders took for each direction of each problem, and the ratios between them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from typing import Any

from keras_tunedconv.bench.timing import geometric_mean
from keras_tunedconv.core.descriptor import Direction

TUNED, DEFAULT = "tuned", "default"
TORCH, TORCH_BENCHMARK, XLA = "torch", "torch_benchmark", "xla"
# Those beside whom the package is to stand; the first choice of its own library is no such one.
PEERS = (TORCH, TORCH_BENCHMARK, XLA)
CONTENDERS = (TUNED, DEFAULT, *PEERS)
BEST_PEER = "best_peer"
# All contenders but XLA, as `Row.left_out` names them where their turns broke off.
TURNS = "turns"


@dataclass
class Row:
    """One direction of one problem.

    Args:
        problem: The problem's line.
        direction: `"forward"`, `"backward_data"` or `"backward_filter"`.
        seconds: Contender to median seconds of the device for one run; empty where time was up before.
        spread: Contender to interquartile range over median.
        algorithm: Name of the algorithm that tuning chose.
        default_algorithm: Name of the library's first choice.
        workspace_bytes: Workspace of the chosen one.
        tuning_seconds: Time spent on tuning.
        candidates_tried: How many candidates were measured or dropped.
        candidates_total: How many there are.
        difference: Largest difference between what tuned and a peer that computes the same function
            computed, over the peer's largest magnitude; `None` without such a peer.
        left_out: Contender, or `TURNS`, to why it was not timed.
    """

    problem: str
    direction: Direction
    seconds: dict[str, float] = field(default_factory=dict)
    spread: dict[str, float] = field(default_factory=dict)
    algorithm: str = ""
    default_algorithm: str = ""
    workspace_bytes: int = 0
    tuning_seconds: float = 0.0
    candidates_tried: int = 0
    candidates_total: int = 0
    difference: float | None = None
    left_out: dict[str, str] = field(default_factory=dict)

    @property
    def is_measured(self) -> bool:
        """Whether its turn came."""
        return bool(self.seconds or self.left_out)

    def over_tuned(self, name: str) -> float | None:
        """How many times as long as tuned a contender took, or the fastest peer (`BEST_PEER`)."""
        peers = [self.seconds[peer] for peer in PEERS if peer in self.seconds]
        seconds = min(peers, default=None) if name == BEST_PEER else self.seconds.get(name)
        if seconds is None or TUNED not in self.seconds:
            return None
        return seconds / self.seconds[TUNED]

    def to_dict(self) -> dict[str, Any]:
        """Its fields and ratios, for JSON."""
        return {**asdict(self), "over_tuned": _ratios(self), "measured": self.is_measured}


def _ratios(row: Row) -> dict[str, float]:
    ratios = {name: row.over_tuned(name) for name in (DEFAULT, *PEERS, BEST_PEER)}
    return {name: ratio for name, ratio in ratios.items() if ratio is not None}


def geometric_means(rows: Iterable[Row]) -> dict[str, float]:
    """Contender to the geometric mean of its time over tuned's, over the rows that have both."""
    values: dict[str, list[float]] = {}
    for row in rows:
        for name, ratio in _ratios(row).items():
            values.setdefault(name, []).append(ratio)
    return {name: geometric_mean(ratios) for name, ratios in values.items()}


def largest_difference(rows: Iterable[Row]) -> tuple[float, Row] | None:
    """The largest difference between what tuned and a peer computed, and where it was."""
    found = [(row.difference, row) for row in rows if row.difference is not None]
    return max(found, key=lambda pair: pair[0], default=None)
