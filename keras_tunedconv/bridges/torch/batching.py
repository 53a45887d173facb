"""`torch.func.vmap` of the operator."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import torch

from keras_tunedconv.bridges.folding import Folding, factor_of
from keras_tunedconv.bridges.shapes import ROLES
from keras_tunedconv.bridges.torch.geometry import Call, descriptor_of, parse_geometry, result_shape
from keras_tunedconv.bridges.torch.plans import DTYPES
from keras_tunedconv.core import derivations
from keras_tunedconv.core.descriptor import DIRECTIONS


def batch(
    apply: Callable[..., Any],
    size: int,
    operands: Sequence[Any],
    dims: Sequence[int | None],
    shape: Any,
    direction: int,
    geometry: str,
) -> tuple[Any, int]:
    """Apply the operator to operands of which one or both carry a mapped axis.

    Args:
        apply: The operator.
        size: Length of the mapped axis.
        operands: Both operands, with the mapped axes.
        dims: The mapped axis of each, `None` where there is none.
        shape: The operator's argument, of one element.
        direction: The operator's argument.
        geometry: The operator's argument.

    Returns:
        The results and their mapped axis.
    """
    *roles, result = ROLES[DIRECTIONS[direction]]
    shapes = [
        [length for axis, length in enumerate(operand.shape) if axis != dim]
        for operand, dim in zip(operands, dims, strict=True)
    ]
    one_result = result_shape(shapes[0], shapes[1], shape, direction, geometry)
    element = dict(zip((*roles, result), (*shapes, one_result), strict=True))
    g = parse_geometry(geometry)
    rank = len(g.strides)
    channel_axis = rank + 1 if g.data_format == "channels_last" else 1
    groups = element["x"][channel_axis] // element["w"][rank]
    factor = factor_of(DIRECTIONS[direction], *(dim is not None for dim in dims))
    folding = Folding(factor, rank, channel_axis, groups, torch.movedim)
    folded = [
        operand if dim is None else folding.fold(operand, dim, role)
        for operand, dim, role in zip(operands, dims, roles, strict=True)
    ]
    larger_shape = list(folding.folded_shape(shape, size, result)) if direction else []
    one = tuple(shapes[0]), tuple(shapes[1]), tuple(shape)
    many = tuple(folded[0].shape), tuple(folded[1].shape), tuple(larger_shape)
    if all(type(size) is int for sizes in (*one, *many) for size in sizes):  # not while sizes are traced
        _note(Call(*one, direction, geometry), Call(*many, direction, geometry), operands[0].dtype)
    larger = apply(*folded, larger_shape, direction, geometry)
    return folding.unfold(larger, size, one_result, result), 0


@lru_cache(maxsize=4096)
def _note(one: Call, larger: Call, dtype: Any) -> None:
    derivations.note(
        *(descriptor_of(call, DTYPES[dtype], allow_tf32=False, deterministic=False) for call in (one, larger))
    )
