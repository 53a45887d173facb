"""Operands in a device's memory and one call of the core on them, without a framework's layers."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from keras_tunedconv.core import engines
from keras_tunedconv.core.descriptor import ConvDescriptor
from keras_tunedconv.core.errors import check
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


class CudaOperands:
    """Random operands in a GPU's memory, allocated by torch, on torch's present stream."""

    def __init__(self, ordinal: int = 0) -> None:
        import torch

        self._torch = torch
        self._device = torch.device("cuda", ordinal)
        self._ordinal = ordinal
        torch.zeros(1, device=self._device)
        torch.backends.cudnn.version()  # torch's cuDNN is the one that is used
        engines.ensure_open("cuda")

    def call(self, descriptor: ConvDescriptor) -> Callable[[], None]:
        """A call of the convolution on operands of its own, which waits for the device."""
        torch = self._torch
        tensors = {name: self._tensor(descriptor, name) for name in _OPERANDS}
        places = {name: ffi.cast("void *", tensor.data_ptr()) for name, tensor in tensors.items()}
        operands, c = ffi.new("tc_operands *", places), descriptor.to_c()

        workspaces: dict[int, Any] = {}

        @ffi.callback("void *(void *, size_t)")
        def allocate(_: Any, size: int) -> Any:
            try:
                tensor = torch.empty(size, dtype=torch.uint8, device=self._device)
            except torch.OutOfMemoryError:
                return ffi.NULL
            workspaces[tensor.data_ptr()] = tensor
            return ffi.cast("void *", tensor.data_ptr())

        @ffi.callback("void(void *, void *)")
        def deallocate(_: Any, pointer: Any) -> None:
            workspaces.pop(int(ffi.cast("intptr_t", pointer)), None)

        def run() -> None:
            stream = torch.cuda.current_stream(self._device)
            context = {
                "device_kind": lib.TC_CUDA,
                "device_ordinal": self._ordinal,
                "stream": ffi.cast("void *", stream.cuda_stream),
                "allocate": allocate,
                "deallocate": deallocate,
            }
            check(lib.tc_convolve(c, ffi.new("tc_context *", context), operands))
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
        UnavailableError: the device's engine cannot be opened.
        ImportError: `"cuda"` without torch.
    """
    if device == "cpu":
        engines.ensure_open(device)
        return CpuOperands()
    return CudaOperands()
