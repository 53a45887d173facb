"""torch as a contender: with cuDNN's heuristics, and with `torch.backends.cudnn.benchmark` over all plans."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import numpy as np

from keras_tunedconv.bench.peers.contender import Contender, LeftOutError
from keras_tunedconv.bench.peers.operands import Operands, to_logical
from keras_tunedconv.core.descriptor import ConvDescriptor, Direction


class TorchPeer:
    """torch's convolutions.

    torch keeps the plan that it has found for a convolution, by heuristics or by benchmark, in one cache, and
    asks that first: who comes second would run what the first had found. The cache is each thread's own,
    though, and so what benchmark finds is run in another thread.
    """

    def __init__(self) -> None:
        import torch

        self._torch = torch
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="benchmark")

    def heuristics(self, operands: Operands, direction: Direction) -> Contender:
        """The contender with what cuDNN's heuristics name; on CPUs, as torch does it.

        Raises:
            LeftOutError: torch has no padding that gives the output.
        """
        return self._contender(operands, direction, benchmark=False)

    def benchmark(self, operands: Operands, direction: Direction) -> Contender:
        """The contender with the fastest of all of cuDNN's plans, as torch measures them.

        Raises:
            LeftOutError: torch has no padding that gives the output.
        """
        return self._contender(operands, direction, benchmark=True).on(self._thread)

    def _contender(self, operands: Operands, direction: Direction, *, benchmark: bool) -> Contender:
        call, memory = self._call(operands, direction), operands.memory

        def run() -> Any:
            value = call()
            memory.wait()
            return value

        def read(output: Any) -> np.ndarray[Any, Any]:
            array: np.ndarray[Any, Any] = output.float().cpu().numpy()
            return array

        contender = Contender(run, memory.sampler(call), read).within(memory.active)
        return contender.within(lambda: self._settings(benchmark, operands.problem.dtype))

    def _call(self, operands: Operands, direction: Direction) -> Callable[[], Any]:
        torch, descriptor = self._torch, operands.descriptor(direction)
        padding = even_padding(descriptor)
        if padding is None:
            raise LeftOutError("torch pads as much before as after, which does not give this output")
        with operands.memory.active():
            x, w, y = (self._tensor(operands, descriptor, name) for name in ("x", "w", "y"))
        stride, dilation, groups = list(descriptor.stride), list(descriptor.dilation), descriptor.groups
        if direction == "forward":
            return lambda: torch.nn.functional.conv2d(x, w, None, stride, padding, dilation, groups)
        wanted = [direction == "backward_data", direction == "backward_filter", False]
        place = wanted.index(True)
        return lambda: torch.ops.aten.convolution_backward(
            y, x, w, None, stride, padding, dilation, False, [0, 0], groups, wanted
        )[place]

    def _tensor(self, operands: Operands, descriptor: ConvDescriptor, name: str) -> Any:
        """An operand with dims in torch's order; the filter lies in memory as the input does."""
        tensor = operands.memory.to_torch(operands.arrays[name]).permute(to_logical(descriptor, name))
        last = descriptor.x_layout == "channels_last"
        return tensor.contiguous(
            memory_format=self._torch.channels_last if last else self._torch.contiguous_format
        )

    @contextmanager
    def _settings(self, benchmark: bool, dtype: str) -> Iterator[None]:
        cudnn = self._torch.backends.cudnn
        wanted: dict[str, bool | int] = {"benchmark": benchmark}
        if dtype == "float32":  # for half precision too torch then leaves out the engines with tensor cores
            wanted["allow_tf32"] = False
        if cudnn.benchmark_limit is not None:  # a build with CUDA; 0 is no limit
            wanted["benchmark_limit"] = 0
        before = {name: getattr(cudnn, name) for name in wanted}
        try:
            for name, value in wanted.items():
                setattr(cudnn, name, value)
            yield
        finally:
            for name, value in before.items():
                setattr(cudnn, name, value)


def even_padding(descriptor: ConvDescriptor) -> list[int] | None:
    """The least padding before and after each axis that gives the descriptor's output size, or `None`.

    Where the descriptor's own padding is uneven, it computes something else of the same size.
    """
    found = []
    for axis in range(descriptor.spatial_rank):
        size, kernel = descriptor.x_dims[2 + axis], descriptor.w_dims[2 + axis]
        reach = descriptor.dilation[axis] * (kernel - 1) + 1
        before, after = descriptor.pad_before[axis], descriptor.pad_after[axis]
        fitting = (
            padding
            for padding in sorted({before, after})
            if (size + 2 * padding - reach) // descriptor.stride[axis] + 1 == descriptor.y_dims[2 + axis]
        )
        padding = next(fitting, None)
        if padding is None:
            return None
        found.append(padding)
    return found


def computes_the_same(descriptor: ConvDescriptor) -> bool:
    """Whether torch's padding is the descriptor's own."""
    return descriptor.pad_before == descriptor.pad_after
