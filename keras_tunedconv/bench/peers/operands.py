"""The operands of one problem, drawn once for all of its directions and all contenders."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from keras_tunedconv.bench.peers.memory import Memory
from keras_tunedconv.bench.problem import Problem
from keras_tunedconv.core.descriptor import ConvDescriptor, Direction

# The part of a convolution that each direction computes.
OUTPUTS: dict[Direction, str] = {"forward": "y", "backward_data": "x", "backward_filter": "w"}

# Logical dims (N, C, H, W and O, I, H, W) in the order in which they lie in memory.
_ORDERS = {
    "channels_last": (0, 2, 3, 1),
    "channels_first": (0, 1, 2, 3),
    "hwio": (2, 3, 1, 0),
    "oihw": (0, 1, 2, 3),
    "ohwi": (0, 2, 3, 1),
}
_OUTPUT_GRADIENT_SCALE = 0.05


def stored_shape(descriptor: ConvDescriptor, name: str) -> tuple[int, ...]:
    """Shape in memory of a descriptor's `"x"`, `"w"` or `"y"`."""
    dims = getattr(descriptor, f"{name}_dims")
    return tuple(dims[axis] for axis in _ORDERS[getattr(descriptor, f"{name}_layout")])


def to_logical(descriptor: ConvDescriptor, name: str) -> tuple[int, ...]:
    """The permutation that brings an array in that shape into the order of its logical dims."""
    order = _ORDERS[getattr(descriptor, f"{name}_layout")]
    return tuple(order.index(axis) for axis in range(len(order)))


@dataclass(frozen=True)
class Operands:
    """Random operands of a problem.

    Args:
        problem: The convolution.
        filter_layout: `"ohwi"`, `"hwio"` or `"oihw"`.
        memory: Where they lie.
        arrays: `"x"`, `"w"` and `"y"` (the output gradient) in the shapes of `stored_shape`.
    """

    problem: Problem
    filter_layout: str
    memory: Memory
    arrays: dict[str, Any]

    def descriptor(self, direction: Direction) -> ConvDescriptor:
        """What one direction computes."""
        return _descriptor(self.problem, self.filter_layout, direction)

    def output(self, direction: Direction) -> Any:
        """A new array for what a direction computes."""
        name = OUTPUTS[direction]
        return self.memory.empty(tuple(self.arrays[name].shape), self.problem.dtype)

    def in_logical_order(self, direction: Direction, output: Any) -> np.ndarray[Any, Any]:
        """Such an array as float32 of NumPy, dims in logical order."""
        array = self.memory.to_numpy(output).astype("float32")
        return array.transpose(to_logical(self.descriptor(direction), OUTPUTS[direction]))


def draw(problem: Problem, filter_layout: str, memory: Memory) -> Operands:
    """Operands of a problem, scaled so that half precision holds what is computed of them."""
    descriptor = _descriptor(problem, filter_layout, "forward")
    fan_in = math.prod(descriptor.w_dims[1:])
    scales = {"x": 1.0, "w": fan_in**-0.5, "y": _OUTPUT_GRADIENT_SCALE}
    arrays = {
        name: memory.draw(stored_shape(descriptor, name), problem.dtype, scale)
        for name, scale in scales.items()
    }
    return Operands(problem, filter_layout, memory, arrays)


def _descriptor(problem: Problem, filter_layout: str, direction: Direction) -> ConvDescriptor:
    return replace(problem.descriptor(direction), w_layout=filter_layout)
