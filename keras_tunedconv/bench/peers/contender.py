"""One way to run a direction of a convolution."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from keras_tunedconv.bench.timing import Sampler


class LeftOutError(RuntimeError):
    """A contender cannot take part; the message says why."""


@dataclass(frozen=True)
class Contender:
    """A prepared convolution.

    Args:
        run: Runs it once to its end and gives its output as the contender has it.
        sample: Its sampler: seconds of the device for one run.
        read: Makes float32 of NumPy of such an output, dims in logical order.
    """

    run: Callable[[], Any]
    sample: Sampler
    read: Callable[[Any], np.ndarray[Any, Any]]

    def within(self, manager: Callable[[], AbstractContextManager[Any]]) -> Contender:
        """The same, run within a new context manager each time."""

        def run() -> Any:
            with manager():
                return self.run()

        def sample(repeats: int) -> float:
            with manager():
                return self.sample(repeats)

        return replace(self, run=run, sample=sample)

    def on(self, executor: Executor) -> Contender:
        """The same, run in an executor's thread."""
        return replace(
            self,
            run=lambda: executor.submit(self.run).result(),
            sample=lambda repeats: executor.submit(self.sample, repeats).result(),
        )
