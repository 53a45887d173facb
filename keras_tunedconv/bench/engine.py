"""The engine called directly, without a framework: the bar for the tuned op."""

from __future__ import annotations

from typing import Any

import numpy as np

from keras_tunedconv.bench.problem import Problem
from keras_tunedconv.bench.timing import Sampler
from keras_tunedconv.core import engines
from keras_tunedconv.core.descriptor import Direction
from keras_tunedconv.core.errors import TunedConvError

_FINALISTS = 3


def random_arrays(problem: Problem, seed: int = 0) -> tuple[Any, Any, Any]:
    """Input, kernel and output gradient of a problem, normally distributed, in their layouts."""
    generator = np.random.default_rng(seed)
    y_dims = problem.descriptor().y_dims
    batch, filters, *spatial = y_dims
    last = problem.layout == "channels_last"
    y_shape = (batch, *spatial, filters) if last else y_dims
    shapes = (problem.x_shape, problem.kernel_shape, y_shape)
    dtype = numpy_dtype(problem.dtype)
    x, w, dy = (generator.standard_normal(shape, dtype="float32").astype(dtype) for shape in shapes)
    return x, w, dy


def numpy_dtype(name: str) -> Any:
    """The dtype of a name, `"bfloat16"` included."""
    if name == "bfloat16":
        import ml_dtypes

        return ml_dtypes.bfloat16
    return np.dtype(name)


class EngineCall:
    """One direction of a problem, run by the CPU's engine on plain tensors.

    Args:
        problem: The convolution.
        direction: Its direction.
        arrays: Input, kernel and output gradient; they are copied.
    """

    def __init__(self, problem: Problem, direction: Direction, arrays: tuple[Any, Any, Any]) -> None:
        self.descriptor = problem.descriptor(direction)
        self._arrays = [array.copy() for array in arrays]
        self._result = self._arrays[{"forward": 2, "backward_data": 0, "backward_filter": 1}[direction]]

    def candidates(self) -> list[str]:
        """The algorithms worth timing, the library's default first.

        Plain reference loops run for minutes on ordinary shapes and are left out unless alone.
        """
        names = engines.candidates(self.descriptor)
        return [name for name in names if "ref" not in name] or names[:1]

    def sampler(self, algorithm: str) -> Sampler:
        """A sampler of one algorithm, timed inside the core."""
        x, w, y = self._arrays
        return lambda repeats: engines.run_algorithm(self.descriptor, x, w, y, algorithm, repeats)

    def result(self, algorithm: str) -> np.ndarray[Any, Any]:
        """What an algorithm computes, in float64."""
        x, w, y = self._arrays
        engines.run_algorithm(self.descriptor, x, w, y, algorithm)
        return np.array(self._result, dtype="float64")

    def best(self) -> str:
        """The fastest algorithm: every candidate once, then the three fastest again.

        Raises:
            TunedConvError: no candidate runs.
        """
        seconds: dict[str, float] = {}
        failure: TunedConvError | None = None
        for name in self.candidates():
            try:
                seconds[name] = self.sampler(name)(1)
            except TunedConvError as error:
                failure = error
        if not seconds:
            raise failure or TunedConvError(f"The engine has no algorithm for {self.descriptor.key}")
        finalists = sorted(seconds, key=lambda name: seconds[name])[:_FINALISTS]
        if len(finalists) == 1:
            return finalists[0]
        again = {name: min(self.sampler(name)(3) for _ in range(3)) for name in finalists}
        return min(again, key=lambda name: again[name])
