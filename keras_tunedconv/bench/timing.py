"""Timing contenders in turn, so that whatever else the machine does hits all of them alike."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

# A sample lasts about this long; shorter runs are repeated and averaged.
SAMPLE_SECONDS = 0.02
MINIMUM_ROUNDS, MAXIMUM_ROUNDS = 5, 60
# A contender this many times slower than the fastest takes part in the first rounds only.
SLOW_RATIO, SLOW_ROUNDS = 20.0, 3
# Worker threads of the last contender spin for a moment before they sleep; the next one waits for that.
SETTLE_SECONDS = 0.003

Sampler = Callable[[int], float]


@dataclass
class Timing:
    """What a race found out about one contender.

    Args:
        samples: Seconds of one run, a sample a round.
    """

    samples: list[float] = field(default_factory=list)

    @property
    def median(self) -> float:
        """Median of the samples in seconds."""
        return statistics.median(self.samples)

    @property
    def spread(self) -> float:
        """Interquartile range of the samples over their median."""
        if len(self.samples) < 4:
            return (max(self.samples) - min(self.samples)) / self.median
        low, _, high = statistics.quantiles(self.samples, n=4)
        return (high - low) / self.median


def sampler(run: Callable[[], object], wait: Callable[[], None] | None = None, length: int = 1) -> Sampler:
    """A sampler of a function: wall seconds of one run, from a number of runs back to back.

    Args:
        run: What to time; it may return before its work is done.
        wait: Blocks until all work started by `run` is done.
        length: How many runs one call of `run` makes.
    """

    def sample(repeats: int) -> float:
        calls = math.ceil(repeats / length)
        start = time.perf_counter()
        for _ in range(calls):
            run()
        if wait is not None:
            wait()
        return (time.perf_counter() - start) / (calls * length)

    return sample


def race(contenders: Mapping[str, Sampler], seconds: float = 3.0) -> dict[str, Timing]:
    """Time contenders in turn: A B C A B C …, each sample after an untimed run (but for very slow ones).

    Args:
        contenders: Name to sampler.
        seconds: About how long the timed rounds may take together; at least `MINIMUM_ROUNDS` are run.

    Returns:
        Name to `Timing`.
    """
    timings = {name: Timing() for name in contenders}
    for sample in contenders.values():
        sample(1)
    estimates = {name: sample(1) for name, sample in contenders.items()}
    repeats = {name: max(1, math.ceil(SAMPLE_SECONDS / max(s, 1e-7))) for name, s in estimates.items()}
    fastest = min(estimates.values())
    slow = {name for name, s in estimates.items() if s > SLOW_RATIO * fastest and s > SAMPLE_SECONDS}
    round_seconds = sum(
        s * (repeats[name] + 1) + SETTLE_SECONDS for name, s in estimates.items() if name not in slow
    )
    rounds = min(max(int(seconds / round_seconds), MINIMUM_ROUNDS), MAXIMUM_ROUNDS)
    for number in range(rounds):
        for name, sample in contenders.items():
            if name in slow and number >= SLOW_ROUNDS:
                continue
            if name not in slow:
                time.sleep(SETTLE_SECONDS)
                sample(1)
            timings[name].samples.append(sample(repeats[name]))
    return timings


def take_turns(contenders: Mapping[str, Sampler], *, rounds: int, repeats: int) -> dict[str, Timing]:
    """Time contenders that are warm in turn, A B C A B C ..., each sample of a given number of runs.

    Args:
        contenders: Name to sampler.
        rounds: Samples of each.
        repeats: Runs of a sample.

    Returns:
        Name to `Timing`.
    """
    timings = {name: Timing() for name in contenders}
    for _ in range(rounds):
        for name, sample in contenders.items():
            timings[name].samples.append(sample(repeats))
    return timings


def geometric_mean(values: Sequence[float]) -> float:
    """Geometric mean of positive numbers; NaN when there are none."""
    return math.exp(statistics.fmean(math.log(v) for v in values)) if values else math.nan
