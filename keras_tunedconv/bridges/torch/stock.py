"""The same convolutions out of `torch.ops.aten`, for where no engine serves.

The bridge decides before it calls the operator whether an engine serves, but not for code that is being
compiled, nor for the larger convolutions that `vmap` makes.
"""

from __future__ import annotations

from typing import Any

import torch

from keras_tunedconv.core.descriptor import ConvDescriptor


def stock(descriptor: ConvDescriptor, lhs: Any, rhs: Any) -> Any:
    """Compute a descriptor's result.

    Args:
        descriptor: What to compute.
        lhs: First operand of the direction, see `ROLES`.
        rhs: Second operand.

    Returns:
        y, dx or dw, contiguous.
    """
    d = descriptor
    kernel_axes = (d.spatial_rank + 1, d.spatial_rank, *range(d.spatial_rank))
    if d.direction == "forward":
        x, w = _padded(d, _channels_first(d, lhs)), rhs.permute(kernel_axes)
        y = torch.ops.aten.convolution.default(x, w, None, *_arguments(d))
        return _as_given(d, y)
    if d.direction == "backward_data":
        w, dy = lhs.permute(kernel_axes), _channels_first(d, rhs)
        x = dy.new_empty(_padded_dims(d))
    else:
        x, dy = _padded(d, _channels_first(d, lhs)), _channels_first(d, rhs)
        w = dy.new_empty(d.w_dims)
    wanted = [d.direction == "backward_data", d.direction == "backward_filter", False]
    gradients = torch.ops.aten.convolution_backward.default(dy, x, w, None, *_arguments(d), wanted)
    if d.direction == "backward_data":
        return _as_given(d, _cropped(d, gradients[0]))
    return gradients[1].permute((*range(2, d.spatial_rank + 2), 1, 0)).contiguous()


def _arguments(d: ConvDescriptor) -> tuple[Any, ...]:
    none = [0] * d.spatial_rank
    return list(d.stride), none, list(d.dilation), False, none, d.groups


def _channels_first(d: ConvDescriptor, image: Any) -> Any:
    return image.movedim(-1, 1) if d.x_layout == "channels_last" else image


def _as_given(d: ConvDescriptor, image: Any) -> Any:
    return (image.movedim(1, -1) if d.x_layout == "channels_last" else image).contiguous()


def _padded(d: ConvDescriptor, x: Any) -> Any:
    # torch pads both sides alike, so the padding is made here; `pad` counts from the last axis.
    both = zip(reversed(d.pad_before), reversed(d.pad_after), strict=True)
    return torch.nn.functional.pad(x, [amount for pair in both for amount in pair])


def _padded_dims(d: ConvDescriptor) -> list[int]:
    spatial = zip(d.x_dims[2:], d.pad_before, d.pad_after, strict=True)
    return [*d.x_dims[:2], *(size + before + after for size, before, after in spatial)]


def _cropped(d: ConvDescriptor, x: Any) -> Any:
    for axis, before in enumerate(d.pad_before):
        x = x.narrow(2 + axis, before, d.x_dims[2 + axis])
    return x
