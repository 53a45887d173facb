"""The entry point: Keras's arguments in, one call of the operator out, or `None`."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import keras
import torch

from keras_tunedconv.bridges.fallback import note_fallback
from keras_tunedconv.bridges.torch.autograd import apply, is_functionalized, transforms_active
from keras_tunedconv.bridges.torch.geometry import Geometry, geometry_text, output_sizes
from keras_tunedconv.bridges.torch.plans import DEVICES, DTYPES, unserved
from keras_tunedconv.core import engines
from keras_tunedconv.core.errors import UnavailableError

# Subclasses (DTensor, quantised tensors) have rules for torch's own operators only.
_PLAIN = (torch.Tensor, torch.nn.Parameter)

if hasattr(torch.compiler, "is_exporting"):

    @torch.compiler.assume_constant_result
    def _is_exporting() -> bool:
        # Asked outside of what is traced: up to torch 2.12 a compilation takes the answer to be True.
        return bool(torch.compiler.is_exporting())

else:  # torch 2.6 does not tell an export from a compilation; both are left to Keras there.
    _is_exporting = torch.compiler.is_compiling


def convolution(
    inputs: Any,
    kernel: Any,
    *,
    strides: Sequence[int],
    padding: str,
    data_format: str,
    dilation_rate: Sequence[int],
    groups: int,
) -> Any:
    """Convolve as `keras.ops.conv` does, through the engine of the tensors' device.

    Args:
        inputs: Tensor, `(N, *spatial, C)` or `(N, C, *spatial)`.
        kernel: Tensor or Keras variable, `(*spatial, C / groups, O)`.
        strides: Stride of each spatial axis.
        padding: `"same"` or `"valid"`.
        data_format: `"channels_last"` or `"channels_first"`.
        dilation_rate: Dilation of each spatial axis.
        groups: Number of groups.

    Returns:
        The output, or `None` where Keras's own convolution has to run: exports, empty tensors, dtypes,
        devices and sizes that no engine serves, subclasses of tensors, `functionalize`, and
        calls that are an error.
    """
    inputs, kernel = _as_tensor(inputs), _as_tensor(kernel)
    if _is_exporting() or torch.jit.is_tracing() or not _are_plain(inputs, kernel):
        return None
    inputs, kernel = _autocast(inputs, kernel)
    compiles = torch.compiler.is_compiling()
    if not compiles and is_functionalized():
        return None
    if not compiles and torch.is_grad_enabled():
        # Saving tensors of inference mode for a gradient is an error; Keras's own convolution copies them.
        inputs, kernel = (each.clone() if each.is_inference() else each for each in (inputs, kernel))
    if inputs.dtype != kernel.dtype or padding not in ("same", "valid"):
        return None
    # Tensors in torch's channels_last memory format are dense in the other layout.
    moves = data_format == "channels_first" and _lies_channels_last(inputs)
    if moves:
        inputs, data_format = inputs.movedim(1, -1), "channels_last"
    if inputs.shape[-1 if data_format == "channels_last" else 1] != groups * kernel.shape[-2]:
        return None
    arguments = tuple(strides), tuple(dilation_rate), padding, data_format
    if compiles:
        geometry = geometry_text(*arguments)
        if not _compiled_call_is_served(inputs, kernel, *arguments):
            return None
    else:
        geometry = _known_geometry_text(*arguments)
        if not _call_is_served(inputs, kernel, geometry):
            return None
    outputs = apply(inputs, kernel, [], 0, geometry)
    return outputs.movedim(-1, 1) if moves else outputs


_known_geometry_text = lru_cache(maxsize=1024)(geometry_text)


def _as_tensor(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value
    value = getattr(value, "value", value)
    return value if isinstance(value, torch.Tensor) else keras.ops.convert_to_tensor(value)


def _are_plain(inputs: Any, kernel: Any) -> bool:
    """Whether both are tensors of a kind and on a device that the operator is for."""
    return (
        type(inputs) in _PLAIN
        and type(kernel) in _PLAIN
        and inputs.device == kernel.device
        and inputs.device.type in DEVICES
        and inputs.layout == kernel.layout == torch.strided
        and inputs.dtype in DTYPES
        and kernel.dtype in DTYPES
        and 3 <= inputs.ndim <= 5
        and kernel.ndim == inputs.ndim
        and inputs.numel() > 0
        and kernel.numel() > 0
    )


def _autocast(*tensors: Any) -> Any:
    """What autocast does to the operands of torch's own convolution."""
    device = tensors[0].device.type
    if not torch.is_autocast_enabled(device):
        return tensors
    dtype = torch.get_autocast_dtype(device)
    return tuple(tensor if tensor.dtype == torch.float64 else tensor.to(dtype) for tensor in tensors)


def _lies_channels_last(image: Any) -> bool:
    return not image.is_contiguous() and bool(image.movedim(1, -1).is_contiguous())


def _call_is_served(inputs: Any, kernel: Any, geometry: str) -> bool:
    plan = unserved(inputs, kernel, geometry)
    if plan is None:
        return True
    if plan.reason:  # else Keras's own convolution says what is wrong
        note_fallback(plan.reason, "", plan.key)
    return False


def _compiled_call_is_served(
    inputs: Any, kernel: Any, strides: Any, dilations: Any, padding: str, data_format: str
) -> bool:
    """Sizes may be symbolic here; where the engine does not serve them, the operator runs torch's own."""
    if transforms_active() or not _engine_is_ready(inputs.device.type):
        return False
    spatial = inputs.shape[1:-1] if data_format == "channels_last" else inputs.shape[2:]
    sizes = output_sizes(spatial, kernel.shape[:-2], Geometry(strides, dilations, padding, data_format))
    return all(size > 0 for size in sizes)


@torch.compiler.assume_constant_result
def _engine_is_ready(device: str) -> bool:
    try:
        engines.ensure_open(device)
    except UnavailableError as error:
        note_fallback(str(error))
        return False
    return True
