"""Saving models so that a crash at any moment leaves the old file or the new one."""

from __future__ import annotations

import contextlib
import json
import math
import os
import re
from pathlib import Path
from typing import Any

import h5py

from keras_tunedconv.tuning import replacing

_INDEX = ".weights.json"
# For what a file holds beside the numbers: a model's config, names, tuning entries.
_ROOM_BESIDE_NUMBERS = 2**20
_ROOM_BESIDE_EACH = 2**11


def save_model(model: Any, filepath: str | os.PathLike[str]) -> None:
    """Save a model as `model.save` does, but never leave a torn file.

    Keras writes into the file itself: a process that is killed meanwhile, or a full disk, costs the old
    model and the new one. Here the new file is written beside the old one, flushed to the disk and put in
    its place, so whoever reads, and whoever comes after a crash, finds one or the other whole. The folder
    needs room for both.

    Args:
        model: A Keras model.
        filepath: A local path that ends in `.keras`. A symbolic link stays one; the file that it leads to
            is replaced and keeps its permissions.

    Raises:
        ValueError: `filepath` does not end in `.keras`.
        OSError: the file cannot be written; the old one is as it was.

    Example:

    ```python
    keras_tunedconv.save_model(model, "model.keras")
    ```
    """
    file = _target(filepath, ".keras")
    with replacing.workplace(file) as folder:
        _check_room(folder, model)
        model.save(folder / file.name)
        replacing.put_in_place(folder / file.name, file)


def save_weights(
    model: Any, filepath: str | os.PathLike[str], *, max_shard_size: float | None = None
) -> None:
    """Save a model's weights as `model.save_weights` does, but never leave torn files.

    See `save_model`. With shards the index is what is replaced: the new shards have names of their own
    beside the old ones, which are removed once the new index is in place.

    Args:
        model: A Keras model.
        filepath: A local path that ends in `.weights.h5`, with shards in `.weights.json`.
        max_shard_size: Size of the largest shard, in GiB; `None` for a single file.

    Raises:
        ValueError: `filepath` has another ending.
        OSError: a file cannot be written; the old ones are as they were.

    Example:

    ```python
    keras_tunedconv.save_weights(model, "model.weights.h5")
    ```
    """
    if max_shard_size is not None:
        _save_shards(model, _target(filepath, _INDEX), max_shard_size)
        return
    file = _target(filepath, ".weights.h5")
    with replacing.workplace(file) as folder:
        _check_room(folder, model)
        model.save_weights(folder / file.name)
        replacing.put_in_place(folder / file.name, file)


def _target(filepath: str | os.PathLike[str], suffix: str) -> Path:
    """The file to replace, not a link to it."""
    path = Path(filepath)
    if not path.name.endswith(suffix):
        raise ValueError(f"filepath must end in `{suffix}`. Received: filepath={filepath}")
    file = path.resolve()
    if not file.parent.is_dir():
        raise FileNotFoundError(f"The folder of {file} does not exist; create it first.")
    if file.is_dir():
        raise IsADirectoryError(f"{file} is a folder; a file was expected there, or nothing.")
    return file


def _check_room(folder: Path, model: Any) -> None:
    """Find out now whether the disk has room: HDF5 crashes the process some time after it had none."""
    variables = [*model.variables, *getattr(getattr(model, "optimizer", None), "variables", ())]
    numbers = sum(math.prod(variable.shape) * _bytes_of(variable.dtype) for variable in variables)
    room = folder / "room"
    with room.open("wb") as opened:
        if hasattr(os, "posix_fallocate"):
            needed = numbers + len(variables) * _ROOM_BESIDE_EACH + _ROOM_BESIDE_NUMBERS
            os.posix_fallocate(opened.fileno(), 0, needed)
    room.unlink()


def _bytes_of(dtype: Any) -> int:
    """Of one element, from the name of a Keras dtype: `float8_e4m3fn`, `int64`, `bool`."""
    bits = re.search(r"\d+", str(dtype))
    return max(int(bits[0]) // 8, 1) if bits else 1


# ---- shards ----------------------------------------------------------------------------------------------


def _save_shards(model: Any, index: Path, max_shard_size: float) -> None:
    name = index.name.removesuffix(_INDEX)
    before = _shards_named(index)
    with replacing.workplace(index) as folder:
        new = folder / f"{name}.shards-{replacing.token_of(folder)}{_INDEX}"
        _check_room(folder, model)
        model.save_weights(new, max_shard_size=max_shard_size)
        for shard in folder.glob("*.weights.h5"):
            replacing.put_in_place(shard, index.parent / shard.name)
        # Keras opens the first shard by its usual name whatever the index says, so there must be a file.
        usual = index.with_name(f"{name}_00000.weights.h5")
        if not usual.exists():
            _put_empty_shard(folder, usual)
        replacing.put_in_place(new, index)
        with contextlib.suppress(OSError):
            _remove_shards(before, folder, index)
            if usual.name in before:
                _put_empty_shard(folder, usual)


def _put_empty_shard(folder: Path, file: Path) -> None:
    with h5py.File(folder / "empty.h5", "w"):
        pass
    replacing.put_in_place(folder / "empty.h5", file)


def _remove_shards(before: set[str], folder: Path, index: Path) -> None:
    """Remove the shards of the index before, and what killed writers left, but nothing that is no shard."""
    name = re.escape(index.name.removesuffix(_INDEX))
    pattern = re.compile(rf"{name}(?:\.shards-([0-9a-f]{{8}}))?_\d{{5,}}\.weights\.h5")
    own = replacing.token_of(folder)
    unused = []
    for shard in index.parent.iterdir():
        match = pattern.fullmatch(shard.name)
        if match is None or shard.name == f"{index.name.removesuffix(_INDEX)}_00000.weights.h5":
            continue
        token = match[1]
        left = token not in (None, own) and replacing.is_abandoned(replacing.workplace_of(index, token))
        if left or shard.name in before:
            unused.append(shard)
    # Read last: other writers that were finished above have put their index in place by now.
    named = _shards_named(index)
    for shard in unused:
        if shard.name not in named:
            shard.unlink(missing_ok=True)


def _shards_named(index: Path) -> set[str]:
    """The files that an index names; none where it is missing or no index."""
    try:
        values = json.loads(index.read_bytes())["weight_map"].values()
        return {name for value in values for name in (value if isinstance(value, list) else [value])}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return set()
