"""The cost model: how algorithms compare on a convolution that was never measured.

It is learnt from recorded searches of one environment, for each direction by itself. Three views are
averaged: a forest that sees the parts of an algorithm's name, one that sees how the algorithm and its like
did on the convolutions most alike, and that itself where they are nearest. The forests see the convolution
and the engine's list besides. The first tells apart what is set how, the others carry over from few searches;
where very few layers were searched, the last stands alone.

Where nothing of the same dtypes, layouts and arithmetic was searched, or the engine of the library's own
default was never seen, the model has no opinion, and the library's order stands.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from keras_tunedconv.core.descriptor import ConvDescriptor
from keras_tunedconv.core.errors import InvalidArgumentError
from keras_tunedconv.core.trials import Search
from keras_tunedconv.prediction import forest
from keras_tunedconv.prediction.features import family, features, listing, place, problem
from keras_tunedconv.prediction.likeness import Likeness, Seen, near
from keras_tunedconv.prediction.names import parts

_Floats = npt.NDArray[np.float64]
_Case = tuple[ConvDescriptor, Search]
_Kind = tuple[str, str, int]

# How much slower than the best matters up to this, as a logarithm; beyond it an algorithm is just slow.
SLOWEST = 1.0
_TREES = 32
# Of the features of names there are many, of which few matter at a node.
_DRAWS = {"names": 32, "likeness": 16}
# Layers below which there is nothing for forests to generalise from.
_FEWEST_LAYERS = 8
# Rows that each forest is grown from at most, so that much data costs no more than this.
_MOST_ROWS = 6000


class CostModel:
    """Predicts how much slower than the best each algorithm is.

    Learning, one to three seconds for each direction, happens when it is first asked about one.

    Args:
        searches: Recorded searches, of any environments and convolutions; those with malformed keys are
            left out.
    """

    def __init__(self, searches: Iterable[Search]) -> None:
        self._cases: dict[_Kind, list[_Case]] = {}
        for search in searches:
            try:
                descriptor = ConvDescriptor.from_key(search.key)
            except InvalidArgumentError:  # out of a file that anybody may have written
                continue
            if any(trial.usable for trial in search.trials):
                self._cases.setdefault(_kind(search.environment, descriptor), []).append((descriptor, search))
        self._families = {
            (search.environment, family(descriptor))
            for cases in self._cases.values()
            for descriptor, search in cases
        }
        self._learnt: dict[_Kind, _Learnt] = {}

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
            for algorithms whose engine was never seen. `None` where the model has no opinion.
        """
        if not algorithms or (environment, family(descriptor)) not in self._families:
            return None
        kind = _kind(environment, descriptor)
        learnt = self._learnt.get(kind)
        if learnt is None:
            learnt = self._learnt[kind] = _Learnt(self._cases[kind])
        known = [parts(name).engine in learnt.engines for name in algorithms]
        if not known[0]:
            return None
        found = learnt.slowness(descriptor, algorithms)
        return [value if seen else math.inf for value, seen in zip(found, known, strict=True)]

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


class _Learnt:
    """What is learnt from the searches of one environment, direction and number of spatial axes."""

    def __init__(self, cases: Sequence[_Case]) -> None:
        slowness = [_slowness(search) for _, search in cases]
        self._likeness = Likeness(
            [
                Seen(place(descriptor), family(descriptor), problem(descriptor), values)
                for (descriptor, _), values in zip(cases, slowness, strict=True)
            ]
        )
        names = sorted({name for values in slowness for name in values})
        self.engines = {parts(name).engine for name in names}
        columns = sorted({column for name in names for column in parts(name).columns})
        self._columns = {column: i for i, column in enumerate(columns)}
        self._rows_of_names: dict[str, _Floats] = {}
        enough = len({problem(descriptor) for descriptor, _ in cases}) >= _FEWEST_LAYERS
        self._forests = self._grow(cases, slowness) if enough else {}

    def _grow(
        self, cases: Sequence[_Case], slowness: Sequence[Mapping[str, float]]
    ) -> dict[str, forest.Forest]:
        rows: dict[str, list[_Floats]] = {which: [] for which in _DRAWS}
        targets: list[float] = []
        for i, ((descriptor, search), values) in enumerate(zip(cases, slowness, strict=True)):
            algorithms = [trial.algorithm for trial in search.trials]
            usable = [name in values for name in algorithms]
            alike = self._likeness.around_seen(i, algorithms)
            for which, found in self._rows(descriptor, algorithms, alike).items():
                rows[which].append(found[usable])
            targets += [values[name] for name in algorithms if name in values]
        kept = np.linspace(0, len(targets) - 1, min(len(targets), _MOST_ROWS)).astype(np.int64)
        target = np.array(targets)[kept]
        return {
            which: forest.grow(np.concatenate(found)[kept], target, trees=_TREES, draws=_DRAWS[which])
            for which, found in rows.items()
        }

    def slowness(self, descriptor: ConvDescriptor, algorithms: Sequence[str]) -> list[float]:
        alike = self._likeness.around(place(descriptor), family(descriptor), algorithms)
        views = [near(alike)]
        if self._forests:
            rows = self._rows(descriptor, algorithms, alike)
            views += [grown.predict(rows[which]) for which, grown in self._forests.items()]
        return [float(value) for value in np.mean(views, axis=0)]

    def _rows(
        self, descriptor: ConvDescriptor, algorithms: Sequence[str], alike: _Floats
    ) -> Mapping[str, _Floats]:
        """Features of each algorithm, for either forest."""
        convolution = np.tile(features(descriptor), (len(algorithms), 1))
        common = np.concatenate([convolution, listing(algorithms)], axis=1)
        names = np.array([self._row_of_name(name) for name in algorithms])
        return {
            "names": np.concatenate([common, names], axis=1),
            "likeness": np.concatenate([common, alike], axis=1),
        }

    def _row_of_name(self, name: str) -> _Floats:
        row = self._rows_of_names.get(name)
        if row is None:
            row = self._rows_of_names[name] = np.full(len(self._columns), -1.0)
            for column, value in parts(name).columns.items():
                if column in self._columns:
                    row[self._columns[column]] = value
        return row


def _kind(environment: str, descriptor: ConvDescriptor) -> _Kind:
    return environment, descriptor.direction, descriptor.spatial_rank


def _slowness(search: Search) -> dict[str, float]:
    """Logarithms of each algorithm's time over the best one's, bounded."""
    seconds = {trial.algorithm: trial.seconds for trial in search.trials if trial.usable}
    best = min(seconds.values())
    return {name: min(math.log(value / best), SLOWEST) for name, value in seconds.items()}
