"""Copying a model's entries to further batch sizes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from keras_tunedconv.core.descriptor import ConvDescriptor
from keras_tunedconv.core.record import Provenance, Record
from keras_tunedconv.layers.keras_internals import flatten_layers
from keras_tunedconv.tuning.cache import TuningCache
from keras_tunedconv.tuning.merge import identity


def fill(model: Any, batch_sizes: Sequence[int] | int) -> int:
    """Copy the entries of a model's layers to batch sizes that have none, marked as copied.

    Each size takes the algorithm of the nearest measured one, for every environment there are entries of,
    so that a model tuned on one machine can be sent to others that replay it with other batch sizes. A
    process that may measure does so once a copied size has come back `config.copies_before_measuring`
    times. Whether an algorithm can run at a size is checked where it runs.

    Args:
        model: A Keras model or layer.
        batch_sizes: The batch sizes, or one, as the device sees them.

    Returns:
        How many entries were added.

    Raises:
        ValueError: a batch size is not an integer of at least 1.

    Example:

    ```python
    keras_tunedconv.fill(model, range(1, 33))
    model.save("model.keras")
    ```
    """
    sizes = [batch_sizes] if isinstance(batch_sizes, int) else list(batch_sizes)
    if any(type(size) is not int or size < 1 for size in sizes):
        raise ValueError(f"batch_sizes must be integers of at least 1. Received: batch_sizes={batch_sizes!r}")
    added = 0
    for layer in flatten_layers(model):
        cache = getattr(layer, "tuning", None)
        if isinstance(cache, TuningCache):
            cache.collect()
            added += cache.take(_copies(cache.records(), sizes))
    return added


def _copies(records: Sequence[Record], sizes: Sequence[int]) -> list[Record]:
    known = {identity(record) for record in records}
    by_convolution: dict[tuple[str, ConvDescriptor], list[tuple[int, Record]]] = {}
    for record in records:
        if record.provenance not in (Provenance.COPIED, Provenance.PREDICTED):
            descriptor = ConvDescriptor.from_key(record.key)
            batch = descriptor.x_dims[0]
            by_convolution.setdefault((record.environment, _of_batch(descriptor, 1)), []).append(
                (batch, record)
            )
    copies = []
    for (_, descriptor), measured in by_convolution.items():
        for size in sizes:
            _, nearest = min(measured, key=lambda pair: (_ratio(pair[0], size), -pair[0]))
            copy = _copied(nearest, _of_batch(descriptor, size).key)
            if identity(copy) not in known:
                copies.append(copy)
    return copies


def _of_batch(descriptor: ConvDescriptor, batch: int) -> ConvDescriptor:
    return replace(descriptor, x_dims=(batch, *descriptor.x_dims[1:]), y_dims=(batch, *descriptor.y_dims[1:]))


def _ratio(first: int, second: int) -> float:
    return max(first, second) / min(first, second)


def _copied(record: Record, key: str) -> Record:
    return Record(
        key=key,
        environment=record.environment,
        algorithm=record.algorithm,
        runner_up=record.runner_up,
        created=record.created,
        provenance=Provenance.COPIED,
        math_type=record.math_type,
        deterministic=record.deterministic,
    )
