"""Many records from a file into the process's registry, at a microsecond or two each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from operator import attrgetter
from typing import Any

import numpy as np

from keras_tunedconv.core.library import ffi, lib, text
from keras_tunedconv.core.record import Record
from keras_tunedconv.tuning.schema import Decoded

_TEXTS = ("key", "environment", "algorithm", "runner_up")
_NUMBERS = (
    "workspace_bytes",
    "created",
    "time_seconds",
    "default_seconds",
    "spread",
    "tuning_seconds",
    "candidates_tried",
    "candidates_total",
    "provenance",
    "math_type",
    "deterministic",
)
_BATCH = 1024


def put_all(records: Sequence[Record]) -> list[tuple[Record, str]]:
    """Give records of a file to the registry, which keeps what was measured in this process.

    Without the compiled core nothing is checked and nothing is kept.

    Args:
        records: As they came out of `schema.decode`.

    Returns:
        The records that the core refused as malformed, each with the reason.
    """
    return [] if lib is None else _give(records, lib.tc_registry_put)


def offer_all(records: Sequence[Record]) -> list[tuple[Record, str]]:
    """The same for records of databases that many models share.

    They are used where nothing better is known, and collected once they were.
    """
    return [] if lib is None else _give(records, lib.tc_registry_offer)


def left_out(decoded: Decoded, refused: Sequence[tuple[Record, str]]) -> tuple[int, str]:
    """How many entries of a file are of no use, and what is wrong with one of them.

    Args:
        decoded: What was read.
        refused: Those of its records that the core refused.
    """
    count = decoded.malformed + len(refused)
    return count, decoded.problem or (refused[0][1] if refused else "")


def _give(records: Sequence[Record], function: Callable[[Any], int]) -> list[tuple[Record, str]]:
    refused = []
    for start in range(0, len(records), _BATCH):
        batch = records[start : start + _BATCH]
        array = _to_c(batch)
        for i, record in enumerate(batch):
            if function(array + i) != lib.TC_OK:
                refused.append((record, text(lib.tc_last_error())))
    return refused


def _to_c(records: Sequence[Record]) -> Any:
    """A new `tc_record[]`, filled a column at a time."""
    array = ffi.new("tc_record[]", len(records))
    view = np.frombuffer(ffi.buffer(array), dtype=_record_dtype())
    columns = zip(*map(attrgetter(*_TEXTS, *_NUMBERS), records), strict=True)
    for name, values in zip((*_TEXTS, *_NUMBERS), columns, strict=True):
        view[name] = [value.encode() for value in values] if name in _TEXTS else values
    return array


@lru_cache(maxsize=1)
def _record_dtype() -> np.dtype[Any]:
    """`tc_record` as NumPy sees it. Strings too long for a field would be cut; decoding refuses them."""
    formats = {"int32_t": "i4", "uint64_t": "u8", "int64_t": "i8", "double": "f8"}
    fields = dict(ffi.typeof("tc_record").fields)
    return np.dtype(
        {
            "names": list(fields),
            "formats": [
                f"S{ffi.sizeof(field.type)}" if field.type.kind == "array" else formats[field.type.cname]
                for field in fields.values()
            ],
            "offsets": [field.offset for field in fields.values()],
            "itemsize": ffi.sizeof("tc_record"),
        }
    )
