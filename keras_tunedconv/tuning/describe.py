"""Durations, convolutions and gains in a few characters, for tables."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import lru_cache

from rich.console import Console

from keras_tunedconv.core.descriptor import ConvDescriptor
from keras_tunedconv.core.errors import InvalidArgumentError
from keras_tunedconv.core.library import lib
from keras_tunedconv.core.record import Record

# Headings of `cells`, and those of numbers.
HEADINGS = ("algorithm", "time", "default", "gain", "from", "convolution")
NUMERIC = frozenset(("time", "default", "gain"))
# Wider than any line: what goes into a pipe or a file has no edge that tables must fit into.
PIPE_WIDTH = 10_000


def stdout_console() -> Console:
    """Standard output; where it is no terminal, as wide as lines are."""
    return Console() if sys.stdout.isatty() else Console(width=PIPE_WIDTH)


def format_seconds(seconds: float) -> str:
    """A duration with three digits and a unit."""
    for limit, scale, unit in ((1.0, 1.0, "s"), (1e-3, 1e3, "ms"), (0.0, 1e6, "us")):
        if seconds and abs(seconds) >= limit * 0.9995:  # what three digits round up to it too
            return f"{seconds * scale:.3g} {unit}"
    return "0 s"


def count(number: int, one: str, several: str = "") -> str:
    """A number and what it counts, such as "1 entry" and "2 entries"; `several` is by default with an s."""
    return f"{number} {one if number == 1 else several or one + 's'}"


def plain_table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table as lines of text, much faster than one with borders: for pipes and many rows."""
    widths = [max(map(len, column)) for column in zip(headings, *rows, strict=True)]
    pieces = [
        f"{{:{'>' if name in NUMERIC else '<'}{width}}}" for name, width in zip(headings, widths, strict=True)
    ]
    line = "  ".join(pieces).format
    return "\n".join(line(*row).rstrip() for row in (headings, *rows))


def format_problem(key: str) -> str:
    """Dims of input and filter and what else tells convolutions apart, in one short line.

    Args:
        key: Canonical text of a convolution; without the compiled core it is given back less its direction.
    """
    return _format_problem(key.partition("|")[2])


# The directions of a layer share it.
@lru_cache(maxsize=4096)
def _format_problem(problem: str) -> str:
    if lib is None:
        return problem
    try:
        d = ConvDescriptor.from_key(f"forward|{problem}")
    except InvalidArgumentError:
        return problem
    parts = ["x".join(map(str, d.x_dims)), "filter " + "x".join(map(str, d.w_dims))]
    if any(d.pad_before) or any(d.pad_after):
        pads = (d.pad_before,) if d.pad_before == d.pad_after else (d.pad_before, d.pad_after)
        parts.append("pad " + ":".join("x".join(map(str, pad)) for pad in pads))
    if set(d.stride) != {1}:
        parts.append("stride " + "x".join(map(str, d.stride)))
    if set(d.dilation) != {1}:
        parts.append("dilation " + "x".join(map(str, d.dilation)))
    if d.groups != 1:
        parts.append(f"groups {d.groups}")
    return " ".join([*parts, d.x_dtype])


def cells(record: Record) -> tuple[str, str, str, str, str, str]:
    """Algorithm, time, the default's time, gain, provenance and problem; `""` where nothing was measured."""
    measured = record.time_seconds > 0
    compared = measured and record.default_seconds > 0
    return (
        record.algorithm,
        format_seconds(record.time_seconds) if measured else "",
        format_seconds(record.default_seconds) if record.default_seconds > 0 else "",
        f"{record.gain:.2f}x" if compared else "",
        record.provenance.name.lower(),
        format_problem(record.key),
    )
