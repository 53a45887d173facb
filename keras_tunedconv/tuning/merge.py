"""What wins when two records say something about the same thing."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import replace

from keras_tunedconv.core.record import Provenance, Record

Identity = tuple[str, str]

# The core ranks the same way: a choice somebody made, a measurement, a guess from another batch size,
# a guess from a model, nothing.
_RANK = {
    Provenance.OVERRIDE: 4,
    Provenance.MEASURED: 3,
    Provenance.SHIPPED: 3,
    Provenance.IMPORTED: 3,
    Provenance.COPIED: 2,
    Provenance.PREDICTED: 1,
    Provenance.DEFAULT: 0,
}
_CLOCK_TOLERANCE = 86_400


def identity(record: Record) -> Identity:
    """What a record is about: the environment's text and the key's. Two records with one identity compete.

    The library's version is part of the environment, so entries of an older one never compete with those
    of a newer one; they stay side by side.
    """
    return record.environment, record.key


def stored_form(record: Record) -> Record:
    """A record as a file would give it back: without its place in this process's registry."""
    return replace(record, sequence=0)


def prefer(first: Record, second: Record) -> Record:
    """The better of two records with one identity, from different processes.

    A choice somebody made stands above a measurement, that above one copied from another batch size, that
    above a predicted one. At equal rank the search that tried more candidates wins, then the lower time
    (any before none), then the later one. Otherwise the first stays.
    """
    return second if _quality(second) > _quality(first) else first


def supersede(known: Record, current: Record) -> Record:
    """The better of what was known and what this process runs now.

    The process knew the stored record and may have found that it does not hold here, so its own choice
    wins even where the stored one claims a lower time, unless that one is the later.
    """
    if _moment(current) >= _moment(known) and _RANK[current.provenance] >= _RANK[known.provenance]:
        return current
    return prefer(known, current)


def merge_into(known: dict[Identity, Record], records: Iterable[Record]) -> list[Record]:
    """Take records of other processes into a dict by identity, in place.

    Returns:
        Those that are new or won over what was known.
    """
    changed = []
    for record in records:
        key = identity(record)
        before = known.get(key)
        if before is None or prefer(before, record) is record:
            known[key] = record
            changed.append(record)
    return changed


def _quality(record: Record) -> tuple[float, ...]:
    seconds = -record.time_seconds if record.time_seconds > 0 else float("-inf")
    return _RANK[record.provenance], record.candidates_tried, seconds, _moment(record)


def _moment(record: Record) -> int:
    """When it was made; a time to come says nothing."""
    return record.created if record.created <= time.time() + _CLOCK_TOLERANCE else 0
