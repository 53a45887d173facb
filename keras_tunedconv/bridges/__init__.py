"""The convolution of the Keras backend in use, through the tuned engines.

One folder a backend, each with the same function; this module chooses. A bridge returns `None` where it
cannot run a call; the layer then runs Keras's own convolution, which also raises Keras's own errors.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any

from keras_tunedconv.bridges.fallback import note_fallback
from keras_tunedconv.core import engines
from keras_tunedconv.core.library import unavailable_reason
from keras_tunedconv.tuning import search_path

BACKENDS = ("tensorflow", "jax", "torch")

# What a model runs on is what databases are read for.
engines.when_opened(search_path.offer)

_UNKNOWN: Any = object()
_function: Callable[..., Any] | None = _UNKNOWN


def prepare() -> None:
    """Choose the backend's function, if that is still to be done.

    A layer calls it when it is built: `torch.compile` cannot trace an import, so a choice made inside a
    compiled step would break its graph at every layer.
    """
    global _function
    if _function is _UNKNOWN:
        _function = _bridge()


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
    """Convolve with the tuned engine of the device the inputs are on.

    Args:
        inputs: Tensor of the Keras backend, `(N, *spatial, C)` for `channels_last` or `(N, C, *spatial)`;
            float16, bfloat16, float32 or float64.
        kernel: Tensor or variable of the same dtype, `(*spatial, C / groups, filters)`.
        strides: Stride of each spatial axis, in elements.
        padding: `"valid"` or `"same"`.
        data_format: `"channels_last"` or `"channels_first"`.
        dilation_rate: Dilation of each spatial axis.
        groups: Number of groups.

    Returns:
        A tensor of the same dtype, differentiable to any order, or `None`: Keras's own convolution must
        run this call. A cause worth telling has then been told in one `TuningWarning`.
    """
    if _function is _UNKNOWN:
        prepare()
    if _function is None:
        return None
    return _function(
        inputs,
        kernel,
        strides=strides,
        padding=padding,
        data_format=data_format,
        dilation_rate=dilation_rate,
        groups=groups,
    )


def _bridge() -> Callable[..., Any] | None:
    """The backend's function; Keras cannot change its backend within a process."""
    import keras

    backend = keras.backend.backend()
    if (missing := unavailable_reason()) is not None:
        note_fallback(missing)
        return None
    if backend not in BACKENDS:
        note_fallback(f"there is no tuned convolution for Keras's {backend} backend")
        return None
    try:
        module = import_module(f"keras_tunedconv.bridges.{backend}")
    except ImportError as error:
        note_fallback(f"the bridge to {backend} could not be imported ({error})")
        return None
    function: Callable[..., Any] = module.convolution
    return function
