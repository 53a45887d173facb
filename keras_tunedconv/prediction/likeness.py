"""How algorithms did on convolutions that are alike.

Around a convolution, the slowness of an algorithm is averaged over searched ones, the nearer ones counting
more. Where its name was seen little, what its engine's variant did there counts instead, then what its engine
did, then that algorithms on the whole are slow: each level is drawn towards the broader one before it.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from keras_tunedconv.prediction.features import Problem
from keras_tunedconv.prediction.names import kinds

Floats = npt.NDArray[np.float64]

# Distances within which convolutions tell about one another: the like of this very one, and of its sort.
_REACHES = (0.7, 3.0)
# What a convolution of another dtype, layout or arithmetic counts beside one of the same.
_OTHER_FAMILY = 0.3
# How much a broader level counts against what was seen, and how slow an algorithm is of which nothing was.
_DOUBT = 0.3
_UNKNOWN = 0.7


@dataclass(frozen=True)
class Seen:
    """A searched convolution.

    Args:
        place: Where it stands, as `features.place` says.
        family: As `features.family` names it.
        problem: As `features.problem` names it.
        slowness: Of its algorithms by name.
    """

    place: Floats
    family: str
    problem: Problem
    slowness: Mapping[str, float]


class Likeness:
    """Averages around a convolution, as features of its algorithms.

    Args:
        seen: The searched convolutions, of one direction and number of spatial axes; at least one.
    """

    def __init__(self, seen: Sequence[Seen]) -> None:
        self._places = np.array([each.place for each in seen])
        self._families = np.array([each.family for each in seen])
        numbers: dict[Problem, int] = {}
        self._problems = np.array([numbers.setdefault(each.problem, len(numbers)) for each in seen])
        self._columns: dict[Hashable, int] = {}
        for each in seen:
            for name in each.slowness:
                for kind in kinds(name):
                    self._columns.setdefault(kind, len(self._columns))
        # The last column is of what was never seen, and stays empty.
        sums, counts = np.zeros((2, len(seen), len(self._columns) + 1))
        for i, each in enumerate(seen):
            for name, slowness in each.slowness.items():
                columns = self._columns_of(name)
                sums[i, columns] += slowness
                counts[i, columns] += 1
        # A kind counts once a convolution, however many of its algorithms were tried there.
        self._slowness, self._known = sums / np.maximum(counts, 1), (counts > 0).astype(np.float64)

    def around(self, place: Floats, family: str, algorithms: Sequence[str]) -> Floats:
        """Averages for each algorithm, the broadest level first, and what stands behind the narrowest.

        Returns:
            `(algorithms, features)`.
        """
        return self._averages(self._weights(place, family), algorithms)

    def around_seen(self, i: int, algorithms: Sequence[str]) -> Floats:
        """The same around a searched convolution, as if its layer had not been searched in any way."""
        weights = self._weights(self._places[i], str(self._families[i]))
        return self._averages(weights * (self._problems != self._problems[i]), algorithms)

    def _weights(self, place: Floats, family: str) -> Floats:
        distance = np.sqrt(np.square(self._places - place).sum(axis=1))
        same = np.where(self._families == family, 1.0, _OTHER_FAMILY)
        weights: Floats = np.exp(-distance / np.array(_REACHES)[:, None]) * same
        return weights

    def _averages(self, weights: Floats, algorithms: Sequence[str]) -> Floats:
        sums, amounts = weights @ self._slowness, weights @ self._known
        columns = np.array([self._columns_of(name) for name in algorithms])
        found = [np.full((len(_REACHES), len(algorithms)), _UNKNOWN)]
        for column in columns.T:
            found.append((sums[:, column] + _DOUBT * found[-1]) / (amounts[:, column] + _DOUBT))
        found.append(amounts[:, columns[:, -1]])
        return np.concatenate(found[1:]).T

    def _columns_of(self, name: str) -> list[int]:
        return [self._columns.get(kind, -1) for kind in kinds(name)]


def near(around: Floats) -> Floats:
    """Of averages around a convolution, those of each algorithm by itself within the shortest reach."""
    return around[:, -2 * len(_REACHES)]
