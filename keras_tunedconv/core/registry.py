"""The process's registry of plans and records, which lives in C."""

from __future__ import annotations

from typing import TypedDict

from keras_tunedconv.core import first_step
from keras_tunedconv.core.errors import check
from keras_tunedconv.core.library import ffi, lib
from keras_tunedconv.core.record import Record


class Stats(TypedDict):
    """Counts of distinct keys in this process, and seconds."""

    measured: int
    hits: int
    copied: int
    defaults: int
    fallbacks: int
    tuning_seconds: float
    plan_seconds: float
    first_step_seconds: float


def collect(since: int = 0) -> tuple[list[Record], int]:
    """Records that were measured or taken from a store after a moment.

    Args:
        since: The number a former call returned; 0 for everything.

    Returns:
        The records, oldest change first, and the number to pass next time.
    """
    if lib is None:
        return [], since
    count = ffi.new("size_t *")
    check(lib.tc_registry_collect(since, ffi.NULL, 0, count))
    if count[0] == 0:
        return [], since
    # Entries that arrive between the two calls are left for the next one.
    capacity = count[0]
    buffer = ffi.new("tc_record[]", capacity)
    check(lib.tc_registry_collect(since, buffer, capacity, count))
    records = [Record.from_c(buffer[i]) for i in range(min(capacity, count[0]))]
    return records, max((r.sequence for r in records), default=since)


def put(record: Record) -> None:
    """Add a record from a file. What was measured in this process stays.

    Raises:
        InvalidArgumentError: the record is malformed; the message names the field.
        ValueError: a text does not fit its field.
    """
    check(lib.tc_registry_put(record.to_c()))


def clear() -> None:
    """Forget plans, records, statistics and pending warnings. No convolution may be running."""
    first_step.forget()
    if lib is not None:
        lib.tc_registry_clear()


def stats() -> Stats:
    """What happened in this process so far.

    Returns:
        A dict of `measured` (keys whose algorithms were timed here), `hits` (keys that ran a stored
        choice), `copied` (keys that ran the choice of another batch or image size), `defaults` (keys that
        ran the library's default unmeasured), `fallbacks` (keys that ran Keras's own convolution or the
        core's plain loops), `tuning_seconds` (wall time spent measuring), `plan_seconds` (the part of it
        spent building plans) and `first_step_seconds` (wall time of the first step of the last model that a
        `TuningCallback` saw trained; 0 where none did).
    """
    step = first_step.last()
    step_seconds = 0.0 if step is None else step.seconds
    if lib is None:
        return Stats(
            measured=0,
            hits=0,
            copied=0,
            defaults=0,
            fallbacks=0,
            tuning_seconds=0.0,
            plan_seconds=0.0,
            first_step_seconds=step_seconds,
        )
    c = ffi.new("tc_stats *")
    lib.tc_get_stats(c)
    return Stats(
        measured=c.measured,
        hits=c.hits,
        copied=c.copied,
        defaults=c.defaults,
        fallbacks=c.fallbacks,
        tuning_seconds=c.tuning_seconds,
        plan_seconds=c.plan_seconds,
        first_step_seconds=step_seconds,
    )
