"""`vmap` without a loop: a batched convolution is a larger one, so the mapped axis joins an axis of its own.

With one operand mapped, its axis joins what only that array counts: images, input channels or output
channels. With both mapped it joins the groups.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from keras_tunedconv.bridges.shapes import ROLES
from keras_tunedconv.core.descriptor import Direction

# What each array counts: N images, C input channels, O output channels.
_COUNTS = {"x": "NC", "w": "CO", "y": "NO"}


@dataclass(frozen=True)
class Folding:
    """Where a mapped axis goes in each array of one convolution.

    Args:
        factor: What is multiplied: `"N"`, `"C"`, `"O"` or `"G"` for the groups.
        spatial_rank: Number of spatial axes.
        channel_axis: The axis of x and y that counts channels.
        groups: Number of groups of one element's convolution.
        moveaxis: The framework's `moveaxis(array, source, destination)`.
    """

    factor: str
    spatial_rank: int
    channel_axis: int
    groups: int
    moveaxis: Callable[[Any, int, int], Any]

    def fold(self, array: Any, dim: int, role: str) -> Any:
        """The operand with the mapped axis `dim` merged into the axis that takes it."""
        axis, outer = self._place(role)
        array = self.moveaxis(array, dim, 0)
        size, *shape = array.shape
        split = array.reshape(size, *shape[:axis], outer, shape[axis] // outer, *shape[axis + 1 :])
        return self.moveaxis(split, 0, axis + 1).reshape(*self.folded_shape(shape, size, role))

    def unfold(self, array: Any, size: int, shape: Any, role: str) -> Any:
        """The result with the mapped axis, of length `size`, taken out again and put in front.

        Args:
            array: Result of the larger convolution.
            size: Length of the mapped axis.
            shape: Shape of one element's result.
            role: Which array it is.
        """
        axis, outer = self._place(role)
        split = array.reshape(*shape[:axis], outer, size, shape[axis] // outer, *shape[axis + 1 :])
        return self.moveaxis(split, axis + 1, 0).reshape(size, *shape)

    def folded_shape(self, shape: Any, size: int, role: str) -> tuple[int, ...]:
        """Shape of an array of the larger convolution, from that of one element's."""
        axis, _outer = self._place(role)
        return (*shape[:axis], size * shape[axis], *shape[axis + 1 :])

    def _place(self, role: str) -> tuple[int, int]:
        """The axis that takes the mapped one in, and how many leading parts of it stay outside."""
        if self.factor == "N":
            return 0, 1
        # The filter counts the input channels of one group only, all others those of all groups.
        inside = 1 if self.factor == "G" or (role, self.factor) == ("w", "C") else self.groups
        if role != "w":
            return self.channel_axis, inside
        return self.spatial_rank + (0 if self.factor == "C" else 1), inside


def factor_of(direction: Direction, lhs_mapped: bool, rhs_mapped: bool) -> str:
    """What a mapped axis multiplies, given which operands have it."""
    lhs, rhs, _result = ROLES[direction]
    if lhs_mapped and rhs_mapped:
        return "G"
    mapped, other = (lhs, rhs) if lhs_mapped else (rhs, lhs)
    (factor,) = set(_COUNTS[mapped]) - set(_COUNTS[other])
    return factor
