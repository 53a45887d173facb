"""Measuring every candidate of many convolutions into a database, the data of the cost model."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from itertools import zip_longest
from pathlib import Path

from keras_tunedconv.bench.device import operands_on
from keras_tunedconv.bench.problem import Problem, load_set, model_set_names
from keras_tunedconv.core import engines, registry, trials
from keras_tunedconv.core.config import config
from keras_tunedconv.core.descriptor import DIRECTIONS, ConvDescriptor
from keras_tunedconv.core.errors import TunedConvError
from keras_tunedconv.prediction import evaluation, features
from keras_tunedconv.tuning import database
from keras_tunedconv.tuning.merge import stored_form

# A key's search ends after this; enough for each candidate but for the slowest convolutions.
_KEY_BUDGET = 10.0
_FLUSH_SECONDS = 5.0


def in_turn(names: Iterable[str] = ()) -> list[Problem]:
    """The problems of built-in sets, one of each set in turn, so that a part of them is of every model.

    Args:
        names: The sets; all that are named after models by default.

    Raises:
        ValueError: there is no such set; the message lists those there are.
    """
    chosen = list(names) or model_set_names()
    rounds = zip_longest(*map(load_set, chosen))
    return [problem for each in rounds for problem in each if problem is not None]


def problems_of_models() -> dict[str, set[features.Problem]]:
    """The convolutions of each set named after a model, as the cost model's evaluation takes them."""
    return {
        name: {evaluation.problem_of(problem.descriptor().key) for problem in load_set(name)}
        for name in model_set_names()
    }


def descriptors_of(problems: Iterable[Problem]) -> Iterator[ConvDescriptor]:
    """The descriptors of all directions, each once."""
    seen: set[str] = set()
    for problem in problems:
        for direction in DIRECTIONS:
            descriptor = problem.descriptor(direction)
            if descriptor.key not in seen:
                seen.add(descriptor.key)
                yield descriptor


def record(
    path: Path,
    problems: Iterable[Problem],
    *,
    device: str = "cpu",
    seconds: float = 480.0,
    progress: Callable[[str], None] = lambda _: None,
) -> tuple[int, int]:
    """Measure every candidate of problems in all directions, and keep them in a database.

    What the database has for this device is left out, so a run that was cut short goes on.

    Args:
        path: The database, made if it is missing.
        problems: The convolutions.
        device: `"cpu"` or `"cuda"`.
        seconds: Wall time after which no further convolution is begun.
        progress: Called with a line for each convolution.

    Returns:
        How many convolutions were measured, and how many are left.

    Raises:
        DatabaseError: the database cannot be read or written.
        UnavailableError: the device's engine cannot be opened.
    """
    operands = operands_on(device)
    environment = engines.environment(device)
    known: set[str] = set()
    if path.exists():
        searches = database.read_searches(path).searches
        known = {search.key for search in searches if search.environment == environment}
    wanted = [each for each in descriptors_of(problems) if each.key not in known]
    end, writer = time.monotonic() + seconds, _Writer(path)
    measured = 0
    settings = {"mode": "search", "batch_policy": "exact", "record_candidates": True, "resume": False}
    with config.override(**settings, key_budget=_KEY_BUDGET, process_budget=1e6):
        for descriptor in wanted:
            if time.monotonic() > end:
                break
            start = time.monotonic()
            try:
                operands.call(descriptor)()
            except TunedConvError as error:
                progress(f"{descriptor.key}: {error}")
                continue
            measured += 1
            progress(f"{time.monotonic() - start:.2f} s  {descriptor.key}")
            writer.write_if_due()
    writer.write()
    return measured, len(wanted) - measured


class _Writer:
    """Carries what was measured into the database, now and then."""

    def __init__(self, path: Path) -> None:
        self._path = path
        _, self._records_seen = registry.collect()
        _, self._searches_seen = trials.collect()
        self._next = time.monotonic() + _FLUSH_SECONDS

    def write_if_due(self) -> None:
        if time.monotonic() >= self._next:
            self.write()
            self._next = time.monotonic() + _FLUSH_SECONDS

    def write(self) -> None:
        records, self._records_seen = registry.collect(self._records_seen)
        searches, self._searches_seen = trials.collect(self._searches_seen)
        if searches:
            database.merge_into(self._path, map(stored_form, records), searches=searches)
