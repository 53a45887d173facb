"""Engines: where their libraries are, and running one algorithm on NumPy arrays."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterator
from functools import lru_cache
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np

# The first two take what the environment says when they are imported, which is before anything runs.
from keras_tunedconv.core import config as _config  # noqa: F401
from keras_tunedconv.core import override as _override  # noqa: F401
from keras_tunedconv.core.descriptor import ConvDescriptor
from keras_tunedconv.core.errors import UnavailableError, UnsupportedError, check
from keras_tunedconv.core.library import ffi, lib, text, unavailable_reason

# The engine of each device, and the distributions that bring its library.
ENGINES = {"cpu": "onednn", "cuda": "cudnn"}
_DISTRIBUTIONS = {
    "onednn": ("onednn-cpu-gomp",),
    "cudnn": ("nvidia-cudnn-cu12", "nvidia-cudnn-cu13"),
}
_SONAMES = {"onednn": "libdnnl.so.3", "cudnn": "libcudnn.so.9"}
_DEVICE_KINDS = {"cpu": "TC_CPU", "cuda": "TC_CUDA"}

_lock = threading.Lock()
_failures: dict[str, str] = {}
_when_opened: list[Callable[[str], None]] = []
_when_traced: list[Callable[[ConvDescriptor, str, int], None]] = []


def library_paths(engine: str) -> list[Path]:
    """Files to try for an engine's library, in order.

    An explicit `KERAS_TUNEDCONV_ONEDNN` / `KERAS_TUNEDCONV_CUDNN` comes first, then the library's wheel;
    the core itself prefers a copy that is already in the process and ends with the system's.
    """
    explicit = os.environ.get(f"KERAS_TUNEDCONV_{engine.upper()}")
    paths = [Path(explicit)] if explicit else []
    for distribution in _DISTRIBUTIONS[engine]:
        paths.extend(_files_of(distribution, _SONAMES[engine]))
    if engine == "onednn":
        paths.append(Path(sys.prefix) / "lib" / _SONAMES[engine])
    return [path for i, path in enumerate(paths) if path not in paths[:i]]


def _files_of(distribution: str, name: str) -> Iterator[Path]:
    try:
        files = metadata.files(distribution) or []
    except metadata.PackageNotFoundError:
        return
    for file in files:
        if file.name == name:
            yield Path(str(file.locate())).resolve()


def ensure_open(device: str) -> None:
    """Open the engine of a device; does nothing when it is open.

    Args:
        device: `"cpu"` or `"cuda"`.

    Raises:
        UnavailableError: there is no compiled core, or the engine's library is missing or too old; the
            message says how to get it. The answer is kept for the process.
        ValueError: there is no such device.
    """
    if device not in ENGINES:
        raise ValueError(f"device must be one of {tuple(ENGINES)}. Received: device={device!r}")
    if lib is None:
        raise UnavailableError(unavailable_reason())
    name = ENGINES[device]
    if lib.tc_engine_is_open(name.encode()):
        return
    with _lock:
        if lib.tc_engine_is_open(name.encode()):
            return
        if name in _failures:
            raise UnavailableError(_failures[name])
        try:
            open_engine(name, library_paths(name))
        except UnavailableError as error:
            _failures[name] = str(error)
            raise
        for function in _when_opened:
            function(device)


def when_opened(function: Callable[[str], None]) -> None:
    """Have a function called with each device whose engine is opened, before anything runs on it.

    Args:
        function: Gets `"cpu"` or `"cuda"`; it must not raise.
    """
    _when_opened.append(function)


def open_engine(name: str, paths: list[Path] | None = None) -> None:
    """Open a built-in engine by name (`"onednn"`, `"cudnn"`, `"reference"`) with files to try in order."""
    encoded = [ffi.new("char[]", str(path).encode()) for path in paths or []]
    check(lib.tc_engine_open(name.encode(), ffi.new("char *[]", [*encoded, ffi.NULL])))
    environment_of.cache_clear()


def load_engine(path: str | os.PathLike[str]) -> str:
    """Open an engine of somebody else's from a shared library; see `keras-tunedconv docs engines`.

    Of several engines of a device the one opened first serves what it can do, so this comes before anything
    has run.

    Args:
        path: The library, which exports `tunedconv_engine_entry`.

    Returns:
        The engine's name.

    Raises:
        UnavailableError: there is no compiled core, or the library cannot be loaded.
        InvalidArgumentError: it is no engine for this core, or one of its name is open.
    """
    if lib is None:
        raise UnavailableError(unavailable_reason())
    with _lock:
        before = opened()
        check(lib.tc_engine_load(os.fsencode(Path(path).absolute())))
        environment_of.cache_clear()
        return next(name for name in opened() if name not in before)


def opened() -> list[str]:
    """Names of the open engines, in the order they are asked."""
    if lib is None:
        return []
    buffer = ffi.new("char[]", lib.TC_MESSAGE_SIZE)
    check(lib.tc_engine_names(buffer, lib.TC_MESSAGE_SIZE))
    return text(buffer).splitlines()


def describe(name: str) -> str:
    """Version and file of an open engine's library, one line."""
    buffer = ffi.new("char[]", lib.TC_MESSAGE_SIZE)
    check(lib.tc_engine_describe(name.encode(), buffer, lib.TC_MESSAGE_SIZE))
    return text(buffer)


def device_kind(device: str) -> int:
    """The `tc_device_kind` of `"cpu"` or `"cuda"`."""
    return int(getattr(lib, _DEVICE_KINDS[device]))


def environment(device: str = "cpu", ordinal: int = 0) -> str:
    """Canonical text of a device and the library that serves it, the second half of every key."""
    ensure_open(device)
    return environment_of(ENGINES[device], ordinal)


@lru_cache(maxsize=256)
def environment_of(engine: str, ordinal: int = 0) -> str:
    """The same of an open engine by name."""
    buffer = ffi.new("char[]", lib.TC_ENVIRONMENT_SIZE)
    check(lib.tc_engine_environment(engine.encode(), ordinal, buffer, lib.TC_ENVIRONMENT_SIZE))
    return text(buffer)


def supported(descriptor: ConvDescriptor, device: str = "cpu", ordinal: int = 0) -> bool:
    """Whether the device's engine has an algorithm for a convolution.

    Raises:
        UnavailableError: the engine cannot be opened.
        InvalidArgumentError: the descriptor contradicts itself.
    """
    ensure_open(device)
    try:
        check(lib.tc_supported(descriptor.to_c(), device_kind(device), ordinal))
    except UnsupportedError:
        return False
    for function in _when_traced:
        function(descriptor, device, ordinal)
    return True


def when_traced(function: Callable[[ConvDescriptor, str, int], None]) -> Callable[[], None]:
    """Have a function called with each convolution that bridges ask about while they trace, before it runs.

    Args:
        function: Gets a supported descriptor, the device and its ordinal; it must not raise.

    Returns:
        What ends it.
    """
    _when_traced.append(function)
    return lambda: _when_traced.remove(function)


def candidates(descriptor: ConvDescriptor, device: str = "cpu", ordinal: int = 0) -> list[str]:
    """Names of the algorithms that can do a convolution, the library's default first.

    Raises:
        UnavailableError: the engine cannot be opened.
        UnsupportedError: there is none.
    """
    ensure_open(device)
    arguments = descriptor.to_c(), device_kind(device), ordinal
    size = ffi.new("size_t *")
    check(lib.tc_candidates(*arguments, ffi.NULL, size))
    buffer = ffi.new("char[]", size[0])
    check(lib.tc_candidates(*arguments, buffer, size))
    return text(buffer).splitlines()


def convolve(descriptor: ConvDescriptor, x: Any, w: Any, y: Any) -> None:
    """Run a convolution on NumPy arrays as a compiled step would: through registry and tuner.

    Args:
        descriptor: What to compute. The array its direction computes is written.
        x: Input, `x_dims` in its layout, C-contiguous.
        w: Filter, `w_dims` in its layout, C-contiguous.
        y: Output, `y_dims` in its layout, C-contiguous.

    Raises:
        ValueError: an array's size or memory order does not fit the descriptor.
        TunedConvError: what the core reports.
    """
    ensure_open("cpu")
    check(lib.tc_convolve(descriptor.to_c(), _cpu_context(), _operands(descriptor, x, w, y)))


def run_algorithm(
    descriptor: ConvDescriptor, x: Any, w: Any, y: Any, algorithm: str, repeats: int = 0
) -> float:
    """Run one algorithm on NumPy arrays, past the registry.

    Args:
        descriptor: What to compute.
        x: Input; likewise `w` and `y`, as in `convolve`.
        algorithm: One of `candidates(descriptor)`.
        repeats: Timed runs after a first one; 0 runs it once.

    Returns:
        Mean seconds of a timed run; 0.0 when `repeats` is 0.

    Raises:
        NotFoundError: it is not one of the candidates.
        TunedConvError: what the engine reports.
    """
    ensure_open("cpu")
    seconds = ffi.new("double *")
    check(
        lib.tc_run_algorithm(
            descriptor.to_c(),
            _cpu_context(),
            _operands(descriptor, x, w, y),
            algorithm.encode(),
            repeats,
            seconds,
        )
    )
    return float(seconds[0])


def _cpu_context() -> Any:
    return ffi.new("tc_context *", {"device_kind": lib.TC_CPU})


def _operands(descriptor: ConvDescriptor, x: Any, w: Any, y: Any) -> Any:
    operands = ffi.new("tc_operands *")
    for name, array in (("x", x), ("w", w), ("y", y)):
        dims = getattr(descriptor, name + "_dims")
        if array.size != int(np.prod(dims)) or not array.flags.c_contiguous:
            raise ValueError(
                f"{name} must be a C-contiguous array of {int(np.prod(dims))} elements (dims {dims}). "
                f"Received: shape {array.shape}, strides {array.strides}"
            )
        if array.dtype.name != getattr(descriptor, name + "_dtype"):
            raise ValueError(
                f"{name} must have dtype {getattr(descriptor, name + '_dtype')}. Received: {array.dtype.name}"
            )
        setattr(operands, name, ffi.cast("void *", array.ctypes.data))
    return operands
