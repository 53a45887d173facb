"""Saying, once, that Keras's own convolution runs in place of a tuned one."""

from __future__ import annotations

import threading
import warnings

from keras_tunedconv.core.errors import TuningWarning
from keras_tunedconv.core.library import lib

_lock = threading.Lock()
_said: set[str] = set()


def note_fallback(reason: str, hint: str = "", descriptor_key: str | None = None) -> None:
    """Warn that Keras's own convolution runs instead, and count it.

    Results are the same either way, so this never raises on its own. The same reason is told once a
    process; every key is counted once in `keras_tunedconv.stats()["fallbacks"]`.

    Args:
        reason: Why the tuned convolution cannot run, as a clause without a full stop.
        hint: How to get it, as a sentence.
        descriptor_key: The canonical key of the convolution, where one could be made.
    """
    if descriptor_key is not None and lib is not None:
        lib.tc_count_fallback(descriptor_key.encode())
    with _lock:
        if reason in _said:
            return
        _said.add(reason)
    text = f"Keras's own convolution runs instead of a tuned one: {reason}."
    warnings.warn(f"{text} {hint}".rstrip(), TuningWarning, stacklevel=3)


def forget() -> None:
    """Tell every reason again; for tests."""
    with _lock:
        _said.clear()
