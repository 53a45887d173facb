"""The stand-alone database of entries: an HDF5 file that many runs read and add to.

It is read without a lock, since a writer never changes a file but puts a whole new one in its place. A
writer holds a lock from reading to replacing, so that nobody's entries are lost. Nothing stays open
between calls, so processes may fork at any time.
"""

from __future__ import annotations

import contextlib
import glob
import io
import os
import secrets
import stat
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import h5py
from filelock import FileLock, Timeout

from keras_tunedconv.core.errors import TunedConvError
from keras_tunedconv.core.record import Record
from keras_tunedconv.core.trials import Search
from keras_tunedconv.tuning import hdf5, replacing, trial_schema
from keras_tunedconv.tuning.merge import (
    Identity,
    identity,
    leave_room,
    merge_searches,
    prefer,
    supersede,
)
from keras_tunedconv.tuning.schema import MAX_RECORDS, Columns, Decoded, SchemaError, decode, encode
from keras_tunedconv.tuning.trial_schema import DecodedSearches

GROUP = "tuning"
# Inside it: what became of each candidate, where that was recorded.
CANDIDATES = "candidates"
# No file with the most entries of the longest text is larger.
MAX_FILE_BYTES = 64 * 2**20
_POLL_SECONDS = 0.02


class DatabaseError(TunedConvError):
    """A database could not be read or written; the message names the file and says how to go on."""


class DatabaseBusyError(DatabaseError):
    """Another process held the database's lock for longer than the time allowed."""


def read(path: str | os.PathLike[str]) -> Decoded:
    """The entries of a database file.

    Args:
        path: The file.

    Returns:
        The sound records, and how many others were skipped.

    Raises:
        DatabaseError: the file is missing, unreadable, or not a database.
    """
    with _opened(path) as group:
        return decode(hdf5.read_columns([group]))


def read_searches(path: str | os.PathLike[str]) -> DecodedSearches:
    """What a database file has of each candidate, where `config.record_candidates` was set; maybe nothing.

    Args:
        path: The file.

    Returns:
        The searches with their sound candidates, and how many others were skipped.

    Raises:
        DatabaseError: the file is missing, unreadable, or not a database.
    """
    with _opened(path) as group:
        columns = _candidates_in(group)
        return DecodedSearches([]) if columns is None else trial_schema.decode(columns)


@contextlib.contextmanager
def _opened(path: str | os.PathLike[str]) -> Iterator[h5py.Group]:
    """The group of a database; whatever goes wrong with it is a `DatabaseError`."""
    file = Path(path)
    try:
        status = file.stat()
        if not stat.S_ISREG(status.st_mode):
            raise SchemaError("it is not a regular file")
        if status.st_size > MAX_FILE_BYTES:
            raise SchemaError(f"it has {status.st_size} bytes and a database at most {MAX_FILE_BYTES}")
        # HDF5's own locks fail on network folders without locks; a whole file needs none.
        with h5py.File(file, "r", locking=False) as opened:
            yield hdf5.child(opened, GROUP, h5py.Group)
    except FileNotFoundError as error:
        raise DatabaseError(f"There is no tuning database {file}.") from error
    except Exception as error:  # a damaged file raises whatever HDF5 came upon
        raise DatabaseError(f"{file} cannot be read as a tuning database: {error}") from error


def _candidates_in(group: h5py.Group) -> Columns | None:
    if CANDIDATES not in group:
        return None
    inner = hdf5.child(group, CANDIDATES, h5py.Group)
    return hdf5.read_columns([inner], count=trial_schema.COLUMN_COUNT, most=trial_schema.MAX_TRIALS)


def merge_into(
    path: str | os.PathLike[str],
    records: Iterable[Record],
    *,
    searches: Sequence[Search] = (),
    known: Mapping[Identity, Record] | None = None,
    timeout: float = 10.0,
) -> dict[Identity, Record]:
    """Add records to a database file, which is made if it is missing.

    The new file is written beside the old one, flushed to the disk and put in its place, so that whoever
    reads, and whoever comes after a crash, sees the old file or the new one. What wins against an entry
    that others wrote is decided by `merge.prefer`; against one that the caller had before it, by
    `merge.supersede`.

    Args:
        path: The file. Its folder must exist; a file that is not a database is never replaced.
        records: What to add.
        searches: What became of candidates, to add; kept for entries that the file then has.
        known: Entries of the file that the caller had before it made `records`.
        timeout: Seconds to wait for other writers.

    Returns:
        All entries now in the file.

    Raises:
        DatabaseBusyError: others wrote for longer than `timeout`.
        DatabaseError: the file cannot be read or written.
        ValueError: a record is malformed.
    """
    with _locked(path, timeout) as file:
        stored = _Contents.of(file) if file.exists() else _Contents({}, None)
        merged = stored.records
        changed = False
        for record in records:
            key = identity(record)
            before = merged.get(key)
            if before is not None:
                seen = (known or {}).get(key)
                record = supersede(before, record) if before == seen else prefer(before, record)
            if record != before:
                merged[key] = record
                changed = True
        if changed or searches:
            columns, kept = _fitting(merged)
            candidates = stored.candidates_with(searches, kept)
            if changed or candidates is not stored.candidates:
                _replace(file, columns, candidates)
    return merged


def keep_only(
    path: str | os.PathLike[str], wanted: Callable[[Record], bool], *, timeout: float = 10.0
) -> tuple[int, int]:
    """Drop records from a database file, which is replaced as in `merge_into`.

    Args:
        path: The file.
        wanted: Tells whether a record stays.
        timeout: Seconds to wait for other writers.

    Returns:
        How many stay, and how many were dropped.

    Raises:
        DatabaseBusyError: others wrote for longer than `timeout`.
        DatabaseError: the file is missing, or cannot be read or written.
    """
    with _locked(path, timeout) as file:
        stored = _Contents.of(file)
        kept = {key: record for key, record in stored.records.items() if wanted(record)}
        if len(kept) != len(stored.records):
            _replace(file, encode(kept.values()), stored.candidates_with((), kept))
    return len(kept), len(stored.records) - len(kept)


@dataclass(frozen=True)
class _Contents:
    """What a file holds: its sound entries, and its candidates as they are stored."""

    records: dict[Identity, Record]
    candidates: Columns | None

    @classmethod
    def of(cls, file: Path) -> _Contents:
        with _opened(file) as group:
            decoded = decode(hdf5.read_columns([group]))
            records = {identity(record): record for record in decoded.records}
            return cls(records, _candidates_in(group))

    def candidates_with(self, added: Sequence[Search], kept: Collection[Identity]) -> Columns | None:
        """Those stored and those added, of entries the file will have; the stored object if no others."""
        if not added and all(key in kept for key in self.records):
            return self.candidates  # most writers neither add nor drop any
        searches: dict[Identity, Search] = {}
        if self.candidates is not None:
            merge_searches(searches, trial_schema.decode(self.candidates).searches)
        before = list(searches.values())
        merge_searches(searches, added)
        chosen = [search for key, search in searches.items() if key in kept]
        if chosen == before:
            return self.candidates
        return trial_schema.encode(chosen) if chosen else None


def _fitting(merged: dict[Identity, Record]) -> tuple[Columns, set[Identity]]:
    """The entries as columns, and which they are; where not all fit, `leave_room` says which give way."""
    records = list(merged.values())
    if len(records) > MAX_RECORDS:
        records = leave_room(records, MAX_RECORDS)
    while True:
        try:
            return encode(records), {identity(record) for record in records}
        except SchemaError:  # too much text
            records = leave_room(records, len(records) - max(len(records) // 4, 1))


@contextlib.contextmanager
def _locked(path: str | os.PathLike[str], timeout: float) -> Iterator[Path]:
    """Hold a database's lock; gives the file itself, which is replaced, not a symbolic link to it."""
    try:
        file = Path(path).resolve()
        folder = file.parent.is_dir()
    except (OSError, RuntimeError, ValueError) as error:
        raise DatabaseError(f"The tuning database {path} cannot be written: {error}.") from error
    if not folder:
        raise DatabaseError(f"The folder of the tuning database {file} does not exist; create it first.")
    lock = FileLock(f"{file}.lock", timeout=timeout)
    try:
        # Waiting is for other writers, not for a folder that never lets the lock's file be made.
        os.close(os.open(lock.lock_file, os.O_CREAT | os.O_RDWR, 0o666))
        lock.acquire(poll_interval=_POLL_SECONDS)
    except Timeout as error:
        raise DatabaseBusyError(
            f"The tuning database {file} stayed locked by another process for {timeout:g} seconds."
        ) from error
    except (OSError, NotImplementedError) as error:
        raise DatabaseError(
            f"The tuning database {file} cannot be locked: {error}. It needs a folder that can be written "
            "to, on a file system with locks."
        ) from error
    try:
        yield file
    except OSError as error:
        raise DatabaseError(f"The tuning database {file} cannot be written: {error}.") from error
    finally:
        lock.release()


def _replace(file: Path, columns: Columns, candidates: Columns | None) -> None:
    image = io.BytesIO()
    with h5py.File(image, "w") as written:
        group = written.create_group(GROUP)
        hdf5.write_columns(group, columns)
        if candidates is not None:
            hdf5.write_columns(group.create_group(CANDIDATES), candidates, compressed=True)
    # Whoever holds the lock is the only writer: other temporary files are left from killed ones.
    for leftover in file.parent.glob(f".{glob.escape(file.name)}.*.tmp"):
        leftover.unlink(missing_ok=True)
    temporary = file.parent / f".{file.name}.{os.getpid()}.{secrets.token_hex(4)}.tmp"
    try:
        with temporary.open("xb") as opened:
            opened.write(image.getbuffer())
        replacing.put_in_place(temporary, file)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
