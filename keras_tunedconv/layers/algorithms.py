"""The algorithms that layers are told to run, whatever is stored.

A compiled program does not know which layer an op belongs to, so a request holds for the convolutions of
the layer's contents: another layer with the same convolution follows it, and two that ask for different
algorithms are an error.
"""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Iterable, Mapping
from typing import Any

from keras_tunedconv.core import override
from keras_tunedconv.core.descriptor import DIRECTIONS, ConvPattern

# What the `algorithm` argument of a layer may be.
Algorithm = str | Mapping[str, str] | None

_Place = tuple[ConvPattern, str]

# The end of a layer may be noticed in the middle of what follows, by the same thread.
_lock = threading.RLock()
# Convolution and direction -> who asks for which algorithm there.
_asked: dict[_Place, dict[int, tuple[str, str]]] = {}


def standardize(algorithm: Algorithm) -> dict[str, str]:
    """The name for each direction that one is asked for.

    Raises:
        ValueError: a direction or a name is none.
    """
    if algorithm is None:
        return {}
    wanted = dict.fromkeys(DIRECTIONS, algorithm) if isinstance(algorithm, str) else algorithm
    sound = isinstance(wanted, Mapping) and all(
        direction in DIRECTIONS and isinstance(name, str) and 0 < len(name.encode()) <= override.LONGEST_NAME
        for direction, name in wanted.items()
    )
    if not sound:
        raise ValueError(
            f"algorithm must be the name of one, of at most {override.LONGEST_NAME} bytes, a dict from some "
            f"of {DIRECTIONS} to names, or None. Received: algorithm={algorithm!r}"
        )
    return {direction: wanted[direction] for direction in DIRECTIONS if direction in wanted}


class Requests:
    """What one layer is told to run, from its first call until the layer is gone.

    Args:
        owner: Name of the layer, for messages.
        algorithms: A name for each direction that one is asked for.
    """

    def __init__(self, owner: str, algorithms: dict[str, str]) -> None:
        self.owner = owner
        self.algorithms = algorithms
        self._patterns: set[ConvPattern] = set()
        self._end = weakref.finalize(self, _withdraw, id(self), self._patterns)
        self._end.atexit = False

    @property
    def argument(self) -> str | dict[str, str] | None:
        """The value of the layer's `algorithm` argument that asks for this."""
        names = set(self.algorithms.values())
        if len(self.algorithms) == len(DIRECTIONS) and len(names) == 1:
            return names.pop()
        return dict(self.algorithms) or None

    def change(self, algorithms: dict[str, str], calls: Iterable[Mapping[str, Any]]) -> None:
        """Ask for other algorithms, also in programs that are compiled already.

        Args:
            algorithms: A name for each direction that one is asked for.
            calls: What the layer was traced with so far, as `announce` takes it.

        Raises:
            ValueError: as for `announce`; what was asked for before then still holds.
        """
        patterns = {_pattern(**call) for call in calls}
        with _lock:
            self._patterns.update(patterns)  # in place: the end of the layer looks there
            for pattern in self._patterns:
                self._check(pattern, algorithms)
            for pattern in self._patterns:
                for direction in DIRECTIONS:
                    _ask((pattern, direction), self, algorithms.get(direction))
            self.algorithms = algorithms

    def announce(self, **call: Any) -> None:
        """Let a convolution of the layer run what is asked for.

        Args:
            **call: What the layer was called with, as `TuningCache.note` takes it.

        Raises:
            ValueError: another layer has the same convolution and asks for another algorithm.
        """
        pattern = _pattern(**call)
        if pattern in self._patterns:
            return
        with _lock:
            self._check(pattern, self.algorithms)
            for direction, name in self.algorithms.items():
                _ask((pattern, direction), self, name)
            self._patterns.add(pattern)

    def _check(self, pattern: ConvPattern, algorithms: dict[str, str]) -> None:
        if not self._conflict(pattern, algorithms):
            return
        gc.collect()  # layers of models that nobody has any more ask for nothing
        conflict = self._conflict(pattern, algorithms)
        if conflict:
            raise ValueError(conflict)

    def _conflict(self, pattern: ConvPattern, algorithms: dict[str, str]) -> str:
        for direction, name in algorithms.items():
            for number, (owner, other) in list(_asked.get((pattern, direction), {}).items()):
                if number != id(self) and other != name:
                    return (
                        f"Layers {owner!r} and {self.owner!r} run the same {direction} convolution and ask "
                        f"for algorithms {other!r} and {name!r}; a compiled step cannot tell them apart. "
                        "Ask for one, or drop the model that the other layer is of."
                    )
        return ""

    def __reduce__(self) -> tuple[Any, ...]:
        return Requests, (self.owner, self.algorithms)


def _pattern(
    *, x_shape: Iterable[Any], kernel_shape: Iterable[Any], dtype: str, **arguments: Any
) -> ConvPattern:
    known = tuple(dim if type(dim) is int else None for dim in x_shape)
    return ConvPattern.from_shapes(known, tuple(kernel_shape), dtype, **arguments)


def _ask(place: _Place, who: Requests, name: str | None) -> None:
    """Note one request, or with `None` that there is none any more; the caller holds the lock."""
    if name is not None:
        _asked.setdefault(place, {})[id(who)] = who.owner, name
        override.set_pattern(*place, name)
    else:
        _drop(place, id(who))


def _drop(place: _Place, number: int) -> None:
    others = _asked.get(place, {})
    if others.pop(number, None) is not None and not others:
        del _asked[place]
        override.set_pattern(*place, None)


def _withdraw(number: int, patterns: set[ConvPattern]) -> None:
    with _lock:
        for pattern in patterns:
            for direction in DIRECTIONS:
                _drop((pattern, direction), number)
