"""Tuned convolutions on TensorFlow tensors."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import tensorflow as tf

from keras_tunedconv.bridges.fallback import note_fallback
from keras_tunedconv.bridges.tensorflow import gradients  # noqa: F401 - registers them
from keras_tunedconv.bridges.tensorflow.compiler import BuildError
from keras_tunedconv.bridges.tensorflow.library import op_library
from keras_tunedconv.bridges.tensorflow.placement import (
    allow_tf32,
    device_of_call,
    in_xla_context,
    op_determinism,
)
from keras_tunedconv.core import engines
from keras_tunedconv.core.descriptor import DIRECTIONS, SUPPORTED_DTYPES, ConvDescriptor, forward_descriptor
from keras_tunedconv.core.errors import UnavailableError

# What stands for an unknown size when the engine is asked whether it can do a convolution.
_BATCH = 8
_SPATIAL = 32

_Signature = tuple[Any, ...]
# Attributes of the op for calls seen before; None where Keras's own convolution has to run.
_known: dict[_Signature, dict[str, Any] | None] = {}


def convolution(
    inputs: Any,
    kernel: Any,
    *,
    strides: Sequence[int],
    padding: str,
    data_format: str,
    dilation_rate: Sequence[int],
    groups: int,
) -> tf.Tensor | None:
    """Convolve tensors, eagerly or in a graph; see `keras_tunedconv.bridges.convolution`."""
    if not isinstance(inputs, tf.Tensor):
        return None
    if not isinstance(kernel, tf.Tensor):
        kernel = tf.convert_to_tensor(kernel)
    x_shape, w_shape = inputs.shape, kernel.shape
    if x_shape.rank is None or w_shape.rank is None:
        return None
    device = device_of_call()
    if device is None:
        note_fallback("the TensorFlow op is not there on TPUs and on the workers of a parameter server")
        return None
    signature = (
        # Comparing and hashing dtypes and shapes as objects takes longer than everything else here.
        inputs.dtype.as_datatype_enum,
        kernel.dtype.as_datatype_enum,
        x_shape.rank,
        *x_shape.as_list(),
        *w_shape.as_list(),
        *strides,
        *dilation_rate,
        padding,
        data_format,
        groups,
        device,
    )
    try:
        attributes = _known[signature]
    except KeyError:
        attributes = _attributes(
            inputs, kernel, tuple(strides), padding, data_format, tuple(dilation_rate), groups, device
        )
        _known[signature] = attributes
    if attributes is None:
        return None
    library = op_library()
    if not library.xla and in_xla_context():
        note_fallback(
            "the TensorFlow op was built without XLA kernels, which jit_compile needs",
            "`keras-tunedconv build --force` shows why; jit_compile=False runs it.",
        )
        return None
    return library.ops.tuned_conv_forward(inputs, kernel, **attributes)


def _attributes(
    inputs: tf.Tensor,
    kernel: tf.Tensor,
    strides: tuple[int, ...],
    padding: str,
    data_format: str,
    dilation_rate: tuple[int, ...],
    groups: int,
    device: str,
) -> dict[str, Any] | None:
    """The op's attributes; `None` (told, if it is worth telling) where it cannot run."""
    descriptor = _representative(inputs, kernel, strides, padding, data_format, dilation_rate, groups, device)
    if descriptor is None or not _supported(descriptor, device) or not _library_is_there():
        return None
    return {
        "strides": list(strides),
        "padding": padding.upper(),
        "dilations": list(dilation_rate),
        "data_format": "NHWC" if data_format == "channels_last" else "NCHW",
        "groups": groups,
    }


def _representative(
    inputs: tf.Tensor,
    kernel: tf.Tensor,
    strides: tuple[int, ...],
    padding: str,
    data_format: str,
    dilation_rate: tuple[int, ...],
    groups: int,
    device: str,
) -> ConvDescriptor | None:
    """A descriptor like the call's, or `None` where Keras's own convolution has to judge the arguments."""
    x_shape, w_shape = list(inputs.shape), list(kernel.shape)
    dtype = inputs.dtype.name
    channel_axis = -1 if data_format == "channels_last" else 1
    if (
        dtype not in SUPPORTED_DTYPES
        or inputs.dtype != kernel.dtype
        or len(x_shape) != len(w_shape)
        or len(x_shape) not in (3, 4, 5)
        or None in w_shape
        or 0 in w_shape
        or x_shape[channel_axis] != w_shape[-2] * groups
    ):
        return None
    first_spatial = 1 if data_format == "channels_last" else 2
    for i, (size, dilation) in enumerate(zip(w_shape[:-2], dilation_rate, strict=True)):
        if x_shape[first_spatial + i] is None:
            x_shape[first_spatial + i] = max(_SPATIAL, (size - 1) * dilation + 1)
    # An empty batch is no reason to decide otherwise than for a full one.
    x_shape[0] = x_shape[0] or _BATCH
    if None in x_shape or 0 in x_shape:
        return None
    try:
        return forward_descriptor(
            x_shape,
            w_shape,
            dtype,
            strides=strides,
            padding=padding,
            data_format=data_format,
            dilation_rate=dilation_rate,
            deterministic=op_determinism(),
            allow_tf32=device == "cuda" and dtype == "float32" and allow_tf32(),
        )
    except ValueError:
        return None


def _supported(descriptor: ConvDescriptor, device: str) -> bool:
    """Whether the engine can do all three directions, since a gradient may be asked for later."""
    try:
        engines.ensure_open(device)
    except UnavailableError as error:
        note_fallback(str(error), descriptor_key=descriptor.key)
        return False
    if device != "cpu":
        # A graph may run elsewhere than where it was traced, as tf.data's do.
        with suppress(UnavailableError):
            engines.ensure_open("cpu")
    for direction in DIRECTIONS:
        one = descriptor.with_direction(direction)
        if not engines.supported(one, device):
            note_fallback(
                f"{engines.ENGINES[device]} has no algorithm for {direction} with {descriptor.x_dtype}, "
                f"{descriptor.x_layout}, {descriptor.spatial_rank} spatial axes, {descriptor.groups} groups",
                descriptor_key=one.key,
            )
            return False
    return True


def _library_is_there() -> bool:
    try:
        op_library()
    except BuildError as error:
        note_fallback(error.reason, error.hint)
        return False
    return True
