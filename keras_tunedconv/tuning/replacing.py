"""Putting whole new files in the place of old ones, so that a crash at any moment leaves one or the other."""

from __future__ import annotations

import contextlib
import glob
import os
import secrets
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path

try:
    import fcntl
except ImportError:  # no Unix: what killed writers left is then not told from what others are writing
    fcntl = None  # type: ignore[assignment]

_LONGEST_PREFIX = 100


def put_in_place(new: Path, file: Path) -> None:
    """Put a finished file in the place of another, on the same file system, and see both through to the disk.

    Args:
        new: The finished file; it is gone afterwards.
        file: The file to replace, which keeps its permissions, or to make.

    Raises:
        OSError: the old file is as it was.
    """
    sync(new)
    if file.exists():
        new.chmod(stat.S_IMODE(file.stat().st_mode))
    new.replace(file)
    sync_folder(file.parent)


def sync(file: Path) -> None:
    """Wait until a file's contents are on the disk."""
    handle = os.open(file, os.O_RDWR)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def sync_folder(folder: Path) -> None:
    """Make new names last through a power failure, where the file system can."""
    with contextlib.suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


@contextlib.contextmanager
def workplace(file: Path) -> Iterator[Path]:
    """A folder beside a file, to write its successor in; it is removed at the end.

    It is locked as long as the process lives, so that the next writer can remove what a killed one left.

    Args:
        file: The file that will be replaced or made.

    Yields:
        The folder, on the file's file system. Its name without dots ends in a token of its own.
    """
    folder, lock = _claim(file)
    try:
        for leftover in file.parent.glob(f"{glob.escape(_prefix(file))}*.tmp"):
            if leftover != folder:
                _remove_if_abandoned(leftover)
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        if lock is not None:
            os.close(lock)


def token_of(workplace: Path) -> str:
    """The token of a workplace, 8 hexadecimal digits."""
    return workplace.name.split(".")[-2]


def workplace_of(file: Path, token: str) -> Path:
    """Where the workplace of a file with a token is, or was."""
    return file.parent / f"{_prefix(file)}{token}.tmp"


def is_abandoned(workplace: Path) -> bool:
    """Whether nobody writes in a workplace any more; false where that cannot be told."""
    if not workplace.is_dir():
        return not workplace.exists()
    try:
        lock = _lock(workplace)
    except BlockingIOError:
        return False
    if lock is not None:
        os.close(lock)
    return lock is not None


def _remove_if_abandoned(workplace: Path) -> None:
    try:
        lock = _lock(workplace)
    except BlockingIOError:
        return
    if lock is not None:
        # Under the lock, so that nobody who has just made it takes it for a place of its own.
        shutil.rmtree(workplace, ignore_errors=True)
        os.close(lock)


def _prefix(file: Path) -> str:
    return f".{file.name[:_LONGEST_PREFIX]}."


def _claim(file: Path) -> tuple[Path, int | None]:
    while True:
        folder = workplace_of(file, secrets.token_hex(4))
        folder.mkdir(mode=0o700)
        try:
            lock = _lock(folder)
        except BlockingIOError:  # somebody takes it for abandoned
            continue
        if folder.exists():  # else it was removed before it was locked
            return folder, lock
        if lock is not None:
            os.close(lock)


def _lock(folder: Path) -> int | None:
    """A handle that locks a folder until it is closed; `None` where it is gone or cannot be locked.

    Raises:
        BlockingIOError: somebody else holds the lock.
    """
    if fcntl is None:
        return None
    try:
        handle = os.open(folder, os.O_RDONLY)
    except OSError:
        return None
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(handle)
        raise
    except OSError:  # a file system without locks
        os.close(handle)
        return None
    return handle
