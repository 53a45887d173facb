"""Running descriptors on a CUDA device through the core, on arrays of NumPy.

`TorchMemory` is a GPU's, through torch; `HostMemory` is the mock driver's, whose device memory is the host's.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from reference import OPERANDS, OUTPUTS

from keras_tunedconv.core.descriptor import ConvDescriptor
from keras_tunedconv.core.errors import check
from keras_tunedconv.core.library import ffi, lib


class Memory(Protocol):
    """Memory of one device, and the stream that work is queued on."""

    stream: int

    def upload(self, array: np.ndarray) -> Any: ...
    def download(self, buffer: Any, like: np.ndarray) -> np.ndarray: ...
    def address(self, buffer: Any) -> int: ...
    def allocate(self, size: int) -> Any: ...


class HostMemory:
    """Memory of the mock driver: the host's, at addresses as CUDA gives them, multiples of 256."""

    stream = 0

    def allocate(self, size: int) -> np.ndarray:
        raw = np.full(size + 512, 0xEE, np.uint8)
        start = -raw.ctypes.data % 256
        return raw[start : start + max(size, 1)]

    def upload(self, array: np.ndarray) -> np.ndarray:
        buffer = self.allocate(array.nbytes)
        buffer[: array.nbytes] = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        return buffer

    def download(self, buffer: np.ndarray, like: np.ndarray) -> np.ndarray:
        return buffer[: like.nbytes].view(like.dtype).reshape(like.shape).copy()

    def address(self, buffer: np.ndarray) -> int:
        return int(buffer.ctypes.data)


class TorchMemory:
    """Memory of a GPU from torch's caching allocator, and torch's current stream or a new one."""

    def __init__(self, ordinal: int = 0, new_stream: bool = True) -> None:
        import torch

        self.torch = torch
        self.device = torch.device("cuda", ordinal)
        self._stream = (
            torch.cuda.Stream(self.device) if new_stream else torch.cuda.current_stream(self.device)
        )
        self.stream = self._stream.cuda_stream

    def allocate(self, size: int) -> Any:
        with self.torch.cuda.stream(self._stream):
            return self.torch.empty(max(size, 1), dtype=self.torch.uint8, device=self.device)

    def upload(self, array: np.ndarray) -> Any:
        flat = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        with self.torch.cuda.stream(self._stream):
            return self.torch.from_numpy(flat.copy()).to(self.device)

    def download(self, buffer: Any, like: np.ndarray) -> np.ndarray:
        self._stream.synchronize()
        return buffer.cpu().numpy()[: like.nbytes].view(like.dtype).reshape(like.shape)

    def address(self, buffer: Any) -> int:
        return int(buffer.data_ptr())


@dataclass
class Device:
    """A device to run on: makes the core's context, keeps what the core was handed."""

    memory: Memory
    ordinal: int = 0
    limit: int | None = None
    handed: list[Any] = field(default_factory=list)

    def context(self, forbid_measuring: bool = False) -> Any:
        @ffi.callback("void *(void *, size_t)")
        def allocate(_: Any, size: int) -> Any:
            if self.limit is not None and size > self.limit:
                return ffi.NULL
            self.handed.append(self.memory.allocate(size))
            return ffi.cast("void *", self.memory.address(self.handed[-1]))

        self._allocate = allocate
        return ffi.new(
            "tc_context *",
            {
                "device_kind": lib.TC_CUDA,
                "device_ordinal": self.ordinal,
                "stream": ffi.cast("void *", self.memory.stream),
                "allocate": allocate,
                "forbid_measuring": forbid_measuring,
            },
        )

    def run(
        self,
        descriptor: ConvDescriptor,
        x: np.ndarray,
        w: np.ndarray,
        y: np.ndarray,
        algorithm: str | None = None,
        repeats: int = 0,
    ) -> tuple[np.ndarray, float]:
        """The output and seconds a run: by one algorithm, or as the registry and tuner decide.

        The output's memory begins as NaN, so that an element nobody writes shows.
        """
        output = OUTPUTS[descriptor.direction]
        arrays = dict(zip(OPERANDS, (x, w, y), strict=True))
        buffers = {}
        for name, array in arrays.items():
            empty = np.full(array.nbytes, 0xFF, np.uint8).view(array.dtype).reshape(array.shape)
            buffers[name] = self.memory.upload(empty if name == output else array)
        operands = ffi.new(
            "tc_operands *",
            {name: ffi.cast("void *", self.memory.address(b)) for name, b in buffers.items()},
        )
        seconds = ffi.new("double *")
        context, c = self.context(), descriptor.to_c()
        if algorithm is None:
            check(lib.tc_convolve(c, context, operands))
        else:
            check(lib.tc_run_algorithm(c, context, operands, algorithm.encode(), repeats, seconds))
        result = self.memory.download(buffers[output], arrays[output])
        self.handed.clear()
        return result, float(seconds[0])
