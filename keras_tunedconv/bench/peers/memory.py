"""The host's memory and a GPU's: random operands there, the core's context, and timing of what runs there."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Protocol

import numpy as np

from keras_tunedconv.bench.device import CudaContext, torch_on_cuda
from keras_tunedconv.bench.engine import numpy_dtype
from keras_tunedconv.bench.timing import Sampler, sampler
from keras_tunedconv.core import engines
from keras_tunedconv.core.library import ffi, lib

# Clock cycles that a GPU is held up while runs are queued, about a millisecond; doubled where too short.
_HELD_CYCLES, _MOST_CYCLES = 2_000_000, 64_000_000


class Memory(Protocol):
    """Memory of one device, and how work on it is queued and timed."""

    device: str

    def draw(self, shape: tuple[int, ...], dtype: str, scale: float) -> Any:
        """A new array of normally distributed numbers, in C order."""

    def empty(self, shape: tuple[int, ...], dtype: str) -> Any:
        """A new array in C order."""

    def address(self, array: Any) -> int:
        """Where an array begins."""

    def to_numpy(self, array: Any) -> np.ndarray[Any, Any]:
        """An array as NumPy has it."""

    def to_torch(self, array: Any) -> Any:
        """The same memory as a tensor of torch."""

    def context(self) -> Any:
        """The core's `tc_context *`, valid while this object lives."""

    def active(self) -> AbstractContextManager[Any]:
        """Within it, what this thread queues goes where the core's work goes."""

    def wait(self) -> None:
        """Blocks until all queued work is done."""

    def sampler(self, run: Callable[[], object]) -> Sampler:
        """A sampler of something that is queued within `active`: seconds of the device for one run."""


class HostMemory:
    """The host's memory, in NumPy's arrays; what runs has ended when its call returns."""

    device = "cpu"

    def __init__(self) -> None:
        engines.ensure_open(self.device)
        self._generator = np.random.default_rng(0)

    def draw(self, shape: tuple[int, ...], dtype: str, scale: float) -> np.ndarray[Any, Any]:
        """A new array of normally distributed numbers."""
        return (self._generator.standard_normal(shape, "float32") * scale).astype(numpy_dtype(dtype))

    def empty(self, shape: tuple[int, ...], dtype: str) -> np.ndarray[Any, Any]:
        """A new array."""
        return np.zeros(shape, numpy_dtype(dtype))

    def address(self, array: np.ndarray[Any, Any]) -> int:
        """Where an array begins."""
        return int(array.ctypes.data)

    def to_numpy(self, array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """The array itself."""
        return array

    def to_torch(self, array: np.ndarray[Any, Any]) -> Any:
        """A tensor on the array's memory."""
        import torch

        if array.dtype.name == "bfloat16":  # which torch does not take from NumPy
            return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
        return torch.from_numpy(array)

    def context(self) -> Any:
        """The core's context."""
        return ffi.new("tc_context *", {"device_kind": lib.TC_CPU})

    def active(self) -> AbstractContextManager[Any]:
        """Nothing to do."""
        return nullcontext()

    def wait(self) -> None:
        """Nothing to wait for."""

    def sampler(self, run: Callable[[], object]) -> Sampler:
        """A sampler by the wall clock."""
        return sampler(run)


class CudaMemory:
    """A GPU's memory, in torch's tensors; work is queued on a stream of its own and timed between two events.

    Args:
        ordinal: Number of the GPU.

    Raises:
        UnavailableError: torch is not installed or sees no GPU, or the engine cannot be opened.
    """

    device = "cuda"

    def __init__(self, ordinal: int = 0) -> None:
        # XLA would take three quarters of the memory at once, and torch's tensors lie there too.
        os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
        self._torch = torch_on_cuda(ordinal)
        self._place = self._torch.device("cuda", ordinal)
        self._stream = self._torch.cuda.Stream(self._place)
        self._context = CudaContext(self._torch, ordinal)
        self._cycles = _HELD_CYCLES

    def draw(self, shape: tuple[int, ...], dtype: str, scale: float) -> Any:
        """A new tensor of normally distributed numbers."""
        with self.active():
            values = self._torch.randn(shape, dtype=self._torch.float32, device=self._place) * scale
            return values.to(getattr(self._torch, dtype))

    def empty(self, shape: tuple[int, ...], dtype: str) -> Any:
        """A new tensor."""
        with self.active():
            return self._torch.empty(shape, dtype=getattr(self._torch, dtype), device=self._place)

    def address(self, array: Any) -> int:
        """Where a tensor begins."""
        return int(array.data_ptr())

    def to_numpy(self, array: Any) -> np.ndarray[Any, Any]:
        """A tensor's copy in the host's memory."""
        self.wait()
        host = array.cpu()
        if host.dtype == self._torch.bfloat16:  # which torch does not give to NumPy
            bits: np.ndarray[Any, Any] = host.contiguous().view(self._torch.int16).numpy()
            return bits.view(numpy_dtype("bfloat16"))
        values: np.ndarray[Any, Any] = host.numpy()
        return values

    def to_torch(self, array: Any) -> Any:
        """The tensor itself."""
        return array

    def context(self) -> Any:
        """The core's context on this object's stream."""
        return self._context.on(self._stream)

    def active(self) -> AbstractContextManager[Any]:
        """Makes the stream this thread's current one."""
        manager: AbstractContextManager[Any] = self._torch.cuda.stream(self._stream)
        return manager

    def wait(self) -> None:
        """Blocks until the stream is empty."""
        self._stream.synchronize()

    def sampler(self, run: Callable[[], object]) -> Sampler:
        """A sampler between events, with the device held up until all runs are queued.

        Otherwise the host's own time would be measured wherever a run takes less than queuing it.
        """

        def sample(repeats: int) -> float:
            while True:
                start, end = (self._torch.cuda.Event(enable_timing=True) for _ in range(2))
                self._torch.cuda._sleep(self._cycles)
                start.record(self._stream)
                for _ in range(repeats):
                    run()
                has_begun = start.query()
                end.record(self._stream)
                end.synchronize()
                if not has_begun or self._cycles >= _MOST_CYCLES:
                    return float(start.elapsed_time(end)) * 1e-3 / repeats
                self._cycles *= 2

        return sample


def memory_of(device: str) -> Memory:
    """The memory of `"cpu"` or of the first GPU, `"cuda"`.

    Raises:
        UnavailableError: there is no such device, or no engine for it, or for `"cuda"` no torch.
    """
    return HostMemory() if device == "cpu" else CudaMemory()
