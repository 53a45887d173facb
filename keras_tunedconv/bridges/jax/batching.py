"""`vmap` of the primitive."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import jax.numpy as jnp

from keras_tunedconv.bridges.folding import Folding, factor_of
from keras_tunedconv.bridges.shapes import ROLES, channel_axis, shape_of
from keras_tunedconv.core import derivations
from keras_tunedconv.core.descriptor import ConvDescriptor


def batch(
    apply: Callable[[ConvDescriptor, Any, Any], Any],
    descriptor: ConvDescriptor,
    operands: Sequence[Any],
    dims: Sequence[int | None],
) -> tuple[Any, int]:
    """Apply a convolution to operands of which one or both carry a mapped axis.

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
    factor = factor_of(descriptor.direction, *(d is not None for d in dims))
    folding = Folding(
        factor, descriptor.spatial_rank, channel_axis(descriptor), descriptor.groups, jnp.moveaxis
    )
    folded = [
        operand if d is None else folding.fold(operand, d, role)
        for operand, d, role in zip(operands, dims, roles, strict=True)
    ]
    enlarged = _enlarged(descriptor, factor, size)
    derivations.note(descriptor, enlarged)
    larger = apply(enlarged, *folded)
    return folding.unfold(larger, size, shape_of(descriptor, result), result), 0


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
