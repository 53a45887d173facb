"""Processes that agree on algorithms: one measures a key, the others take its choice.

They find each other by a file that all of them name. While one measures, the others wait for it, a few times
`config.key_budget` at most; a process that ends or is killed is not waited for.
"""

from __future__ import annotations

import os

from keras_tunedconv.core.errors import check
from keras_tunedconv.core.library import ffi, lib


def join(path: str | os.PathLike[str]) -> None:
    """Agree from now on with the processes that join the same file; the last file joined holds.

    Args:
        path: The file, made when it is missing. It is for this purpose only.

    Raises:
        UnavailableError: it cannot be made, written or locked; the process then measures on its own.
        InvalidArgumentError: something else is at this place.
    """
    if lib is not None:
        check(lib.tc_peers_join(os.fsencode(path)))


def leave(path: str | os.PathLike[str] | None = None) -> None:
    """Measure alone again, if this file (or any) is joined."""
    if lib is not None:
        lib.tc_peers_leave(ffi.NULL if path is None else os.fsencode(path))


def sync() -> None:
    """Take in what the others decided, for convolutions that run something else meanwhile."""
    if lib is not None:
        lib.tc_peers_sync()
