"""The entry point: Keras's arguments in, one call of the primitive out, or `None`."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import jax
import keras
from jax.sharding import AxisType

from keras_tunedconv.bridges.fallback import note_fallback
from keras_tunedconv.bridges.jax.batch_split import known_batch_split
from keras_tunedconv.bridges.jax.primitive import bind
from keras_tunedconv.bridges.jax.targets import current_platform, ensure_ready, usable
from keras_tunedconv.core.descriptor import (
    DIRECTIONS,
    SUPPORTED_DTYPES,
    ConvDescriptor,
    forward_descriptor,
)
from keras_tunedconv.core.errors import UnavailableError

# Values of jax_default_matmul_precision under which XLA may round float32 products to TF32.
_TF32_PRECISIONS = (None, "default", "high", "bfloat16", "tensorfloat32")
_EXACT_PRECISIONS = ("highest", "float32")


def convolution(
    inputs: Any,
    kernel: Any,
    *,
    strides: int | Sequence[int],
    padding: str,
    data_format: str,
    dilation_rate: int | Sequence[int],
    groups: int,
) -> Any:
    """Convolve as `keras.ops.conv` does, through the engine of the platform.

    Args:
        inputs: Array or tracer, `(N, *spatial, C)` or `(N, C, *spatial)`.
        kernel: Array, tracer or Keras variable, `(*spatial, C / groups, O)`; inputs are cast to its dtype.
        strides: Stride, or one for each spatial axis.
        padding: `"same"` or `"valid"`.
        data_format: `"channels_last"` or `"channels_first"`.
        dilation_rate: Dilation, or one for each spatial axis.
        groups: Number of groups.

    Returns:
        The output, or `None` where Keras's own convolution has to run: symbolic or empty shapes, dtypes,
        platforms and sizes that no engine serves, kernels that are split by type, and erroneous calls.
    """
    kernel = keras.ops.convert_to_tensor(kernel)
    inputs = keras.ops.convert_to_tensor(inputs, dtype=kernel.dtype)
    precision = jax.config.jax_default_matmul_precision
    known_precision = precision in _TF32_PRECISIONS or precision in _EXACT_PRECISIONS
    split = known_batch_split(inputs, kernel)
    if not known_precision or not all(_is_plain(array, split is not None) for array in (inputs, kernel)):
        return None
    platform = current_platform(inputs)
    descriptor = _describe(
        split.part_shape(inputs) if split else inputs.shape,
        kernel.shape,
        kernel.dtype.name,
        _hashable(strides),
        padding,
        data_format,
        _hashable(dilation_rate),
        platform == "cuda" and precision in _TF32_PRECISIONS,
        platform == "cuda" and _determinism_asked_for(os.environ.get("XLA_FLAGS", "")),
    )
    if descriptor is None or descriptor.groups != groups or not _served(descriptor, platform):
        return None

    def convolve(inputs: Any, kernel: Any) -> Any:
        return bind(descriptor, *_varying_alike(inputs, kernel))

    return split.on_each_part(convolve, inputs, kernel) if split else convolve(inputs, kernel)


def _is_plain(array: Any, split_is_known: bool) -> bool:
    """Whether shape and sharding are of the kind that the primitive's rules cover."""
    if not all(isinstance(size, int) and size > 0 for size in array.shape):
        return False
    types = set(jax.typeof(array).sharding.mesh.axis_types)
    # Where some axes are manual and others are not, there is no partitioning a custom call.
    return split_is_known or types <= {AxisType.Auto} or types == {AxisType.Manual}


def _hashable(value: int | Sequence[int]) -> int | tuple[int, ...]:
    return value if isinstance(value, int) else tuple(value)


@lru_cache(maxsize=4096)
def _describe(
    x_shape: tuple[int, ...],
    kernel_shape: tuple[int, ...],
    dtype: str,
    strides: int | tuple[int, ...],
    padding: str,
    data_format: str,
    dilation_rate: int | tuple[int, ...],
    allow_tf32: bool,
    deterministic: bool,
) -> ConvDescriptor | None:
    if dtype not in SUPPORTED_DTYPES:
        return None
    try:
        return forward_descriptor(
            x_shape,
            kernel_shape,
            dtype,
            strides=strides,
            padding=padding,
            data_format=data_format,
            dilation_rate=dilation_rate,
            allow_tf32=allow_tf32 and dtype == "float32",
            deterministic=deterministic,
        )
    except ValueError:  # Keras's own convolution says what is wrong
        return None


@lru_cache(maxsize=16)
def _determinism_asked_for(xla_flags: str) -> bool:
    settings = re.findall(
        r"--xla_gpu_(?:deterministic_ops|exclude_nondeterministic_ops)(?:=(\S+))?", xla_flags
    )
    return any(value.lower() in ("", "true", "1") for value in settings)


def _served(descriptor: ConvDescriptor, platform: str) -> bool:
    try:
        ensure_ready(platform)
    except UnavailableError as error:
        note_fallback(str(error), "install the engine's library, or use keras.layers.Conv2D")
        return False
    # A program that is differentiated later needs the other directions too.
    for direction in DIRECTIONS:
        one = descriptor.with_direction(direction)
        if not usable(one, platform):
            note_fallback(
                f"the engine for {platform} has no algorithm for {direction} in {descriptor.x_dtype}",
                "nothing needs to be done; other convolutions are tuned as usual",
                one.key,
            )
            return False
    return True


def _varying_alike(inputs: Any, kernel: Any) -> tuple[Any, Any]:
    """Mark both operands as varying over the same manual axes, as `jax.shard_map` asks of one operation."""
    of_inputs, of_kernel = _varying_axes(inputs), _varying_axes(kernel)
    return _vary(inputs, of_kernel - of_inputs), _vary(kernel, of_inputs - of_kernel)


def _varying_axes(array: Any) -> frozenset[str]:
    aval = jax.typeof(array)
    if hasattr(aval, "vma"):
        return frozenset(aval.vma)
    return frozenset(aval.manual_axis_type.varying)


def _vary(array: Any, axes: frozenset[str]) -> Any:
    if not axes:
        return array
    if hasattr(jax.lax, "pcast"):
        return jax.lax.pcast(array, tuple(sorted(axes)), to="varying")
    return jax.lax.pvary(array, tuple(sorted(axes)))
