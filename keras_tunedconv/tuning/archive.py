"""Finding entries in the files that Keras writes, without Keras."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import h5py

from keras_tunedconv.tuning import hdf5
from keras_tunedconv.tuning.database import GROUP
from keras_tunedconv.tuning.schema import Decoded, SchemaError, decode

WEIGHTS = "model.weights.h5"
_MAX_GROUPS = 100_000
_MAX_DEPTH = 64
_MAX_INDEX_BYTES = 16 * 2**20
_MAX_SHARDS = 10_000
_LOCAL_HEADER_BYTES = 30
_LONGEST_NAME = 256


class ArchiveError(ValueError):
    """A file that cannot be read; the message says why."""


@dataclass(frozen=True)
class Found:
    """Entries of one layer, or of a database.

    Args:
        place: Path of the layer in the file; `""` in a database.
        name: Name of the layer; `""` where the file does not tell.
        decoded: What was read.
        problem: Why nothing could be read; `""` when it could.
    """

    place: str
    name: str
    decoded: Decoded
    problem: str = ""


def entries_of(path: Path) -> list[Found]:
    """All entries in a `.keras`, `.weights.h5`, `.weights.json` or database file.

    Args:
        path: The file; told apart by what is in it.

    Returns:
        What was found, in the order of the file.

    Raises:
        ArchiveError: the file is missing, or none of these.
    """
    try:
        with path.open("rb") as opened:
            start = opened.read(8)
        if start.startswith(b"PK"):
            with _weights_in_zip(path) as weights:
                return _entries_of_hdf5([weights])
        return _entries_of_hdf5(_shards(path) if start.lstrip().startswith(b"{") else [path])
    except ArchiveError:
        raise
    except Exception as error:  # a damaged file raises whatever HDF5 came upon
        raise ArchiveError(f"{path} cannot be read: {error}") from error


def _entries_of_hdf5(sources: Sequence[Any]) -> list[Found]:
    """What is in one file, or in the shards of a model, which may part a layer's columns."""
    with ExitStack() as files:
        places: dict[str, list[h5py.Group]] = {}
        for source in sources:
            options = {"locking": False} if isinstance(source, Path) else {}
            opened = files.enter_context(h5py.File(source, "r", **options))
            for place, group in _tuning_groups(opened):
                places.setdefault(place, []).append(group)
        return [_found(place, groups) for place, groups in places.items()]


def _found(place: str, groups: list[h5py.Group]) -> Found:
    printable = "".join(c if c.isprintable() else "\ufffd" for c in place)
    name = layer_name(groups[0].parent.parent) if place else ""
    try:
        return Found(printable, name, decode(hdf5.read_columns(groups)))
    except SchemaError as error:
        return Found(printable, name, Decoded([]), str(error))


def layer_name(group: h5py.Group) -> str:
    """The name that Keras notes beside the weights in a layer's group; `""` where it cannot be had."""
    try:
        name = group["vars"].attrs["name"]
    except Exception:  # only a courtesy
        return ""
    return name if isinstance(name, str) and name.isprintable() and len(name) < _LONGEST_NAME else ""


def _tuning_groups(root: h5py.Group) -> Iterator[tuple[str, h5py.Group]]:
    """Groups with entries."""
    if is_database(root):
        yield "", root[GROUP]
        return
    for place, group in walk(root):
        tuning = _subgroup(group, "tuning")
        entries = None if tuning is None else _subgroup(tuning, "vars")
        if entries is not None:
            yield place, entries


def is_database(root: h5py.Group) -> bool:
    """Whether an HDF5 file is a stand-alone database."""
    return _subgroup(root, GROUP) is not None and hdf5.holds_columns([root[GROUP]])


def walk(root: h5py.Group) -> Iterator[tuple[str, h5py.Group]]:
    """Paths and groups of a weights file, by hard links only and each once, so that no cycle is walked.

    Raises:
        ArchiveError: there are more than any model has.
    """
    seen = set()
    waiting = [("", root)]
    while waiting:
        place, group = waiting.pop()
        address = h5py.h5o.get_info(group.id).addr
        if address in seen:
            continue
        seen.add(address)
        if len(seen) > _MAX_GROUPS or place.count("/") > _MAX_DEPTH:
            raise ArchiveError(f"It has over {_MAX_GROUPS} groups or {_MAX_DEPTH} levels of them.")
        yield place, group
        names = [name for name in group if name not in ("vars", "tuning")]
        for name in reversed(names):
            inner = _subgroup(group, name)
            if inner is not None:
                waiting.append((f"{place}/{name}" if place else name, inner))


def _subgroup(group: h5py.Group, name: str) -> h5py.Group | None:
    try:
        return hdf5.child(group, name, h5py.Group)
    except SchemaError:
        return None


@contextmanager
def _weights_in_zip(path: Path) -> Iterator[BinaryIO]:
    with zipfile.ZipFile(path) as archive, path.open("rb") as opened:
        info = weights_member(archive)
        # Reading in place: HDF5 jumps about, and the weights may be larger than memory.
        opened.seek(info.header_offset)
        header = opened.read(_LOCAL_HEADER_BYTES)
        names = int.from_bytes(header[26:28], "little") + int.from_bytes(header[28:30], "little")
        yield io.BufferedReader(_Window(opened, info.header_offset + len(header) + names, info.file_size))


def weights_member(archive: zipfile.ZipFile) -> zipfile.ZipInfo:
    """The weights in a `.keras` file.

    Raises:
        ArchiveError: there are none, or they are stored otherwise than Keras does.
    """
    try:
        info = archive.getinfo(WEIGHTS)
    except KeyError:
        raise ArchiveError(
            f"{archive.filename} holds no {WEIGHTS}, so it is not a .keras file with weights."
        ) from None
    if info.compress_type != zipfile.ZIP_STORED:
        raise ArchiveError(f"{archive.filename} holds compressed weights; Keras writes them uncompressed.")
    return info


class _Window(io.RawIOBase):
    """A part of a file as a file of its own, read-only."""

    def __init__(self, opened: BinaryIO, start: int, size: int) -> None:
        super().__init__()
        self._opened, self._start, self._size, self._position = opened, start, size, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._size}[whence]
        self._position = max(base + offset, 0)
        return self._position

    def readinto(self, buffer: Any) -> int:
        left = max(self._size - self._position, 0)
        self._opened.seek(self._start + self._position)
        data = self._opened.read(min(len(buffer), left))
        buffer[: len(data)] = data
        self._position += len(data)
        return len(data)


def _shards(path: Path) -> list[Path]:
    """The files that an index of sharded weights names, beside it."""
    if path.stat().st_size > _MAX_INDEX_BYTES:
        raise ArchiveError(f"{path} has over {_MAX_INDEX_BYTES} bytes; an index of shards is smaller.")
    weight_map = json.loads(path.read_bytes()).get("weight_map")
    if not isinstance(weight_map, dict):
        raise ArchiveError(f"{path} is not an index of sharded weights: it has no weight_map.")
    names: dict[str, None] = {}
    for value in weight_map.values():
        for name in value if isinstance(value, list) else [value]:
            if not isinstance(name, str) or Path(name).name != name:
                raise ArchiveError(f"{path} names a shard that is not a file beside it: {name!r}.")
            names[name] = None
    if len(names) > _MAX_SHARDS:
        raise ArchiveError(f"{path} names over {_MAX_SHARDS} shards.")
    return [path.with_name(name) for name in names]
