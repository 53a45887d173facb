"""Single convolutions: stock, tuned and the engine alone, in turn, with their results compared."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field
from typing import Any, TypedDict

import numpy as np

from keras_tunedconv.bench.engine import EngineCall, random_arrays
from keras_tunedconv.bench.problem import Problem
from keras_tunedconv.bench.timing import Sampler, Timing, geometric_mean, race, sampler
from keras_tunedconv.core import registry
from keras_tunedconv.core.config import config
from keras_tunedconv.core.descriptor import Direction

STOCK, FRAMEWORK, TUNED, ENGINE, ENGINE_DEFAULT = "stock", "framework", "tuned", "engine", "engine_default"


class ConvReport(TypedDict):
    """What `run` returns, and the JSON of `keras-tunedconv bench conv`."""

    backend: str
    results: list[dict[str, Any]]
    geometric_means: dict[str, float]


@dataclass
class ConvResult:
    """One direction of one problem.

    Args:
        problem: The problem's line.
        direction: `"forward"`, `"backward_data"` or `"backward_filter"`.
        mode: How the framework ran it; `"engine"` where no framework took part.
        milliseconds: Contender to median milliseconds of one run.
        spread: Contender to interquartile range over median.
        algorithm: Name of the engine's fastest algorithm for it.
        difference: Largest absolute difference between tuned and stock, over stock's largest value; `None`
            where only the engine ran.
        stock_over_tuned: How many times faster tuned is than stock.
        framework_over_tuned: The same against the framework's own op, where Keras does not call it.
        tuned_over_engine: Tuned time over that of the engine's fastest algorithm called directly.
    """

    problem: str
    direction: Direction
    mode: str
    milliseconds: dict[str, float]
    spread: dict[str, float]
    algorithm: str = ""
    difference: float | None = None
    stock_over_tuned: float | None = field(init=False)
    framework_over_tuned: float | None = field(init=False)
    tuned_over_engine: float | None = field(init=False)

    def __post_init__(self) -> None:
        self.stock_over_tuned = self._ratio(STOCK, TUNED)
        self.framework_over_tuned = self._ratio(FRAMEWORK, TUNED)
        self.tuned_over_engine = self._ratio(TUNED, ENGINE)

    def _ratio(self, above: str, below: str) -> float | None:
        if above not in self.milliseconds or below not in self.milliseconds:
            return None
        return self.milliseconds[above] / self.milliseconds[below]


def relative_difference(value: np.ndarray[Any, Any], expected: np.ndarray[Any, Any]) -> float:
    """Largest absolute difference over the largest expected magnitude; infinite where a value is NaN."""
    difference = float(np.max(np.abs(value - expected)))
    return (
        difference / max(float(np.max(np.abs(expected))), 1e-300) if math.isfinite(difference) else math.inf
    )


def measure(problem: Problem, direction: Direction, mode: str, *, seconds: float = 3.0) -> ConvResult:
    """Time one direction of one problem.

    Args:
        problem: The convolution.
        direction: Its direction.
        mode: One of the backend's modes (`contenders.MODES`), or `"engine"` to leave the framework out.
        seconds: About how long the timed rounds take.

    Raises:
        ValueError: the backend has no such mode.
        RuntimeError: the tuned op cannot run it.
    """
    arrays = random_arrays(problem)
    samplers: dict[str, Sampler] = {}
    difference = None
    if mode != "engine":
        samplers, difference = _framework_contenders(problem, direction, mode, arrays)
    engine = EngineCall(problem, direction, arrays) if _on_cpu(mode) else None
    algorithm = ""
    if engine is not None:
        algorithm = engine.best()
        samplers[ENGINE] = engine.sampler(algorithm)
        default = engine.candidates()[0]
        if mode == "engine" and default != algorithm:
            samplers[ENGINE_DEFAULT] = engine.sampler(default)
    return _result(problem, direction, mode, race(samplers, seconds), algorithm, difference)


def _on_cpu(mode: str) -> bool:
    if mode == "engine":
        return True
    from keras_tunedconv.bench import contenders

    return contenders.on_cpu()


def _framework_contenders(
    problem: Problem, direction: Direction, mode: str, arrays: tuple[Any, Any, Any]
) -> tuple[dict[str, Sampler], float]:
    from keras_tunedconv.bench import contenders

    convolutions = {STOCK: contenders.stock(problem), TUNED: contenders.tuned(problem)}
    own = contenders.framework(problem)
    if own is not None and mode != "xla":
        convolutions[FRAMEWORK] = own
    calls = {name: contenders.prepare(c, direction, mode, arrays) for name, c in convolutions.items()}
    # Each case is tuned with the default budget a key, however many were tuned before it.
    registry.clear()
    with config.override(process_budget=1e6, batch_policy="exact"):
        value = calls[TUNED].result()
    counts = registry.stats()
    if counts["measured"] + counts["hits"] + counts["defaults"] == 0:
        raise RuntimeError(
            f"The tuned op ran {problem.text} {direction} past the engine, so nothing is timed. "
            "`keras-tunedconv doctor` says what is missing."
        )
    difference = relative_difference(value, calls[STOCK].result())
    if mode == "graph":
        calls = {
            name: contenders.lengthen(call, convolutions[name], direction, arrays)
            for name, call in calls.items()
        }
    return {name: sampler(call.run, call.wait, call.length) for name, call in calls.items()}, difference


def _result(
    problem: Problem,
    direction: Direction,
    mode: str,
    timings: dict[str, Timing],
    algorithm: str,
    difference: float | None,
) -> ConvResult:
    return ConvResult(
        problem=problem.text,
        direction=direction,
        mode=mode,
        milliseconds={name: timing.median * 1e3 for name, timing in timings.items()},
        spread={name: timing.spread for name, timing in timings.items()},
        algorithm=algorithm,
        difference=difference,
    )


def run(
    problems: Iterable[Problem],
    directions: Iterable[Direction],
    modes: Iterable[str],
    *,
    seconds: float = 3.0,
    progress: Callable[[ConvResult], None] | None = None,
) -> ConvReport:
    """Time problems in all directions and modes.

    Args:
        problems: The convolutions.
        directions: Directions to time.
        modes: Modes of the active backend, or `"engine"`.
        seconds: About how long the timed rounds of each take.
        progress: Called with each result as it comes.

    Returns:
        All results, and the geometric mean of each ratio.
    """
    modes, directions = list(modes), list(directions)
    results = []
    for problem in problems:
        for direction in directions:
            for mode in modes:
                result = measure(problem, direction, mode, seconds=seconds)
                results.append(result)
                if progress is not None:
                    progress(result)
    return ConvReport(
        backend=_backend(modes),
        results=[asdict(r) for r in results],
        geometric_means=geometric_means(results),
    )


def _backend(modes: list[str]) -> str:
    if set(modes) <= {"engine"}:
        return "none"
    import keras

    return str(keras.backend.backend())


def geometric_means(results: list[ConvResult]) -> dict[str, float]:
    """Geometric mean of each ratio over the results that have it."""
    means = {}
    for name in ("stock_over_tuned", "framework_over_tuned", "tuned_over_engine"):
        values = [getattr(result, name) for result in results if getattr(result, name) is not None]
        if values:
            means[name] = geometric_mean(values)
    return means
