"""`vmap`: a batched convolution is a larger convolution, so the mapped axis is folded into one of its own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import jax.numpy as jnp

from keras_tunedconv.bridges.shapes import ROLES, channel_axis, shape_of
from keras_tunedconv.core.descriptor import ConvDescriptor

# What each array counts: x images and input channels, y images and output channels, w both channels.
_FACTORS = {"x": "NC", "w": "CO", "y": "NO"}


def batch(
    apply: Callable[[ConvDescriptor, Any, Any], Any],
    descriptor: ConvDescriptor,
    operands: Sequence[Any],
    dims: Sequence[int | None],
) -> tuple[Any, int]:
    """Apply a convolution to operands of which one or both carry a mapped axis.

    With one of them mapped, its axis joins what only that array counts: images, input channels or output
    channels. With both mapped it joins the groups.

    Args:
        apply: Computes a descriptor's result from two operands.
        descriptor: The convolution of one element.
        operands: Its operands, with the mapped axes.
        dims: The mapped axis of each operand, `None` where there is none.

    Returns:
        The results and their mapped axis.
    """
    *roles, result = ROLES[descriptor.direction]
    size = next(a.shape[d] for a, d in zip(operands, dims, strict=True) if d is not None)
    if None in dims:
        mapped = 1 - dims.index(None)
        (factor,) = set(_FACTORS[roles[mapped]]) - set(_FACTORS[roles[1 - mapped]])
    else:
        factor = "G"
    folded = [
        operand if d is None else _fold(descriptor, operand, d, role, factor)
        for operand, d, role in zip(operands, dims, roles, strict=True)
    ]
    return _unfold(descriptor, apply(_enlarged(descriptor, factor, size), *folded), size, result, factor)


def _enlarged(descriptor: ConvDescriptor, factor: str, size: int) -> ConvDescriptor:
    (n, c, *xs), (o, i, *ws), (_, _, *ys) = descriptor.x_dims, descriptor.w_dims, descriptor.y_dims
    groups = descriptor.groups
    if factor == "N":
        n *= size
    elif factor == "C":
        c, i = c * size, i * size
    elif factor == "O":
        o *= size
    else:
        c, o, groups = c * size, o * size, groups * size
    return replace(descriptor, x_dims=(n, c, *xs), w_dims=(o, i, *ws), y_dims=(n, o, *ys), groups=groups)


def _place(descriptor: ConvDescriptor, role: str, factor: str) -> tuple[int, int]:
    """The axis of an array that takes the mapped one in, and how many leading parts of it stay outside."""
    if factor == "N":
        return 0, 1
    if role != "w":
        return channel_axis(descriptor), 1 if factor == "G" else descriptor.groups
    rank = descriptor.spatial_rank
    if factor == "C":
        return rank, 1  # the filter counts the input channels of one group only
    return rank + 1, 1 if factor == "G" else descriptor.groups


def _fold(descriptor: ConvDescriptor, array: Any, dim: int, role: str, factor: str) -> Any:
    axis, outer = _place(descriptor, role, factor)
    array = jnp.moveaxis(array, dim, 0)
    size, *shape = array.shape
    split = array.reshape(size, *shape[:axis], outer, shape[axis] // outer, *shape[axis + 1 :])
    moved = jnp.moveaxis(split, 0, axis + 1)
    return moved.reshape(*shape[:axis], size * shape[axis], *shape[axis + 1 :])


def _unfold(descriptor: ConvDescriptor, array: Any, size: int, role: str, factor: str) -> tuple[Any, int]:
    axis, outer = _place(descriptor, role, factor)
    shape = shape_of(descriptor, role)
    split = array.reshape(*shape[:axis], outer, size, shape[axis] // outer, *shape[axis + 1 :])
    return jnp.moveaxis(split, axis + 1, 0).reshape(size, *shape), 0
