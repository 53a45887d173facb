"""What tuning costs beside the convolutions themselves: imports, calls, look-ups, first steps, file size."""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any, TypedDict

from keras_tunedconv.bench.engine import EngineCall, random_arrays
from keras_tunedconv.bench.model import Job, JobResult, run_job
from keras_tunedconv.bench.problem import Problem
from keras_tunedconv.bench.timing import race, sampler
from keras_tunedconv.core import engines
from keras_tunedconv.core.errors import check
from keras_tunedconv.core.library import ffi, lib

# Small enough that what is measured is the way to the engine, not the engine.
TINY = Problem(batch=1, channels=8, size=(4, 4), filters=8, kernel=(1, 1))
_CHAIN = 64

# What importing Keras left for the garbage collector is not collected on the package's account.
_IMPORTS = """
import gc, time, keras
gc.collect()
start = time.perf_counter()
from keras_tunedconv import TunedConv2D, TuningCallback
print(time.perf_counter() - start)
"""


class CallReport(TypedDict):
    """Microseconds of one call of the smallest convolution inside a compiled step."""

    backend: str
    tuned_us: float
    stock_us: float
    engine_us: float
    beyond_engine_us: float


class TuningReport(TypedDict):
    """What tuning a whole model costs, once and when its file is loaded."""

    backend: str
    model: str
    batch: int
    tuning_seconds: float
    keys_measured: int
    file_bytes_added: int
    keys_measured_with_file: int
    first_step_cold_seconds: float
    first_step_with_file_seconds: float
    first_step_untuned_seconds: float


class CacheReport(TypedDict):
    """First steps of fresh processes whose JAX programs lie in its persistent compilation cache."""

    model: str
    batch: int
    first_step_stock_seconds: float
    first_step_tuned_seconds: float


def import_seconds(rounds: int = 5) -> float:
    """Seconds that importing layer and callback adds to `import keras`; median of fresh processes."""
    samples = []
    for _ in range(rounds):
        output = subprocess.run([sys.executable, "-c", _IMPORTS], capture_output=True, text=True, check=True)
        samples.append(float(output.stdout.split()[-1]))
    return statistics.median(samples)


def lookup_seconds(problem: Problem = TINY) -> float:
    """Seconds of one look-up of a known key in the core, among the keys this process has run."""
    descriptor = problem.descriptor()
    engines.convolve(descriptor, *random_arrays(problem))
    seconds = ffi.new("double *")
    check(lib.tc_time_lookup(descriptor.to_c(), lib.TC_CPU, 0, 1_000_000, seconds))
    return float(seconds[0])


def call(problem: Problem = TINY, *, seconds: float = 3.0) -> CallReport:
    """The cost of a call under the active backend, beyond the engine's own run.

    A step with a chain of convolutions is timed against the same step with none, so that the cost of
    starting a step from Python cancels out. The engine's run is timed inside the core.

    Args:
        problem: A convolution whose output has the shape of its input.
        seconds: About how long the timed rounds take.
    """
    import keras

    from keras_tunedconv.bench import contenders

    backend = keras.backend.backend()
    arrays = random_arrays(problem)
    engine = EngineCall(problem, "forward", arrays)
    samplers = {"engine": engine.sampler(engine.best())}
    for name, convolution in (("tuned", contenders.tuned(problem)), ("stock", contenders.stock(problem))):
        for length in (_CHAIN, 0):
            chained = contenders.prepare(
                _chain(convolution, length), "forward", contenders.MODES[backend][0], arrays
            )
            samplers[f"{name} {length}"] = sampler(chained.run, chained.wait)
    medians = {name: timing.median * 1e6 for name, timing in race(samplers, seconds).items()}
    tuned, stock = ((medians[f"{n} {_CHAIN}"] - medians[f"{n} 0"]) / _CHAIN for n in ("tuned", "stock"))
    return CallReport(
        backend=backend,
        tuned_us=tuned,
        stock_us=stock,
        engine_us=medians["engine"],
        beyond_engine_us=tuned - medians["engine"],
    )


def _chain(convolution: Any, length: int) -> Any:
    def run(x: Any, w: Any) -> Any:
        y = x + 1.0
        for _ in range(length):
            y = convolution(y, w)
        return y

    return run


def tuning(model: str = "resnet50", batch: int = 8, *, rounds: int = 3, backend: str) -> TuningReport:
    """Tune a model cold, save it, and start it again with and without its file, each in a fresh process.

    Args:
        model: One of `models.MODELS`.
        batch: Images a step.
        rounds: Processes for each of the two warm starts, in turn.
        backend: Keras backend.
    """
    with tempfile.TemporaryDirectory() as folder:
        stock_file, tuned_file = _files(folder)
        job = _short_job(model, batch)
        run_job(replace(job, variant="stock", save=stock_file), backend=backend)
        cold = run_job(replace(job, save=tuned_file), backend=backend)
        warm: list[JobResult] = []
        untuned: list[JobResult] = []
        for _ in range(rounds):
            warm.append(run_job(replace(job, load=tuned_file), backend=backend))
            untuned.append(run_job(replace(job, load=stock_file, tune=False), backend=backend))
        added = Path(tuned_file).stat().st_size - Path(stock_file).stat().st_size
    return TuningReport(
        backend=backend,
        model=model,
        batch=batch,
        tuning_seconds=cold.stats["tuning_seconds"],
        keys_measured=int(cold.stats["measured"]),
        file_bytes_added=added,
        keys_measured_with_file=max(int(r.stats["measured"]) for r in warm),
        first_step_cold_seconds=cold.first_step_seconds,
        first_step_with_file_seconds=statistics.median(r.first_step_seconds for r in warm),
        first_step_untuned_seconds=statistics.median(r.first_step_seconds for r in untuned),
    )


def compilation_cache(model: str = "resnet50", batch: int = 8, *, rounds: int = 3) -> CacheReport:
    """First steps under JAX with a warm compilation cache, stock against tuned with its file, in turn.

    Args:
        model: One of `models.MODELS`.
        batch: Images a step.
        rounds: Processes of each.
    """
    with tempfile.TemporaryDirectory() as folder:
        variables = {
            "JAX_COMPILATION_CACHE_DIR": str(Path(folder) / "cache"),
            "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        }
        stock_file, tuned_file = _files(folder)
        tuned = _short_job(model, batch)
        stock = replace(tuned, variant="stock")
        run_job(replace(stock, save=stock_file), backend="jax", environment=variables)
        run_job(replace(tuned, save=tuned_file), backend="jax", environment=variables)
        warm = {"stock": replace(stock, load=stock_file), "tuned": replace(tuned, load=tuned_file)}
        seconds: dict[str, list[float]] = {name: [] for name in warm}
        for _ in range(rounds):
            for name, job in warm.items():
                result = run_job(job, backend="jax", environment=variables)
                seconds[name].append(result.first_step_seconds)
    return CacheReport(
        model=model,
        batch=batch,
        first_step_stock_seconds=statistics.median(seconds["stock"]),
        first_step_tuned_seconds=statistics.median(seconds["tuned"]),
    )


def _files(folder: str) -> tuple[str, str]:
    return str(Path(folder) / "stock.weights.h5"), str(Path(folder) / "tuned.weights.h5")


def _short_job(model: str, batch: int) -> Job:
    return Job(model=model, variant="tuned", batch=batch, steps=2, predict=False)
