"""Problem after problem, within a time limit."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from keras_tunedconv.bench.peers.result import Row
from keras_tunedconv.bench.problem import Problem
from keras_tunedconv.core.descriptor import Direction


class Timer(Protocol):
    """Times the directions of one problem after another."""

    def begin(self, problem: Problem) -> None:
        """Go on to a problem."""

    def time(self, row: Row) -> None:
        """Time one of its directions into a row."""

    def end(self) -> None:
        """Time what is timed for all of its directions together."""


def run(
    problems: Iterable[Problem],
    directions: Sequence[Direction],
    timer: Timer,
    *,
    seconds_limit: float,
    progress: Callable[[Row], None] = lambda _: None,
    clock: Callable[[], float] = time.monotonic,
) -> list[Row]:
    """Time problems in all directions, until time is up.

    Args:
        problems: The convolutions.
        directions: Directions to time.
        timer: What times them.
        seconds_limit: No direction is begun after this many seconds.
        progress: Called with each row when all of its problem is timed.
        clock: Gives seconds.

    Returns:
        A row for each direction of each problem; those that time was up for are not measured.
    """
    end = clock() + seconds_limit
    rows = []
    for problem in problems:
        of_problem = [Row(problem.text, direction) for direction in directions]
        if clock() < end:
            timer.begin(problem)
            for row in of_problem:
                if clock() < end:
                    timer.time(row)
            timer.end()
        for row in of_problem:
            progress(row)
        rows += of_problem
    return rows
