"""What wins when two records say something about the same thing."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable
from dataclasses import replace

from keras_tunedconv.core.record import Provenance, Record
from keras_tunedconv.core.trials import Search, TrialState

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
_VERSION = re.compile(r"(?:^|(?<=;))version=([0-9]{1,9}(?:\.[0-9]{1,9}){0,7})(?=;|$)")
# Stands among the soft fields, after the first `~`.
_PATCH = re.compile(r"(?:^|;~)patch=([0-9]{1,9})(?=;|$)")


def identity(record: Record) -> Identity:
    """What a record is about: the environment's text and the key's. Two records with one identity compete.

    The library's version is part of the environment, so entries of an older one stay beside those of a newer
    one, each for where its library is; where only one can be had, `outdates` decides.
    """
    return record.environment, record.key


def stored_form(record: Record) -> Record:
    """A record as a file would give it back: without its place in this process's registry."""
    return replace(record, sequence=0)


def prefer(first: Record, second: Record) -> Record:
    """The better of two records with one identity, from different processes.

    A choice somebody made stands above a measurement, that above one copied from another batch size, that
    above a predicted one. At equal rank the lower time wins (any before none), then the search that tried
    more candidates, then the later one. Otherwise the first stays.
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


def outdates(first: Record, second: Record) -> bool:
    """Whether the first is the one to keep or to show where only one of two environments' records can be.

    On one device the one of the newer library, otherwise the later one.
    """
    device, version = _library(first.environment)
    other_device, other_version = _library(second.environment)
    if device == other_device and version != other_version:
        return version > other_version
    return _moment(first) > _moment(second)


def leave_room(records: Iterable[Record], count: int) -> list[Record]:
    """At most `count` records: those of outdated libraries give way first, then the oldest."""
    newest: dict[tuple[str, str], tuple[int, ...]] = {}
    placed = []
    for record in records:
        device, version = _library(record.environment)
        newest[device, record.key] = max(version, newest.get((device, record.key), ()))
        placed.append((record, device, version))
    placed.sort(key=lambda one: (one[2] == newest[one[1], one[0].key], one[0].created))
    return [record for record, _, _ in placed[max(len(placed) - count, 0) :]]


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


def merge_searches(known: dict[Identity, Search], searches: Iterable[Search]) -> None:
    """Take searches into a dict by identity, in place.

    Of two of one identity the later stays; what it did not come to is taken from the earlier one.
    """
    for search in searches:
        key = search.environment, search.key
        before = known.get(key)
        if before is None:
            known[key] = search
        elif before.created > search.created:
            known[key] = _filled_in(before, search)
        else:
            known[key] = _filled_in(search, before)


def _filled_in(later: Search, earlier: Search) -> Search:
    tried = {trial.algorithm: trial for trial in earlier.trials if trial.state != TrialState.NOT_TRIED}
    trials = []
    for trial in later.trials:
        if trial.state == TrialState.NOT_TRIED and trial.algorithm in tried:
            known = tried[trial.algorithm]
            won = known.state == TrialState.WON  # there; the winner here is the later search's
            trial = replace(known, order=trial.order, state=TrialState.FINALIST if won else known.state)
        trials.append(trial)
    return replace(later, trials=tuple(trials))


def _quality(record: Record) -> tuple[float, ...]:
    seconds = -record.time_seconds if record.time_seconds > 0 else float("-inf")
    return _RANK[record.provenance], seconds, record.candidates_tried, _moment(record)


def _library(environment: str) -> tuple[str, tuple[int, ...]]:
    """The device in an environment's text, and its library's version; empty where it names none."""
    found = _VERSION.search(environment)
    if found is None:
        return environment, ()
    numbers = [int(number) for number in found[1].split(".")]
    hard, _, soft = environment.partition(";~")
    patch = _PATCH.search(soft)
    if patch is not None:
        numbers.append(int(patch[1]))
    return _VERSION.sub("", hard), tuple(numbers)


def _moment(record: Record) -> int:
    """When it was made; a time to come says nothing."""
    return record.created if record.created <= time.time() + _CLOCK_TOLERANCE else 0
