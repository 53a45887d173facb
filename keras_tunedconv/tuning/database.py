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
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

import h5py
from filelock import FileLock, Timeout

from keras_tunedconv.core.errors import TunedConvError
from keras_tunedconv.core.record import Record
from keras_tunedconv.tuning import hdf5, replacing
from keras_tunedconv.tuning.merge import Identity, identity, leave_room, prefer, supersede
from keras_tunedconv.tuning.schema import MAX_RECORDS, Columns, Decoded, SchemaError, decode, encode

GROUP = "tuning"
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
    file = Path(path)
    try:
        status = file.stat()
        if not stat.S_ISREG(status.st_mode):
            raise SchemaError("it is not a regular file")
        if status.st_size > MAX_FILE_BYTES:
            raise SchemaError(f"it has {status.st_size} bytes and a database at most {MAX_FILE_BYTES}")
        # HDF5's own locks fail on network folders without locks; a whole file needs none.
        with h5py.File(file, "r", locking=False) as opened:
            return decode(hdf5.read_columns([hdf5.child(opened, GROUP, h5py.Group)]))
    except FileNotFoundError as error:
        raise DatabaseError(f"There is no tuning database {file}.") from error
    except Exception as error:  # a damaged file raises whatever HDF5 came upon
        raise DatabaseError(f"{file} cannot be read as a tuning database: {error}") from error


def merge_into(
    path: str | os.PathLike[str],
    records: Iterable[Record],
    *,
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
        merged = {identity(record): record for record in read(file).records} if file.exists() else {}
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
        if changed:
            _replace(file, _fitting(merged))
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
        records = read(file).records
        kept = [record for record in records if wanted(record)]
        if len(kept) != len(records):
            _replace(file, encode(kept))
    return len(kept), len(records) - len(kept)


def _fitting(merged: dict[Identity, Record]) -> Columns:
    """The entries as columns; where one file cannot hold all, `leave_room` says which give way."""
    records = list(merged.values())
    if len(records) > MAX_RECORDS:
        records = leave_room(records, MAX_RECORDS)
    while True:
        try:
            return encode(records)
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


def _replace(file: Path, columns: Columns) -> None:
    image = io.BytesIO()
    with h5py.File(image, "w") as written:
        hdf5.write_columns(written.create_group(GROUP), columns)
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
