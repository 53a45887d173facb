"""The columns that recorded searches are stored in, in database files only: a row a candidate.

The two datasets of `schema`, in a group of their own beside the entries: `text`, the distinct strings, and
`numbers`, whose first columns point into it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from keras_tunedconv.core.trials import Search, Trial, TrialState
from keras_tunedconv.tuning.schema import (
    MAX_TEXT_BYTES,
    Column,
    Columns,
    SchemaError,
    fault_names,
    first_faults,
    out_of_range,
    read_lines,
    text_of,
)

VERSION = 1
# As many as the core keeps in a process.
MAX_TRIALS = 65_536
MAX_SAMPLES = 16

_HEADER = "keras_tunedconv candidates "
_LINES = ("direction", "problem", "environment", "algorithm", "reason")
_SECONDS = ("plan_seconds", "screen_seconds", "estimate_seconds", "median_seconds")
_COLUMNS = (
    *(Column(name, high=MAX_TEXT_BYTES) for name in _LINES),
    Column("created", high=1e12),
    Column("order", high=1e6),
    Column("state", high=max(TrialState)),
    Column("deterministic", high=1),
    Column("workspace_bytes", high=2**40),
    *(Column(name, high=1e7, integral=False) for name in _SECONDS),
    Column("sample_count", high=MAX_SAMPLES),
    *(Column(f"sample_{i}", high=1e7, integral=False) for i in range(MAX_SAMPLES)),
)
COLUMN_COUNT = len(_COLUMNS)
_STATES = {int(state): state for state in TrialState}


@dataclass(frozen=True)
class DecodedSearches:
    """What was read: searches with the sound rows, how many rows were not, and what ailed the first."""

    searches: list[Search]
    malformed: int = 0
    problem: str = ""


def encode(searches: Iterable[Search]) -> Columns:
    """Searches as columns; where they are too many the oldest are left out.

    Raises:
        ValueError: a search would not be read back; the message names what is wrong.
    """
    chosen = _fitting(searches)
    while True:
        try:
            columns = _columns(chosen)
            break
        except SchemaError:  # too much text
            chosen = chosen[len(chosen) // 4 + 1 :]
    decoded = decode(columns)
    if decoded.malformed:
        raise ValueError(f"Candidates cannot be stored: {decoded.problem}")
    return columns


def _fitting(searches: Iterable[Search]) -> list[Search]:
    """The newest searches that have room, oldest first."""
    newest, rows = [], 0
    for search in sorted(searches, key=lambda search: search.created, reverse=True):
        rows += len(search.trials)
        if rows > MAX_TRIALS:
            break
        newest.append(search)
    return newest[::-1]


def _columns(searches: list[Search]) -> Columns:
    lines: dict[str, int] = {f"{_HEADER}{VERSION}": 0}
    rows: list[list[float]] = []
    for search in searches:
        direction, _, problem = search.key.partition("|")
        for trial in search.trials:
            strings = (direction, problem, search.environment, trial.algorithm, trial.reason)
            row = [float(lines.setdefault(string, len(lines))) for string in strings]
            row += [search.created, trial.order, trial.state, trial.deterministic, trial.workspace_bytes]
            row += [getattr(trial, name) for name in _SECONDS]
            row += [len(trial.samples), *trial.samples, *(0.0,) * (MAX_SAMPLES - len(trial.samples))]
            rows.append(row)
    numbers = np.array(rows, dtype=np.float64).reshape(len(rows), COLUMN_COUNT)
    return Columns(text_of(lines), numbers)


def decode(columns: Columns) -> DecodedSearches:
    """The searches in columns, each row checked on its own.

    Args:
        columns: Arrays whose dtypes and shapes were checked, with any contents.

    Raises:
        SchemaError: these are not candidates of this package, or of a later version of the schema.
    """
    lines, sizes = read_lines(columns.text, _HEADER, VERSION, most=MAX_TRIALS * len(_LINES))
    if len(columns.numbers) == 0:
        return DecodedSearches([])
    wrong, index, size = out_of_range(columns.numbers, _COLUMNS, sizes, len(_LINES))
    faults = first_faults(wrong, index, size, lines)
    sound = np.flatnonzero(faults < 0)
    searches = list(_searches(lines, index[sound], columns.numbers[sound]))
    malformed = len(faults) - len(sound)
    if not malformed:
        return DecodedSearches(searches)
    row = int(np.argmax(faults >= 0))
    return DecodedSearches(searches, malformed, f"candidate {row} has an invalid {_FAULTS[faults[row]]}")


_FAULTS = fault_names(_COLUMNS, "reason")


def _searches(
    lines: list[str], index: npt.NDArray[np.int64], numbers: npt.NDArray[np.float64]
) -> Iterator[Search]:
    """Searches of rows that were checked, in the order in which they first occur."""
    trials: dict[tuple[int, ...], list[Trial]] = {}
    created: dict[tuple[int, ...], int] = {}
    for strings, values in zip(index.tolist(), numbers[:, len(_LINES) :].tolist(), strict=True):
        identity = tuple(strings[:3])
        created[identity] = max(created.get(identity, 0), int(values[0]))
        trials.setdefault(identity, []).append(_trial(lines[strings[3]], lines[strings[4]], values[1:]))
    for identity, found in trials.items():
        direction, problem, environment = (lines[i] for i in identity)
        in_order = tuple(sorted(found, key=lambda trial: trial.order))
        yield Search(f"{direction}|{problem}", environment, created[identity], in_order)


def _trial(algorithm: str, reason: str, values: list[Any]) -> Trial:
    order, state, deterministic, workspace, plan, screen, estimate, median, count, *samples = values
    return Trial(
        algorithm=algorithm,
        state=_STATES[int(state)],
        order=int(order),
        reason=reason,
        workspace_bytes=int(workspace),
        plan_seconds=plan,
        screen_seconds=screen,
        estimate_seconds=estimate,
        median_seconds=median,
        deterministic=deterministic == 1,
        samples=tuple(samples[: int(count)]),
    )
