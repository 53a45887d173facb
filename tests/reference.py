"""A convolution in NumPy and float64, for tests to compare with.

It loops over the positions of the kernel only, so that shapes of real networks take milliseconds.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from typing import Any

import ml_dtypes
import numpy as np

from keras_tunedconv.core.descriptor import ConvDescriptor

_DTYPES: dict[str, Any] = {
    "float16": np.float16,
    "bfloat16": ml_dtypes.bfloat16,
    "float32": np.float32,
    "float64": np.float64,
}
OPERANDS = ("x", "w", "y")
OUTPUTS = {"forward": "y", "backward_data": "x", "backward_filter": "w"}


def memory_order(descriptor: ConvDescriptor, operand: str) -> tuple[int, ...]:
    """Axes of an operand's logical dims (N, C, spatial or O, I, spatial) in their order in memory."""
    spatial = tuple(range(2, 2 + descriptor.spatial_rank))
    if operand == "w":
        return {"hwio": (*spatial, 1, 0), "oihw": (0, 1, *spatial), "ohwi": (0, *spatial, 1)}[
            descriptor.w_layout
        ]
    layout = getattr(descriptor, operand + "_layout")
    return (0, *spatial, 1) if layout == "channels_last" else (0, 1, *spatial)


def _to_logical(descriptor: ConvDescriptor, operand: str, array: np.ndarray) -> np.ndarray:
    return array.transpose(np.argsort(memory_order(descriptor, operand))).astype(np.float64)


def random_operands(descriptor: ConvDescriptor, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """x, w and y in their dtypes and layouts, with normally distributed values."""
    rng = np.random.default_rng(seed)
    arrays = []
    for operand in OPERANDS:
        dims = getattr(descriptor, operand + "_dims")
        shape = [dims[axis] for axis in memory_order(descriptor, operand)]
        dtype = _DTYPES[getattr(descriptor, operand + "_dtype")]
        arrays.append(rng.standard_normal(shape).astype(np.float32).astype(dtype))
    x, w, y = arrays
    return x, w, y


@dataclass(frozen=True)
class Expected:
    """What a direction computes, in its layout, and how far from it a good implementation may be."""

    value: np.ndarray
    tolerance: np.ndarray

    def check(self, actual: np.ndarray) -> None:
        """Raise `AssertionError` unless every element is within its tolerance."""
        error = np.abs(actual.astype(np.float64) - self.value)
        good = error <= self.tolerance  # a NaN is not
        if not good.all():
            worst = np.unravel_index(
                np.argmax(np.where(good, 0, np.nan_to_num(error, nan=np.inf))), good.shape
            )
            raise AssertionError(
                f"{np.count_nonzero(~good)} of {good.size} elements are wrong; at {tuple(map(int, worst))} "
                f"expected {self.value[worst]} within {self.tolerance[worst]:.3g}, got {actual[worst]}"
            )


def expect(descriptor: ConvDescriptor, x: np.ndarray, w: np.ndarray, y: np.ndarray) -> Expected:
    """The result of a descriptor's direction in float64, from operands as they lie in memory.

    The tolerance of an element follows from the sum of the magnitudes of its products: rounding of a
    float32 accumulation of that many terms, then of the result to its dtype.
    """
    operands = [_to_logical(descriptor, name, a) for name, a in zip(OPERANDS, (x, w, y), strict=True)]
    value = _convolve(descriptor, *operands)
    magnitude = _convolve(descriptor, *(np.abs(a) for a in operands))
    output = OUTPUTS[descriptor.direction]
    accumulation = 2.0**-53 if descriptor.compute_dtype == "float64" else 2.0**-24
    result = float(ml_dtypes.finfo(_DTYPES[getattr(descriptor, output + "_dtype")]).eps)
    smallest = float(ml_dtypes.finfo(_DTYPES[getattr(descriptor, output + "_dtype")]).smallest_subnormal)
    terms = _reduction(descriptor)
    tolerance = (4 + np.sqrt(terms)) * accumulation * magnitude + result * np.abs(value) + smallest
    order = memory_order(descriptor, output)
    return Expected(value.transpose(order), tolerance.transpose(order))


def _reduction(d: ConvDescriptor) -> int:
    kernel = int(np.prod(d.w_dims[2:]))
    return {
        "forward": kernel * d.w_dims[1],
        "backward_data": kernel * (d.w_dims[0] // d.groups),
        "backward_filter": d.y_dims[0] * int(np.prod(d.y_dims[2:])),
    }[d.direction]


def _convolve(d: ConvDescriptor, x: np.ndarray, w: np.ndarray, y: np.ndarray) -> np.ndarray:
    """The three directions on operands in logical order."""
    batch, groups, positions = d.x_dims[0], d.groups, d.y_dims[2:]
    ins, outs = d.w_dims[1], d.w_dims[0] // groups
    pads = [(0, 0), (0, 0), *zip(d.pad_before, d.pad_after, strict=True)]
    padded = np.pad(x if d.direction != "backward_data" else np.zeros_like(x), pads)
    # As (group, channel, batch and positions): a product for each kernel position is one matmul.
    gradient = _by_group(y, groups) if d.direction != "forward" else None
    result = np.zeros((groups, outs, batch * int(np.prod(positions))))
    filters = np.zeros_like(w).reshape(groups, outs, ins, *w.shape[2:])
    weights = w.reshape(groups, outs, ins, *w.shape[2:])

    for tap in product(*(range(k) for k in d.w_dims[2:])):
        window = (slice(None), slice(None)) + tuple(
            slice(t * dilation, t * dilation + (n - 1) * stride + 1, stride)
            for t, dilation, n, stride in zip(tap, d.dilation, positions, d.stride, strict=True)
        )
        at = (slice(None), slice(None), slice(None), *tap)
        if d.direction == "forward":
            result += weights[at] @ _by_group(padded[window], groups)
        elif d.direction == "backward_data":
            spread = weights[at].transpose(0, 2, 1) @ gradient
            padded[window] += _from_groups(spread, batch, positions)
        else:
            filters[at] = gradient @ _by_group(padded[window], groups).transpose(0, 2, 1)

    if d.direction == "forward":
        return _from_groups(result, batch, positions)
    if d.direction == "backward_filter":
        return filters.reshape(w.shape)
    inner = tuple(
        slice(before, before + size) for before, size in zip(d.pad_before, d.x_dims[2:], strict=True)
    )
    return padded[(slice(None), slice(None), *inner)]


def _by_group(tensor: np.ndarray, groups: int) -> np.ndarray:
    """(N, C, spatial) to (group, channel in the group, N times spatial)."""
    channels_first = np.moveaxis(tensor, 0, 1)
    return channels_first.reshape(groups, tensor.shape[1] // groups, -1)


def _from_groups(tensor: np.ndarray, batch: int, positions: tuple[int, ...]) -> np.ndarray:
    return np.moveaxis(tensor.reshape(-1, batch, *positions), 1, 0)
