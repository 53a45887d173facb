"""Extremely randomised regression trees, in NumPy.

Each node draws some pairs of a feature and a threshold and keeps the one that parts its rows best; the forest
predicts the mean of its trees. All trees grow together, a level at a time, so that the work is done in few
operations on long arrays. Equal data and settings give equal forests.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
_Ints = npt.NDArray[np.int64]

_LEVELS = 14
_LEAST_ROWS = 3
_LEAST_GAIN = 1e-9


@dataclass(frozen=True)
class Forest:
    """A forest that was grown; nodes of all trees stand in one table, the roots first.

    Args:
        trees: How many.
        feature: The feature each node looks at.
        threshold: Rows above it go right.
        left: The left one of two neighbouring children, or -1 in a leaf.
        value: Mean of the rows that came to a node.
    """

    trees: int
    feature: _Ints
    threshold: Floats
    left: _Ints
    value: Floats

    def predict(self, rows: Floats) -> Floats:
        """The mean of the trees for each row, as `(rows,)`.

        Args:
            rows: Features, `(rows, features)`.
        """
        flat, width = rows.ravel(), rows.shape[1]
        # Where each row stands in each tree, and where its features begin.
        node = np.tile(np.arange(self.trees), len(rows))
        begin = np.repeat(np.arange(len(rows)) * width, self.trees)
        going = np.arange(len(node))
        for _ in range(_LEVELS):
            at = node.take(going)
            left = self.left.take(at)
            inner = left >= 0
            going, at, left = going[inner], at[inner], left[inner]
            if not len(going):
                break
            right = flat.take(begin.take(going) + self.feature.take(at)) > self.threshold.take(at)
            node[going] = left + right
        means: Floats = self.value[node].reshape(len(rows), self.trees).mean(axis=1)
        return means


def grow(rows: Floats, targets: Floats, *, trees: int, draws: int, seed: int = 0) -> Forest:
    """A forest that predicts targets.

    Args:
        rows: Features, `(rows, features)`, finite; at least one row.
        targets: `(rows,)`.
        trees: How many trees.
        draws: Splits that each node chooses from.
        seed: Of the random draws.
    """
    random = np.random.default_rng(seed)
    # Where each tree's copy of each row has come to.
    row, node = np.tile(np.arange(len(rows)), trees), np.repeat(np.arange(trees), len(rows))
    levels: list[tuple[_Ints, Floats, _Ints, Floats]] = []
    first, count = 0, trees
    for level in range(_LEVELS + 1):
        target = targets[row]
        size = np.bincount(node, minlength=count)
        total: Floats = np.bincount(node, target, count).astype(np.float64)
        if level < _LEVELS:
            feature, threshold, split = _splits(random, rows, row, node, target, size, total, draws)
        else:
            feature, threshold, split = np.zeros(count, np.int64), np.zeros(count), np.zeros(count, np.bool_)
        place = np.cumsum(split) - 1
        levels.append((feature, threshold, np.where(split, first + count + 2 * place, -1), total / size))
        first, count = first + count, 2 * int(split.sum())
        if not count:
            break
        staying = split[node]
        row, node = row[staying], node[staying]
        node = 2 * place[node] + (rows[row, feature[node]] > threshold[node])
    return Forest(trees, *(np.concatenate(column) for column in zip(*levels, strict=True)))


def _splits(
    random: np.random.Generator,
    rows: Floats,
    row: _Ints,
    node: _Ints,
    target: Floats,
    size: _Ints,
    total: Floats,
    draws: int,
) -> tuple[_Ints, Floats, npt.NDArray[np.bool_]]:
    """The best split of each node that was drawn: feature, threshold, and whether there is one."""
    by_node = np.argsort(node, kind="stable")
    starts = np.cumsum(size) - size
    feature, threshold = np.zeros(len(size), np.int64), np.zeros(len(size))
    most = np.full(len(size), total * total / size + _LEAST_GAIN)
    split = np.zeros(len(size), np.bool_)
    for _ in range(draws):
        drawn = random.integers(rows.shape[1], size=len(size))
        # A threshold that a row of the node has, so that nodes split where their rows are.
        at = rows[row[by_node[starts + random.integers(size)]], drawn]
        right = rows[row, drawn[node]] > at[node]
        sizes = np.bincount(node[right], minlength=len(size))
        totals = np.bincount(node[right], target[right], len(size))
        rest = size - sizes
        allowed = (sizes >= _LEAST_ROWS) & (rest >= _LEAST_ROWS)
        kept = totals**2 / np.maximum(sizes, 1) + (total - totals) ** 2 / np.maximum(rest, 1)
        better = allowed & (kept > most)
        split |= better
        most = np.where(better, kept, most)
        feature, threshold = np.where(better, drawn, feature), np.where(better, at, threshold)
    return feature, threshold, split
