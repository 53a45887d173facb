"""The operator `keras_tunedconv::convolution`: one for the three directions, each other's transposes.

`convolution` differentiates; `convolution_kernel`, which its forward pass calls, only computes. Both take
`(lhs, rhs, shape, direction, geometry)`: the operands in the order of `ROLES`, the shape of the result in the
backward directions (it does not follow from the operands), an index into `DIRECTIONS`, and `geometry_text`.
"""

from __future__ import annotations

from math import prod
from typing import Any

import torch
from torch.utils.flop_counter import register_flop_formula

from keras_tunedconv.bridges.shapes import ROLES
from keras_tunedconv.bridges.torch.execute import execute
from keras_tunedconv.bridges.torch.geometry import result_shape
from keras_tunedconv.bridges.torch.plans import DEVICES
from keras_tunedconv.core.descriptor import DIRECTIONS

_ARGUMENTS = "(Tensor lhs, Tensor rhs, SymInt[] shape, int direction, str geometry) -> Tensor"
_NAMES = ("convolution", "convolution_kernel")

# Kept for the process: the operators live as long as it does.
library = torch.library.Library("keras_tunedconv", "DEF")


def _fake(lhs: Any, rhs: Any, shape: Any, direction: int, geometry: str) -> Any:
    return lhs.new_empty(result_shape(lhs.shape, rhs.shape, shape, direction, geometry))


for _name in _NAMES:
    library.define(_name + _ARGUMENTS)
    torch.library.register_fake(f"keras_tunedconv::{_name}", _fake, lib=library)
    for _device in DEVICES:
        library.impl(_name, execute, _device.upper())


@register_flop_formula([getattr(torch.ops.keras_tunedconv, name) for name in _NAMES])
def _flops(lhs: Any, rhs: Any, _: Any, direction: int, *__: Any, out_shape: Any = None, **___: Any) -> int:
    """Two for each product, as torch counts its own convolutions; the operands come as their shapes."""
    sizes = dict(zip(ROLES[DIRECTIONS[direction]], (lhs, rhs, out_shape), strict=True))
    return int(2 * prod(sizes["y"]) * prod(sizes["w"][:-1]))


operator = torch.ops.keras_tunedconv.convolution.default
kernel = torch.ops.keras_tunedconv.convolution_kernel.default
