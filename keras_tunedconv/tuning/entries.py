"""The state behind a layer's cache: its entries, and what the layer was traced with."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any

from keras_tunedconv.core import derivations, registry
from keras_tunedconv.core.descriptor import ConvDescriptor, ConvPattern
from keras_tunedconv.core.errors import TuningWarning
from keras_tunedconv.core.record import Record
from keras_tunedconv.tuning import keras_store
from keras_tunedconv.tuning.intake import left_out, put_all
from keras_tunedconv.tuning.merge import Identity, identity, merge_into, stored_form, supersede
from keras_tunedconv.tuning.schema import MAX_RECORDS, SchemaError, decode

# The shapes and arguments of a traced call, as ConvPattern.from_shapes takes them.
Trace = tuple[tuple[str, Any], ...]


class Entries:
    """The state behind a cache, safe to use from several threads."""

    def __init__(self, owner: str) -> None:
        self.owner = owner
        self.unreadable = False
        # Added to while frameworks trace, where a lock would be in the way; the other state is guarded.
        self.traces: set[Trace] = set()
        self._lock = threading.RLock()
        self._records: dict[Identity, Record] = {}
        self._seen_sequence = 0
        self._seen_traces = 0

    def all(self) -> list[Record]:
        """All entries."""
        with self._lock:
            return list(self._records.values())

    def collect(self) -> int:
        """Take new entries out of the registry; gives how many were new or changed."""
        with self._lock:
            traces = list(self.traces)
            if not traces:
                return 0
            if len(traces) != self._seen_traces:
                self._seen_sequence = 0  # older entries of others may be this layer's too
            wanted = _Wanted(ConvPattern.from_shapes(**dict(trace)) for trace in traces)
            records, self._seen_sequence = registry.collect(self._seen_sequence)
            self._seen_traces = len(traces)
            changed = 0
            for record in map(stored_form, filter(wanted.matches, records)):
                key = identity(record)
                known = self._records.get(key)
                best = record if known is None else supersede(known, record)
                changed += best != known
                self._records[key] = best
            return changed

    def take(self, records: Sequence[Record]) -> list[tuple[Record, str]]:
        """Merge what a file says and offer what won to the registry; gives what the core refused."""
        with self._lock:
            before = dict(self._records)
            won = merge_into(self._records, records)
            refused = put_all(won)
            for record, _ in refused:
                key = identity(record)
                self._records.pop(key, None)
                if key in before:
                    self._records[key] = before[key]
            return refused

    def load(self, store: Any) -> None:
        """Take in what a store of Keras's holds; what cannot be read is told in one warning."""
        try:
            columns = keras_store.read(store)
            if columns is None:
                return
            decoded = decode(columns)
        except SchemaError as error:
            self.warn(f"were ignored: {error}", store)
            return
        refused = self.take(decoded.records)
        malformed, problem = left_out(decoded, refused)
        if malformed:
            total = len(decoded.records) + decoded.malformed
            self.warn(f"include {malformed} of {total} that were ignored: {problem}", store)

    def warn(self, what: str, store: Any) -> None:
        """Tell what became of entries in a file."""
        warnings.warn(
            f"Tuning entries of layer {self.owner!r} in {keras_store.file_name(store)} {what}. "
            "Weights are not affected.",
            TuningWarning,
            stacklevel=4,
        )


class _Wanted:
    """A layer's patterns, arranged so that asking about a record costs the same however many there are."""

    def __init__(self, patterns: Iterable[ConvPattern]) -> None:
        self._exact: dict[tuple[Any, ...], list[ConvPattern]] = {}
        self._loose: list[ConvPattern] = []
        for pattern in patterns:
            if None in pattern.spatial:
                self._loose.append(pattern)
            else:
                self._exact.setdefault(pattern.spatial, []).append(pattern)

    def matches(self, record: Record) -> bool:
        return any(self._matches(descriptor) for descriptor in derivations.sources(_descriptor(record.key)))

    def _matches(self, descriptor: ConvDescriptor) -> bool:
        candidates = [*self._exact.get(descriptor.x_dims[2:], ()), *self._loose]
        return any(pattern.matches(descriptor) for pattern in candidates)


# Every layer of a model asks about the same keys.
@lru_cache(maxsize=MAX_RECORDS)
def _descriptor(key: str) -> ConvDescriptor:
    return ConvDescriptor.from_key(key)
