"""The same convolutions out of `jax.lax`, for where no engine serves."""

from __future__ import annotations

from typing import Any

import jax

from keras_tunedconv.bridges.shapes import ROLES, shape_of
from keras_tunedconv.core.descriptor import ConvDescriptor

_SPATIAL = "DHW"


def stock(descriptor: ConvDescriptor, lhs: Any, rhs: Any) -> Any:
    """Compute a descriptor's result with `jax.lax`.

    Args:
        descriptor: What to compute.
        lhs: First operand of the direction, see `ROLES`.
        rhs: Second operand.

    Returns:
        y, dx or dw, of the operands' dtype.
    """
    if descriptor.direction == "forward":
        return _forward(descriptor, lhs, rhs)
    result = ROLES[descriptor.direction][2]
    # An array rather than a shape, so that it varies over the same manual axes as the operand.
    like = jax.lax.full_like(lhs, 0, shape=shape_of(descriptor, result))
    if result == "x":
        transposed = jax.linear_transpose(lambda x: _forward(descriptor, x, lhs), like)
    else:
        transposed = jax.linear_transpose(lambda w: _forward(descriptor, lhs, w), like)
    return transposed(rhs)[0]


def _forward(descriptor: ConvDescriptor, x: Any, w: Any) -> Any:
    spatial = _SPATIAL[-descriptor.spatial_rank :]
    image = f"N{spatial}C" if descriptor.x_layout == "channels_last" else f"NC{spatial}"
    return jax.lax.conv_general_dilated(
        x,
        w,
        descriptor.stride,
        list(zip(descriptor.pad_before, descriptor.pad_after, strict=True)),
        rhs_dilation=descriptor.dilation,
        dimension_numbers=(image, f"{spatial}IO", image),
        feature_group_count=descriptor.groups,
        precision=None if descriptor.allow_tf32 else jax.lax.Precision.HIGHEST,
    )
