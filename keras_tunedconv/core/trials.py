"""What became of each candidate of a search, which the core keeps where `config.record_candidates` is set."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Any

from keras_tunedconv.core.errors import check
from keras_tunedconv.core.library import ffi, lib, text


class TrialState(IntEnum):
    """What became of a candidate. The numbers are `tc_trial_state` in tunedconv.h and stand in files."""

    NOT_TRIED = 0
    WON = 1
    FINALIST = 2
    SLOW = 3
    FAILED = 4
    WRONG = 5


_UNUSABLE = frozenset((TrialState.NOT_TRIED, TrialState.FAILED, TrialState.WRONG))


@dataclass(frozen=True, slots=True)
class Trial:
    """One candidate of a search. Seconds are 0 where nothing was measured.

    Args:
        algorithm: Its name, as the engine gave it.
        state: What became of it.
        order: Its place in the engine's list; 0 is the library's default.
        reason: Why it failed or was wrong; else `""`.
        workspace_bytes: Workspace it needs, in bytes.
        plan_seconds: Wall time of building its plan.
        screen_seconds: Wall time until it was let into the finals or dropped, the plan included.
        estimate_seconds: Time of one run, the least of its first one or two.
        median_seconds: Median time of one run over all samples of the finals.
        deterministic: Whether it gives the same bits each run.
        samples: Seconds of one run, the first ones of the finals in their order, at most 16.
    """

    algorithm: str
    state: TrialState
    order: int
    reason: str = ""
    workspace_bytes: int = 0
    plan_seconds: float = 0.0
    screen_seconds: float = 0.0
    estimate_seconds: float = 0.0
    median_seconds: float = 0.0
    deterministic: bool = False
    samples: tuple[float, ...] = ()

    @property
    def seconds(self) -> float:
        """The best that is known of a run's time: the median, else the estimate, else 0."""
        return self.median_seconds or self.estimate_seconds

    @property
    def usable(self) -> bool:
        """Whether it ran, was right, and has a time."""
        return self.state not in _UNUSABLE and self.seconds > 0

    @classmethod
    def from_c(cls, c: Any) -> Trial:
        """The trial in a `tc_trial`."""
        return cls(
            algorithm=text(c.algorithm),
            state=TrialState(c.state),
            order=c.order,
            reason="".join(char if char.isprintable() else " " for char in text(c.reason)),
            workspace_bytes=c.workspace_bytes,
            plan_seconds=c.plan_seconds,
            screen_seconds=c.screen_seconds,
            estimate_seconds=c.estimate_seconds,
            median_seconds=c.median_seconds,
            deterministic=bool(c.deterministic),
            samples=tuple(c.samples[0 : c.sample_count]),
        )


@dataclass(frozen=True, slots=True)
class Search:
    """All candidates of one key in one environment.

    Args:
        key: Canonical text of the convolution.
        environment: Canonical text of the device and the library.
        created: Unix time at the end of the search, in seconds.
        trials: Its candidates, in the engine's order.
    """

    key: str
    environment: str
    created: int
    trials: tuple[Trial, ...]


def collect(since: int = 0) -> tuple[list[Search], int]:
    """Searches that ended after a moment, of those whose candidates were recorded.

    Args:
        since: The number a former call returned; 0 for everything.

    Returns:
        The searches, oldest first, and the number to pass next time.
    """
    found: list[Search] = []
    if lib is None:
        return found, since
    head, count = ffi.new("tc_trials_head *"), ffi.new("size_t *")
    capacity, trials = 0, ffi.NULL
    while True:
        check(lib.tc_trials_next(since, head, trials, capacity, count))
        if head.sequence == 0:
            return found, since
        if count[0] > capacity:
            capacity = count[0]
            trials = ffi.new("tc_trial[]", capacity)
            continue
        since = head.sequence
        found.append(
            Search(
                key=text(head.key),
                environment=text(head.environment),
                created=head.created,
                trials=tuple(Trial.from_c(trials[i]) for i in range(count[0])),
            )
        )
