"""The stores through which Keras saves and loads weights, as far as entries pass through them.

Keras hands a saveable an object that behaves like a dict of arrays. Reading an item of it reads all of a
dataset, so where the HDF5 group underneath can be had, shapes and links are checked on that first. What
these stores keep inside is not public: anything missing here means the plain dict is used.
"""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping
from contextlib import ExitStack, contextmanager, nullcontext
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from keras_tunedconv.tuning import hdf5
from keras_tunedconv.tuning.schema import Columns, SchemaError


def read(store: Any) -> Columns | None:
    """The columns in a saveable's store; `None` when there are none.

    Raises:
        SchemaError: there is something, but not what can be read.
    """
    try:
        names = set(store.keys())
        if not names:
            return None
        with _groups(store) as groups:
            return hdf5.read_columns(groups) if groups else _from_items(store, names)
    except SchemaError:
        raise
    except Exception as error:  # a damaged file raises whatever HDF5 came upon
        raise SchemaError(f"they cannot be read: {error}") from error


def write(store: MutableMapping[str, Any], columns: Columns) -> None:
    """Put columns into a saveable's store.

    Raises:
        ValueError: the store keeps shards smaller than the columns.
    """
    limit = getattr(store, "max_shard_size", None)
    largest = max(array.nbytes for _, array in columns.items())
    if limit is not None and largest > limit:
        raise ValueError(f"they take {largest} bytes and a shard holds {int(limit)}")
    with hdf5.compact_groups() if hasattr(store, "h5_file") else nullcontext():
        for name, array in columns.items():
            store[name] = array


def file_name(store: Any) -> str:
    """The file behind a store for a message, `"the file"` where it is only in memory."""
    name = getattr(getattr(store, "h5_file", None), "filename", None)
    if isinstance(name, str) and Path(name).name and Path(name).exists():
        return name
    return "the file"


def fault_of_child(store: Any, name: str) -> str | None:
    """Why Keras could not open the group of a saveable's child, or `None` when it can.

    Keras opens it outside of what it guards: without this a link or a damaged group in a child's place
    would make the whole file unreadable.
    """
    path = getattr(store, "_h5_entry_path", None)
    if path is None or not hasattr(store, "get"):
        return None
    try:
        store.get(f"{path}/{name}" if path else name)
    except Exception as error:  # whatever HDF5 came upon
        return str(error)
    finally:
        store.get(path)
    return None


@contextmanager
def _groups(store: Any) -> Iterator[list[h5py.Group]]:
    """The HDF5 groups that a store's items are in: one, or with shards perhaps two."""
    group = getattr(store, "_h5_entry_group", None)
    if not isinstance(group, h5py.Group):
        yield []
        return
    with ExitStack() as files:
        groups = [group]
        if not hdf5.holds_columns(groups):
            for name in getattr(store, "current_shard_filenames", ()):
                # with_name refuses anything but a name, so no other folder is reached.
                shard = files.enter_context(h5py.File(store.path.with_name(name), "r"))
                if group.name in shard:
                    groups.append(shard[group.name])
        yield groups


def _from_items(store: Any, names: set[str]) -> Columns:
    missing = {"text", "numbers"} - names
    if missing:
        raise SchemaError(f"{' and '.join(sorted(missing))} missing")
    text, numbers = np.asarray(store["text"]), np.asarray(store["numbers"])
    hdf5.check_shapes(text.shape, numbers.shape)
    if text.dtype != np.uint8 or numbers.dtype != np.float64:
        raise SchemaError(
            f"text and numbers must be uint8 and float64. Received: {text.dtype}, {numbers.dtype}"
        )
    return Columns(text=text, numbers=numbers)
