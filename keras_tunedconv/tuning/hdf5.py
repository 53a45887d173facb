"""Reading and writing the columns in an HDF5 group that anybody may have made.

Links, dtypes, shapes and sizes are checked before any data is read: a file may claim terabytes, point
into other files, or be damaged anywhere.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import h5py
import numpy as np

from keras_tunedconv.tuning.schema import COLUMN_COUNT, MAX_RECORDS, MAX_TEXT_BYTES, Columns, SchemaError

# What keras.saving or h5repack may have applied; others could load code from plugin folders.
_FILTERS = frozenset((h5py.h5z.FILTER_DEFLATE, h5py.h5z.FILTER_SHUFFLE, h5py.h5z.FILTER_FLETCHER32))


def holds_columns(groups: Sequence[h5py.Group]) -> bool:
    """Whether groups have entries between them, sound or not."""
    return all(any(name in group for group in groups) for name in ("text", "numbers"))


def read_columns(
    groups: Sequence[h5py.Group], *, count: int = COLUMN_COUNT, most: int = MAX_RECORDS
) -> Columns:
    """The columns in a group, or in several where a model's shards part them.

    Args:
        groups: The groups.
        count: How many columns of numbers there must be.
        most: The most rows there may be.

    Raises:
        SchemaError: they are missing, damaged, larger than what is read, or stored in another way.
    """
    try:
        text = _dataset(groups, "text", np.dtype("uint8"))
        numbers = _dataset(groups, "numbers", np.dtype("<f8"))
        check_shapes(text.shape, numbers.shape, count=count, most=most)
        return Columns(text=text[()], numbers=numbers[()].astype(np.float64, copy=False))
    except SchemaError:
        raise
    except Exception as error:  # a damaged file raises whatever HDF5 came upon
        raise SchemaError(f"they cannot be read: {error}") from error


def check_shapes(
    text: tuple[int, ...], numbers: tuple[int, ...], *, count: int = COLUMN_COUNT, most: int = MAX_RECORDS
) -> None:
    """Refuse shapes that are not those of columns.

    Raises:
        SchemaError: the shape of `text` or of `numbers` is wrong or too large.
    """
    if len(text) != 1 or text[0] > MAX_TEXT_BYTES:
        raise SchemaError(f"text must have shape (bytes,), at most {MAX_TEXT_BYTES}. Received: {text}")
    if len(numbers) != 2 or numbers[1] != count or numbers[0] > most:
        raise SchemaError(
            f"numbers must have shape (rows, {count}), at most {most} rows. Received: {numbers}"
        )


def write_columns(group: h5py.Group, columns: Columns, *, compressed: bool = False) -> None:
    """Write columns into an empty group."""
    options = {"compression": "gzip", "shuffle": True} if compressed else {}
    for name, array in columns.items():
        group.create_dataset(name, data=array, **options)


@contextmanager
def compact_groups() -> Iterator[None]:
    """Groups made inside take a third of the bytes.

    HDF5 gives a group its compact form, with the links in its header, when it keeps their order; the
    classic form reserves a B-tree node and a heap, a kilobyte for our two links.
    """
    config = h5py.get_config()
    before = config.track_order
    config.track_order = True
    try:
        yield
    finally:
        config.track_order = before


def child(group: h5py.Group, name: str, kind: type[Any]) -> Any:
    """A child of a group, if a hard link leads to it.

    Raises:
        SchemaError: it is missing, of another kind, or a link that leads elsewhere.
    """
    link = group.get(name, getlink=True)
    if not isinstance(link, h5py.HardLink):
        raise SchemaError(f"{name!r} is {'missing' if link is None else 'a ' + type(link).__name__}")
    found = group.get(name, getclass=True)
    if found is not kind:
        raise SchemaError(
            f"{name!r} must be a {kind.__name__}. Received: {getattr(found, '__name__', found)}"
        )
    return group[name]


def _dataset(groups: Sequence[h5py.Group], name: str, dtype: np.dtype[Any]) -> h5py.Dataset:
    dataset = child(next((group for group in groups if name in group), groups[0]), name, h5py.Dataset)
    if dataset.dtype != dtype:
        raise SchemaError(f"{name} must have dtype {dtype}. Received: {dataset.dtype}")
    properties = dataset.id.get_create_plist()
    if properties.get_layout() == h5py.h5d.VIRTUAL or properties.get_external_count() > 0:
        raise SchemaError(f"{name} keeps its data in another file")
    if dataset.shape is None:
        raise SchemaError(f"{name} has no shape")
    size = math.prod(dataset.shape) * dtype.itemsize
    if properties.get_layout() == h5py.h5d.CHUNKED:
        _check_chunks(name, properties, dtype)
    elif size > 0 and dataset.id.get_storage_size() != size:
        raise SchemaError(f"{name} claims {size} bytes and stores {dataset.id.get_storage_size()}")
    return dataset


def _check_chunks(name: str, properties: Any, dtype: np.dtype[Any]) -> None:
    if math.prod(properties.get_chunk()) * dtype.itemsize > MAX_TEXT_BYTES:
        raise SchemaError(f"{name} has chunks of over {MAX_TEXT_BYTES} bytes")
    filters = [properties.get_filter(i)[0] for i in range(properties.get_nfilters())]
    if not _FILTERS.issuperset(filters):
        raise SchemaError(f"{name} is stored with filters that are not read here: {filters}")
