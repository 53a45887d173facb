"""What of a convolution does not depend on its tensors, as the text that the operator takes.

A text rather than lists of numbers: the dispatcher hands it on several times a call, and it is the part of
the key under which a call finds its plan.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from keras_tunedconv.core.descriptor import DIRECTIONS, ConvDescriptor, forward_descriptor


class Geometry(NamedTuple):
    """Strides, dilations, padding and layout of a convolution."""

    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    padding: str
    data_format: str


def geometry_text(
    strides: Sequence[int], dilation_rate: Sequence[int], padding: str, data_format: str
) -> str:
    """E.g. `"2,2|1,1|same|channels_last"`: strides, dilations, padding, layout."""
    axes = [",".join([f"{int(size)}" for size in sizes]) for sizes in (strides, dilation_rate)]
    return f"{axes[0]}|{axes[1]}|{padding}|{data_format}"


@lru_cache(maxsize=1024)
def parse_geometry(text: str) -> Geometry:
    """The inverse of `geometry_text`."""
    strides, dilations, padding, data_format = text.split("|")
    return Geometry(
        tuple(int(s) for s in strides.split(",")),
        tuple(int(d) for d in dilations.split(",")),
        padding,
        data_format,
    )


def result_shape(lhs_shape: Any, rhs_shape: Any, shape: Any, direction: int, geometry: str) -> Any:
    """Shape of an operator's result; works on symbolic sizes too.

    Args:
        lhs_shape: Shape of the first operand.
        rhs_shape: Shape of the second.
        shape: The result's shape in the backward directions.
        direction: Index into `DIRECTIONS`.
        geometry: Text of the geometry.

    Returns:
        A list of sizes.
    """
    if direction:
        return list(shape)
    g = parse_geometry(geometry)
    last = g.data_format == "channels_last"
    output = output_sizes(lhs_shape[1:-1] if last else lhs_shape[2:], rhs_shape[:-2], g)
    return [lhs_shape[0], *output, rhs_shape[-1]] if last else [lhs_shape[0], rhs_shape[-1], *output]


def output_sizes(spatial: Any, kernel: Any, geometry: Geometry) -> list[Any]:
    """Sizes of the output's spatial axes from those of input and kernel, which may be symbolic."""
    sizes = []
    for i, stride in enumerate(geometry.strides):
        # "same" has ceil(size / stride) elements; "valid" leaves out what the kernel does not fit into.
        outside = 0 if geometry.padding == "same" else (kernel[i] - 1) * geometry.dilations[i]
        sizes.append((spatial[i] - outside + stride - 1) // stride)
    return sizes


class Call(NamedTuple):
    """What of an operator's call decides which convolution it is, dtype and settings aside.

    The fields are the arguments of `result_shape`.
    """

    lhs_shape: Any
    rhs_shape: Any
    shape: Any
    direction: int
    geometry: str


def descriptor_of(call: Call, dtype: str, *, allow_tf32: bool, deterministic: bool) -> ConvDescriptor:
    """The full descriptor of a call.

    Raises:
        ValueError: the shapes contradict each other.
    """
    g = parse_geometry(call.geometry)
    x_shape = call.shape if DIRECTIONS[call.direction] == "backward_data" else call.lhs_shape
    w_shape = (call.rhs_shape, call.lhs_shape, call.shape)[call.direction]
    forward = forward_descriptor(
        tuple(x_shape),
        tuple(w_shape),
        dtype,
        strides=g.strides,
        padding=g.padding,
        data_format=g.data_format,
        dilation_rate=g.dilations,
        allow_tf32=allow_tf32,
        deterministic=deterministic,
    )
    return forward.with_direction(DIRECTIONS[call.direction])
