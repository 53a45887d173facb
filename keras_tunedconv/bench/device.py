"""Operands in a device's memory and one call of the core on them, without a framework's layers."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from keras_tunedconv.core import engines
from keras_tunedconv.core.descriptor import ConvDescriptor
from keras_tunedconv.core.errors import UnavailableError, check
from keras_tunedconv.core.library import ffi, lib

_OPERANDS = ("x", "w", "y")


class CpuOperands:
    """Random operands in the host's memory. What is drawn once is used for all of them."""

    def __init__(self) -> None:
        self._pools: dict[str, np.ndarray[Any, Any]] = {}

    def call(self, descriptor: ConvDescriptor) -> Callable[[], None]:
        """A call of the convolution on operands of its own."""
        arrays = [self._array(descriptor, name, seed) for seed, name in enumerate(_OPERANDS)]
        return lambda: engines.convolve(descriptor, *arrays)

    def _array(self, descriptor: ConvDescriptor, name: str, seed: int) -> np.ndarray[Any, Any]:
        size = math.prod(getattr(descriptor, f"{name}_dims"))
        pool = self._pool(getattr(descriptor, f"{name}_dtype"))
        return np.resize(np.roll(pool, 7919 * seed), size)

    def _pool(self, dtype: str) -> np.ndarray[Any, Any]:
        if dtype not in self._pools:
            from keras_tunedconv.bench.engine import numpy_dtype

            values = np.random.default_rng(0).standard_normal(1_000_003, dtype="float32")
            self._pools[dtype] = values.astype(numpy_dtype(dtype))
        return self._pools[dtype]


def torch_on_cuda(ordinal: int = 0) -> Any:
    """Load torch with a GPU in use and its cuDNN loaded, so that the engine, opened here, takes that cuDNN.

    Raises:
        UnavailableError: torch is not installed or sees no GPU, or the engine cannot be opened.
    """
    try:
        import torch
    except ImportError as error:
        raise UnavailableError(
            f"operands in a GPU's memory come from torch, which cannot be imported ({error}): "
            "pip install 'keras-tunedconv[torch]'"
        ) from error
    if not torch.cuda.is_available():
        raise UnavailableError(
            f"torch {torch.__version__} sees no CUDA device, and operands in a GPU's memory come from torch. "
            "`keras-tunedconv doctor` says what is there."
        )
    torch.zeros(1, device=torch.device("cuda", ordinal))
    torch.backends.cudnn.version()
    engines.ensure_open("cuda")
    return torch


class CudaContext:
    """What the core is told of a GPU with each call: the stream, and torch's allocator for workspaces.

    Args:
        torch: The module, from `torch_on_cuda`.
        ordinal: Number of the GPU.
    """

    def __init__(self, torch: Any, ordinal: int = 0) -> None:
        device, workspaces = torch.device("cuda", ordinal), {}

        @ffi.callback("void *(void *, size_t)")
        def allocate(_: Any, size: int) -> Any:
            try:
                tensor = torch.empty(size, dtype=torch.uint8, device=device)
            except torch.OutOfMemoryError:
                return ffi.NULL
            workspaces[tensor.data_ptr()] = tensor
            return ffi.cast("void *", tensor.data_ptr())

        @ffi.callback("void(void *, void *)")
        def deallocate(_: Any, pointer: Any) -> None:
            workspaces.pop(int(ffi.cast("intptr_t", pointer)), None)

        self._ordinal = ordinal
        self._callbacks = {"allocate": allocate, "deallocate": deallocate}

    def on(self, stream: Any) -> Any:
        """A new `tc_context *` for a stream of torch's, valid while this object lives."""
        fields = {"device_kind": lib.TC_CUDA, "device_ordinal": self._ordinal, **self._callbacks}
        return ffi.new("tc_context *", {**fields, "stream": ffi.cast("void *", stream.cuda_stream)})


class CudaOperands:
    """Random operands in a GPU's memory, allocated by torch, on torch's present stream."""

    def __init__(self, ordinal: int = 0) -> None:
        self._torch = torch_on_cuda(ordinal)
        self._device = self._torch.device("cuda", ordinal)
        self._context = CudaContext(self._torch, ordinal)

    def call(self, descriptor: ConvDescriptor) -> Callable[[], None]:
        """A call of the convolution on operands of its own, which waits for the device."""
        tensors = {name: self._tensor(descriptor, name) for name in _OPERANDS}
        places = {name: ffi.cast("void *", tensor.data_ptr()) for name, tensor in tensors.items()}
        operands, c = ffi.new("tc_operands *", places), descriptor.to_c()

        def run() -> None:
            stream = self._torch.cuda.current_stream(self._device)
            check(lib.tc_convolve(c, self._context.on(stream), operands))
            stream.synchronize()
            assert tensors  # they live as long as the call

        return run

    def _tensor(self, descriptor: ConvDescriptor, name: str) -> Any:
        size = math.prod(getattr(descriptor, f"{name}_dims"))
        dtype = getattr(self._torch, getattr(descriptor, f"{name}_dtype"))
        return self._torch.randn(size, dtype=dtype, device=self._device)


def operands_on(device: str) -> CpuOperands | CudaOperands:
    """Where operands for `"cpu"` or `"cuda"` come from.

    Raises:
        UnavailableError: the device's engine cannot be opened, or for `"cuda"` there is no torch or GPU.
    """
    if device == "cpu":
        engines.ensure_open(device)
        return CpuOperands()
    return CudaOperands()
