"""The custom call that runs the engines: its registration with XLA, and when it may be emitted."""

from __future__ import annotations

import threading
from dataclasses import replace
from functools import lru_cache
from typing import Any

import jax

from keras_tunedconv.core import engines
from keras_tunedconv.core.descriptor import ConvDescriptor
from keras_tunedconv.core.errors import UnavailableError
from keras_tunedconv.core.library import ffi, lib

TARGET = "keras_tunedconv_convolution"

# JAX's name of a platform -> the engine's device, XLA's name of the platform, the handler's field.
_PLATFORMS = {
    "cpu": ("cpu", "cpu", "xla_handler_host"),
    "cuda": ("cuda", "CUDA", "xla_handler_cuda"),
}
PLATFORMS = tuple(_PLATFORMS)

_lock = threading.Lock()
_registered: set[str] = set()


def ensure_ready(platform: str) -> None:
    """Open the platform's engine and register the custom call; does nothing the second time.

    Args:
        platform: `"cpu"` or `"cuda"`, as JAX names it when lowering.

    Raises:
        UnavailableError: the engine's library or the handler is missing; the message says how to go on.
    """
    if platform not in _PLATFORMS:
        raise UnavailableError(f"no engine serves the platform {platform!r}, only {PLATFORMS} have one")
    device, xla_platform, field = _PLATFORMS[platform]
    engines.ensure_open(device)
    with _lock:
        if platform in _registered:
            return
        handler = getattr(lib.tc_get_api(), field)
        if handler == ffi.NULL:
            raise UnavailableError(
                "the compiled core was built without XLA's FFI headers; install jaxlib and build again"
            )
        address = int(ffi.cast("uintptr_t", handler))
        jax.ffi.register_ffi_target(TARGET, jax.ffi.pycapsule(address), platform=xla_platform)
        _registered.add(platform)


def usable(descriptor: ConvDescriptor, platform: str) -> bool:
    """Whether a program for a platform may contain the custom call for this descriptor."""
    if 0 in (*descriptor.x_dims, *descriptor.w_dims, *descriptor.y_dims):
        return False
    try:
        ensure_ready(platform)
    except UnavailableError:
        return False
    return _supported(descriptor, _PLATFORMS[platform][0])


@lru_cache(maxsize=4096)
def _supported(descriptor: ConvDescriptor, device: str) -> bool:
    return engines.supported(descriptor, device)


def on_platform(descriptor: ConvDescriptor, platform: str) -> ConvDescriptor:
    """The descriptor of what a platform is given.

    On CUDA the filter goes as `(O, *spatial, C / groups)`, as cuDNN's fast engines want it: XLA fuses that
    transpose with the cast of mixed precision, and does it once for all directions.
    """
    return replace(descriptor, w_layout="ohwi") if platform == "cuda" else descriptor


def current_platform(array: Any) -> str:
    """Where a computation on an array will most likely run: the array's device, else the default one.

    Args:
        array: A `jax.Array` or a tracer.

    Returns:
        `"cpu"`, `"cuda"`, or the name JAX gives another platform.
    """
    if isinstance(array, jax.Array) and not isinstance(array, jax.core.Tracer):
        device = next(iter(array.devices()))
    else:
        device = jax.config.jax_default_device
    if device is None:
        platform = jax.default_backend()
    else:
        platform = device if isinstance(device, str) else device.platform
    # JAX calls CUDA and ROCm devices "gpu"; on ROCm there is no engine and opening it says so.
    return "cuda" if platform == "gpu" else platform
