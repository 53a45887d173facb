"""A whole Keras model, stock and tuned in one process, in turn, with the data on the device."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import asdict, replace
from typing import Any, TypedDict

import keras
import numpy as np

from keras_tunedconv.bench import contenders, worker
from keras_tunedconv.bench.model import VARIANTS, Job
from keras_tunedconv.core import registry

# Seconds of one step, from several.
Steps = Callable[[keras.Model, int], float]


class TogetherReport(TypedDict):
    """What `run` returns, and the JSON of `keras-tunedconv bench together`.

    Times are by variant. `step_seconds` are medians of `rounds`, `median_ratio` is that of stock over tuned
    within a round. `measured` and `tuning_seconds` are about the tuned model's first steps.
    """

    backend: str
    device: str
    job: dict[str, Any]
    method: str
    first_step_seconds: dict[str, float]
    step_seconds: dict[str, float]
    rounds: dict[str, list[float]]
    median_ratio: float
    measured: int
    tuning_seconds: float
    losses: dict[str, float]


def run(
    job: Job,
    *,
    rounds: int = 8,
    warm_up_steps: int = 30,
    progress: Callable[[dict[str, float]], None] = lambda _: None,
) -> TogetherReport:
    """Train both variants of a model under the active backend, some steps of one and then of the other.

    Each goes first every second time. What a process does once, such as opening libraries, falls on the first
    step of the tuned one.

    Args:
        job: What to run; its variant is replaced, and `steps` is how many a round has.
        rounds: How often each variant's turn comes.
        warm_up_steps: Steps of each between its first one and the rounds.
        progress: Called with the milliseconds of a step after each round.
    """
    registry.clear()
    _let_memory_grow()
    models = {variant: worker.build(replace(job, variant=variant)) for variant in VARIANTS}
    steps, method = _steps(*_data(job))
    first: dict[str, float] = {}
    for variant in reversed(VARIANTS):
        first[variant] = steps(models[variant], 1)
        steps(models[variant], warm_up_steps)
        if variant == "tuned":
            stats = registry.stats()
    samples: dict[str, list[float]] = {variant: [] for variant in VARIANTS}
    for number in range(rounds):
        for variant in VARIANTS if number % 2 else reversed(VARIANTS):
            samples[variant].append(steps(models[variant], job.steps))
        progress({variant: seconds[-1] * 1e3 for variant, seconds in samples.items()})
    return TogetherReport(
        backend=keras.backend.backend(),
        device="cpu" if contenders.on_cpu() else "gpu",
        job=asdict(job),
        method=method,
        first_step_seconds=first,
        step_seconds={variant: statistics.median(seconds) for variant, seconds in samples.items()},
        rounds=samples,
        median_ratio=statistics.median(
            s / t for s, t in zip(samples["stock"], samples["tuned"], strict=True)
        ),
        measured=stats["measured"],
        tuning_seconds=stats["tuning_seconds"],
        losses={variant: _loss(model) for variant, model in models.items()},
    )


def _let_memory_grow() -> None:
    """Leave TensorFlow's GPU memory to what else runs in the process, as the other backends can."""
    if keras.backend.backend() != "tensorflow":
        return
    import tensorflow as tf

    for gpu in tf.config.list_physical_devices("GPU"):
        with suppress(RuntimeError):  # it is in use already
            tf.config.experimental.set_memory_growth(gpu, True)


def _data(job: Job) -> tuple[Any, Any]:
    """A batch on the device."""
    x, y = worker.data(job)
    y = y.astype("int32") if y.dtype.kind == "i" else y
    return keras.ops.convert_to_tensor(x), keras.ops.convert_to_tensor(y)


def _steps(x: Any, y: Any) -> tuple[Steps, str]:
    """How the active backend trains on what lies on the device, without carrying it through the host.

    JAX's `train_on_batch` carries the model's state in and out each time, which `fit` does once. TensorFlow's
    `fit` carries a generator's data through the host.
    """

    def batches() -> Iterator[tuple[Any, Any]]:
        while True:
            yield x, y

    def fit(model: keras.Model, count: int) -> float:
        start = time.perf_counter()
        model.fit(batches(), steps_per_epoch=count, epochs=1, verbose=0)
        return (time.perf_counter() - start) / count

    def train_on_batch(model: keras.Model, count: int) -> float:
        seconds, _ = worker.timed(lambda: model.train_on_batch(x, y), count)
        return statistics.median(seconds)

    return (fit, "fit") if keras.backend.backend() == "jax" else (train_on_batch, "train_on_batch")


def _loss(model: keras.Model) -> float:
    """The loss that the last steps reported."""
    return float(np.ravel(keras.ops.convert_to_numpy(model.get_metrics_result()["loss"]))[0])
