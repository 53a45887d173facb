"""The columns that records are stored in: one schema, for models' files and database files.

Two datasets of standard dtypes, whatever the file: `text`, the distinct strings as UTF-8 bytes, one a
line, the first naming the schema and its version; and `numbers`, a row a record, whose first columns
point into `text`. A dataset a field would cost a model with fifty layers more than the entries do.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from keras_tunedconv.core.descriptor import DIRECTIONS
from keras_tunedconv.core.record import Provenance, Record

VERSION = 1
# Bounds on what is read at all; a file that claims more is refused before anything is allocated.
MAX_RECORDS = 16_384
MAX_TEXT_BYTES = 8 * 2**20
# Largest texts in bytes: the core's fields less the NUL.
MAX_KEY_BYTES = 639
MAX_NAME_BYTES = 255

_HEADER = "keras_tunedconv tuning "
# What a terminal or a log could misread, the line feed (it ends a string here) included.
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029]")
_CONTROL_BUT_LINE_FEED = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u2028\u2029]")


@dataclass(frozen=True)
class Column:
    """A column of numbers and the values it may hold."""

    name: str
    high: float
    low: float = 0
    integral: bool = True


# Keys are kept as direction and the rest, which the three directions of a layer share. The bounds of the
# numbers are those of the core, which checks them again.
_LINES = ("direction", "problem", "environment", "algorithm", "runner_up")
_COLUMNS = (
    *(Column(name, high=MAX_TEXT_BYTES) for name in _LINES),
    Column("workspace_bytes", high=2**40),
    Column("created", high=1e12),
    Column("time_seconds", high=1e7, integral=False),
    Column("default_seconds", high=1e7, integral=False),
    Column("spread", high=1e6, integral=False),
    Column("tuning_seconds", high=1e7, integral=False),
    Column("candidates_tried", high=1e6),
    Column("candidates_total", high=1e6),
    Column("provenance", low=Provenance.MEASURED, high=max(Provenance)),
    Column("math_type", high=1),
    Column("deterministic", high=1),
)
COLUMN_COUNT = len(_COLUMNS)
_POSITION = {column.name: i for i, column in enumerate(_COLUMNS)}
_PROVENANCES = {int(provenance): provenance for provenance in Provenance}
# In the order of Record's fields.
_NUMBERS = tuple(column.name for column in _COLUMNS[len(_LINES) :])


class SchemaError(ValueError):
    """Stored entries that cannot be read as a whole; the message says why."""


@dataclass(frozen=True)
class Columns:
    """Records, or trials, as arrays.

    Args:
        text: 1-D, uint8.
        numbers: 2-D, float64, a row each.
    """

    text: npt.NDArray[np.uint8]
    numbers: npt.NDArray[np.float64]

    def items(self) -> tuple[tuple[str, npt.NDArray[Any]], ...]:
        """Names and arrays, in the order in which they are written."""
        return ("text", self.text), ("numbers", self.numbers)


@dataclass(frozen=True)
class Decoded:
    """What was read: the sound records, how many were not, and what was wrong with the first of those."""

    records: list[Record]
    malformed: int = 0
    problem: str = ""


def encode(records: Iterable[Record]) -> Columns:
    """Records as columns.

    Raises:
        SchemaError: they are more than can be stored together.
        ValueError: a record would not be read back; the message names the field.
    """
    lines: dict[str, int] = {f"{_HEADER}{VERSION}": 0}
    rows: list[list[float]] = []
    for record in records:
        direction, _, problem = record.key.partition("|")
        strings = (direction, problem, record.environment, record.algorithm, record.runner_up)
        row = [float(lines.setdefault(string, len(lines))) for string in strings]
        row.extend(float(getattr(record, name)) for name in _NUMBERS)
        rows.append(row)
    if len(rows) > MAX_RECORDS:
        raise SchemaError(f"At most {MAX_RECORDS} records can be stored together. Received: {len(rows)}")
    columns = Columns(text_of(lines), np.array(rows, dtype=np.float64).reshape(len(rows), COLUMN_COUNT))
    decoded = decode(columns)
    if decoded.malformed:
        raise ValueError(f"Records cannot be stored: {decoded.problem}")
    return columns


def text_of(lines: Iterable[str]) -> npt.NDArray[np.uint8]:
    """The column of text with these lines.

    Raises:
        SchemaError: they are more than can be stored together.
        ValueError: a text has more than one line.
    """
    lines = list(lines)
    if any("\n" in line for line in lines):
        raise ValueError("Records cannot be stored: a text has more than one line")
    text = "\n".join(lines).encode()
    if len(text) > MAX_TEXT_BYTES:
        raise SchemaError(f"At most {MAX_TEXT_BYTES} bytes of text can be stored. Received: {len(text)}")
    return np.frombuffer(text, dtype=np.uint8)


def decode(columns: Columns) -> Decoded:
    """The records in columns, each row checked on its own.

    Args:
        columns: Arrays whose dtypes and shapes were checked, with any contents.

    Raises:
        SchemaError: these are not entries of this package, or of a later version of the schema.
    """
    lines, sizes = read_lines(columns.text, _HEADER, VERSION, most=MAX_RECORDS * len(_LINES))
    numbers = columns.numbers
    if len(numbers) == 0:
        return Decoded([])
    faults = _faults(numbers, lines, sizes)
    sound = np.flatnonzero(faults < 0)
    records = _records(lines, numbers[sound])
    malformed = len(numbers) - len(records)
    if not malformed:
        return Decoded(records)
    row = int(np.argmax(faults >= 0))
    return Decoded(records, malformed, f"entry {row} has an invalid {_FAULTS[faults[row]]}")


def read_lines(
    text: npt.NDArray[np.uint8], header: str, version: int, *, most: int
) -> tuple[list[str], npt.NDArray[np.int64]]:
    """The strings in a column of text, and their sizes in bytes.

    Args:
        text: The column, with any contents.
        header: What its first line begins with; the version of its schema follows.
        version: The version that is read here.
        most: The most strings it may claim.

    Returns:
        The lines, the first included, and their sizes: -1 for those that are not printable UTF-8, and for
        the first, which names nothing.

    Raises:
        SchemaError: it begins otherwise, is of another version, or claims too many strings.
    """
    raw = text.tobytes()
    first = raw[:64].partition(b"\n")[0]
    stored = first.removeprefix(header.encode())
    if stored == first or not stored.isdigit():
        raise SchemaError("they do not begin as tuning entries of keras_tunedconv do")
    if int(stored) != version:
        raise SchemaError(
            f"they have schema version {int(stored)} and this keras_tunedconv reads version {version}; "
            "upgrade it to use them"
        )
    if raw.count(b"\n") > most:
        raise SchemaError(f"they claim more than {most} strings")
    try:
        whole = raw.decode()
        clean = _CONTROL_BUT_LINE_FEED.search(whole) is None
    except UnicodeDecodeError:
        clean = False
    if clean:
        lines = whole.split("\n")
        sizes = [len(line) if line.isascii() else len(line.encode()) for line in lines]
    else:
        parts = raw.split(b"\n")
        lines = [part.decode(errors="replace") for part in parts]
        sizes = [
            -1 if "\ufffd" in line or _CONTROL.search(line) else len(part)
            for line, part in zip(lines, parts, strict=True)
        ]
    sizes[0] = -1
    return lines, np.array(sizes, dtype=np.int64)


def out_of_range(
    numbers: npt.NDArray[np.float64],
    columns: Sequence[Column],
    sizes: npt.NDArray[np.int64],
    lines: int,
) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Which numbers are none that their columns hold.

    Args:
        numbers: A row a record, with any contents.
        columns: What each column may hold; the first `lines` are numbers of strings.
        sizes: Sizes of the strings in bytes.
        lines: How many columns are numbers of strings.

    Returns:
        For each number whether it is wrong; for each number of a string that string's place, 0 where it is
        wrong; and its size.
    """
    low, high = np.array([c.low for c in columns]), np.array([c.high for c in columns])
    integral = np.array([c.integral for c in columns])
    with np.errstate(invalid="ignore"):
        wrong = ~((numbers >= low) & (numbers <= high))  # NaN compares false
        wrong |= integral & (numbers != np.floor(numbers))
        wrong[:, :lines] |= ~(numbers[:, :lines] < len(sizes))
    in_range = ~wrong[:, :lines]
    index = np.where(in_range, numbers[:, :lines], 0).astype(np.int64)
    return wrong, index, np.where(in_range, sizes[index], 0)


def fault_names(columns: Sequence[Column], last: str) -> tuple[str, ...]:
    """What can be wrong with a row, by the numbers of `first_faults`; `last` names its last string."""
    return (*(column.name for column in columns), "direction", "key", "environment", "algorithm", last)


def first_faults(
    wrong: npt.NDArray[np.bool_],
    index: npt.NDArray[np.int64],
    size: npt.NDArray[np.int64],
    lines: Sequence[str],
) -> npt.NDArray[np.int64]:
    """For each row the first thing that is wrong with it, of its numbers and then of its strings.

    Args:
        wrong: Which numbers are, as `out_of_range` tells.
        index: Places of its strings: direction, problem, environment, algorithm and one that may be empty.
        size: Their sizes in bytes.
        lines: The strings.

    Returns:
        An index into `fault_names`; -1 for sound rows.
    """
    directions = [i for i, line in enumerate(lines) if line in DIRECTIONS]
    direction, problem, environment, algorithm, last = size.T
    together = np.column_stack(
        (
            ~np.isin(index[:, 0], directions),
            (problem < 1) | (direction + 1 + problem > MAX_KEY_BYTES),
            (environment < 1) | (environment > MAX_NAME_BYTES),
            (algorithm < 1) | (algorithm > MAX_NAME_BYTES),
            (last < 0) | (last > MAX_NAME_BYTES),
        )
    )
    every = np.hstack((wrong, together))
    return np.where(every.any(axis=1), every.argmax(axis=1), -1)


_FAULTS = fault_names(_COLUMNS, "runner_up")


def _faults(
    numbers: npt.NDArray[np.float64], lines: list[str], sizes: npt.NDArray[np.int64]
) -> npt.NDArray[np.int64]:
    """For each row the first thing that is wrong with it, as an index into `_FAULTS`; -1 for sound rows."""
    wrong, index, size = out_of_range(numbers, _COLUMNS, sizes, len(_LINES))
    tried, total = (_POSITION[name] for name in ("candidates_tried", "candidates_total"))
    with np.errstate(invalid="ignore"):
        wrong[:, tried] |= numbers[:, tried] > numbers[:, total]
    return first_faults(wrong, index, size, lines)


def _records(lines: list[str], numbers: npt.NDArray[np.float64]) -> list[Record]:
    """Records of rows that were checked."""
    columns: dict[str, list[Any]] = {
        column.name: (values.astype(np.int64) if column.integral else values).tolist()
        for column, values in zip(_COLUMNS, numbers.T, strict=True)
    }
    direction, problem, *names = ([lines[i] for i in columns.pop(name)] for name in _LINES)
    keys = [f"{first}|{rest}" for first, rest in zip(direction, problem, strict=True)]
    columns["provenance"] = [_PROVENANCES[value] for value in columns["provenance"]]
    columns["deterministic"] = [value == 1 for value in columns["deterministic"]]
    return list(map(Record, keys, *names, *columns.values()))
