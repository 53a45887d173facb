"""Running one algorithm by name, whatever is stored."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from keras_tunedconv.core.descriptor import DIRECTIONS, ConvPattern
from keras_tunedconv.core.errors import check
from keras_tunedconv.core.library import ffi, lib

_VARIABLE = "KERAS_TUNEDCONV_OVERRIDE"
# Most bytes of an algorithm's name: the core's field less the NUL.
LONGEST_NAME = 255

_lock = threading.Lock()
_active: dict[str, str] = {}


@contextmanager
def override(algorithm: str, direction: str | None = None) -> Iterator[None]:
    """Run one algorithm for the length of a `with` block, in every thread.

    What runs so is neither measured nor stored nor counted. It also holds for steps that were compiled
    before. A convolution that cannot run the algorithm is an error of the backend in use whose message
    lists what can. Blocks may be nested; the inner one wins.

    The environment variable `KERAS_TUNEDCONV_OVERRIDE` does the same for a whole process: one name, or
    `forward=NAME;backward_data=NAME` with one name a direction.

    Args:
        algorithm: Name of the algorithm, as `layer.tuning` and `keras-tunedconv inspect` show them.
        direction: `"forward"`, `"backward_data"` or `"backward_filter"`; `None` for all three.

    Raises:
        ValueError: there is no such direction, or the name is none, empty or too long.

    Example:

    ```python
    with keras_tunedconv.override("gemm:jit#0", direction="forward"):
        model.predict(x)
    ```
    """
    if not isinstance(algorithm, str):
        raise ValueError(f"algorithm must be the name of one. Received: algorithm={algorithm!r}")
    if direction is not None and direction not in DIRECTIONS:
        raise ValueError(f"direction must be one of {DIRECTIONS} or None. Received: direction={direction!r}")
    directions = DIRECTIONS if direction is None else (direction,)
    before = _replace(dict.fromkeys(directions, algorithm))
    try:
        yield
    finally:
        _replace(before)


def _replace(wanted: dict[str, str | None]) -> dict[str, str | None]:
    """Set or, with `None`, end the override of each direction; gives what was there before."""
    with _lock:
        before = {direction: _active.get(direction) for direction in wanted}
        for direction, algorithm in wanted.items():
            if lib is not None:
                name = ffi.NULL if algorithm is None else ffi.new("char[]", algorithm.encode())
                check(lib.tc_set_override(DIRECTIONS.index(direction), name))
            if algorithm is None:
                _active.pop(direction, None)
            else:
                _active[direction] = algorithm
    return before


def set_pattern(pattern: ConvPattern, direction: str, algorithm: str | None) -> None:
    """Run an algorithm for the convolutions that match a pattern, whatever is stored; `None` ends it.

    What `override` and the environment ask for stands above it. Of two patterns that match a convolution the
    one set later counts.

    Raises:
        InvalidArgumentError: the name is empty or too long.
    """
    if lib is not None:
        name = ffi.NULL if algorithm is None else ffi.new("char[]", algorithm.encode())
        check(lib.tc_set_pattern_override(pattern.to_c(direction), name))


def parse(text: str) -> dict[str, str | None]:
    """What the environment variable asks for: a name for each direction.

    Args:
        text: One name, or `DIRECTION=NAME` separated by semicolons.

    Raises:
        ValueError: a part names no direction or no algorithm.
    """
    wanted: dict[str, str | None] = {}
    for part in filter(None, map(str.strip, text.split(";"))):
        head, separator, name = (piece.strip() for piece in part.partition("="))
        if separator and ":" not in head:  # cuDNN's names hold signs of equality, after a colon
            wanted[head] = name
        else:
            wanted.update(dict.fromkeys(DIRECTIONS, part))
    if not wanted or not all(wanted.values()) or not set(wanted) <= set(DIRECTIONS):
        raise ValueError(
            f"{_VARIABLE} must be an algorithm's name, or DIRECTION=NAME separated by semicolons with "
            f"directions of {DIRECTIONS}. Received: {text!r}"
        )
    return wanted


if _VARIABLE in os.environ:
    _replace(parse(os.environ[_VARIABLE]))
