"""A cost model without training: algorithms compare as they did on the convolutions most alike.

Recorded searches of one environment are the model. For each algorithm the few searched convolutions nearest
in the space of features are averaged, the nearer ones counting more. Where the library's own default is an
algorithm that was never seen, the model has no opinion, and the library's order stands.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from keras_tunedconv.core.descriptor import ConvDescriptor
from keras_tunedconv.core.errors import InvalidArgumentError
from keras_tunedconv.core.trials import Search
from keras_tunedconv.prediction.features import family, features

_Floats = npt.NDArray[np.float64]

NEIGHBOURS = 8
# Squared distance, in standard deviations of the features, that counts as no distance at all.
_SOFTNESS = 0.1
# How much slower than the best matters up to this, as a logarithm; beyond it an algorithm is just slow.
_SLOWEST = 1.0


@dataclass(frozen=True)
class _Seen:
    """Where an algorithm was measured: features, and logarithms of its time over the best one's."""

    places: _Floats
    slowness: _Floats


@dataclass(frozen=True)
class _Family:
    scale: _Floats
    seen: Mapping[str, _Seen]


class CostModel:
    """Predicts how much slower than the best each algorithm is.

    Args:
        searches: Recorded searches, of any environments and convolutions; those with malformed keys are
            left out.
    """

    def __init__(self, searches: Iterable[Search]) -> None:
        groups: dict[tuple[str, str], list[tuple[_Floats, dict[str, float]]]] = {}
        for search in searches:
            try:
                descriptor = ConvDescriptor.from_key(search.key)
            except InvalidArgumentError:  # out of a file that anybody may have written
                continue
            seconds = {trial.algorithm: trial.seconds for trial in search.trials if trial.usable}
            if seconds:
                group = groups.setdefault((search.environment, family(descriptor)), [])
                group.append((features(descriptor), seconds))
        self._families = {key: _learn(group) for key, group in groups.items()}

    def slowness(
        self, descriptor: ConvDescriptor, environment: str, algorithms: Sequence[str]
    ) -> list[float] | None:
        """How much slower than the best each algorithm is expected to be.

        Args:
            descriptor: The convolution.
            environment: Text of the device and the library.
            algorithms: Names as the engine lists them, the library's default first.

        Returns:
            Natural logarithms of time over the best time, from 0 to 1, where 1 is as slow or slower; infinite
            for algorithms that were never seen. `None` where the model has no opinion.
        """
        known = self._families.get((environment, family(descriptor)))
        if known is None or not algorithms or algorithms[0] not in known.seen:
            return None
        place = features(descriptor) / known.scale
        return [_average(place, known.seen.get(name)) for name in algorithms]

    def opinion(
        self, descriptor: ConvDescriptor, environment: str, algorithms: Sequence[str]
    ) -> list[str] | None:
        """The algorithms, the most promising first; `None` where the model has no opinion."""
        slowness = self.slowness(descriptor, environment, algorithms)
        if slowness is None:
            return None
        places = sorted(range(len(algorithms)), key=lambda i: (slowness[i], i))
        return [algorithms[i] for i in places]

    def order(self, descriptor: ConvDescriptor, environment: str, algorithms: Sequence[str]) -> list[str]:
        """The same; as they were given where the model has no opinion."""
        opinion = self.opinion(descriptor, environment, algorithms)
        return list(algorithms) if opinion is None else opinion


def _learn(group: list[tuple[_Floats, dict[str, float]]]) -> _Family:
    places = np.array([place for place, _ in group])
    scale = np.maximum(places.std(axis=0), 1e-6)
    rows: dict[str, list[tuple[_Floats, float]]] = {}
    for place, seconds in group:
        best = min(seconds.values())
        for name, value in seconds.items():
            slowness = min(float(np.log(value / best)), _SLOWEST)
            rows.setdefault(name, []).append((place / scale, slowness))
    seen = {
        name: _Seen(np.array([place for place, _ in found]), np.array([value for _, value in found]))
        for name, found in rows.items()
    }
    return _Family(scale, seen)


def _average(place: _Floats, seen: _Seen | None) -> float:
    if seen is None:
        return float("inf")
    distances = np.square(seen.places - place).sum(axis=1)
    nearest = np.argsort(distances, kind="stable")[:NEIGHBOURS]
    weights = 1.0 / (distances[nearest] + _SOFTNESS)
    return float((weights * seen.slowness[nearest]).sum() / weights.sum())
