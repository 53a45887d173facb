"""Rows as a table in Markdown, and what they come to."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from keras_tunedconv.bench.peers.result import (
    BEST_PEER,
    CONTENDERS,
    DEFAULT,
    TORCH,
    TORCH_BENCHMARK,
    TUNED,
    TURNS,
    XLA,
    Row,
    geometric_means,
    largest_difference,
)
from keras_tunedconv.bench.problem import Problem, parse
from keras_tunedconv.bench.table import drop_empty, markdown, number

NOT_MEASURED = "not measured"
# How each device's library is called.
LIBRARIES = {"cpu": "oneDNN", "cuda": "cuDNN"}


def names(device: str) -> dict[str, str]:
    """Contender to what it is called in text."""
    return {
        TUNED: "tuned",
        DEFAULT: f"{LIBRARIES[device]}'s first choice",
        TORCH: "torch",
        TORCH_BENCHMARK: "torch, benchmark",
        XLA: "XLA",
        BEST_PEER: "best of these",
        TURNS: "timing in turn",
    }


def table(rows: Sequence[Row], device: str) -> str:
    """Microseconds of each contender, and how many times as long as tuned the fastest peer took."""
    called = names(device)
    headers = ("problem", "direction", *(called[name] for name in CONTENDERS), "best peer/tuned")
    problems = short_problems(rows)
    lines = [_line(row, problem) for row, problem in zip(rows, problems, strict=True)]
    return markdown(*drop_empty(headers, lines))


def _line(row: Row, problem: str) -> list[str]:
    cells = [number(_microseconds(row, name)) for name in CONTENDERS]
    if not row.is_measured:
        cells[0] = NOT_MEASURED
    ratio = row.over_tuned(BEST_PEER)
    return [f"`{problem}`", row.direction, *cells, "-" if ratio is None else f"{ratio:.2f}"]


def _microseconds(row: Row, name: str) -> float | None:
    return row.seconds[name] * 1e6 if name in row.seconds else None


def dtypes(rows: Sequence[Row]) -> list[str]:
    """The dtypes of the problems."""
    return sorted({parse(row.problem).dtype for row in rows})


def short_problems(rows: Sequence[Row]) -> list[str]:
    """The problems' lines, without the dtype where all have the same, and without counts."""
    usual = Problem.dtype if len(dtypes(rows)) == 1 else None
    found = []
    for row in rows:
        problem = replace(parse(row.problem), count=1)
        found.append((replace(problem, dtype=usual) if usual else problem).text)
    return found


def summary(rows: Sequence[Row], device: str) -> Iterator[str]:
    """Lines about all rows: means, differences of results, and what is missing and why."""
    called = names(device)
    for name, mean in geometric_means(rows).items():
        yield f"geometric mean of {called[name]} / tuned: {mean:.3f}"
    largest = largest_difference(rows)
    if largest is not None:
        difference, row = largest
        what = "largest difference between what tuned and a peer computed, over the largest magnitude"
        yield f"{what}: {difference:.1e} ({row.problem} {row.direction})"
    for row in rows:
        for name, reason in row.left_out.items():
            yield f"{row.problem} {row.direction}: {called[name]} left out: {reason}"
    missing = sum(not row.is_measured for row in rows)
    if missing:
        yield f"{missing} of {len(rows)} not measured: time was up; --seconds-limit gives more"
