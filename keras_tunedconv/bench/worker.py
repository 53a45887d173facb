"""The process of one `model.Job`: `python -m keras_tunedconv.bench.worker JOB_JSON RESULT_FILE`."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import keras
import numpy as np

import keras_tunedconv
from keras_tunedconv.bench import models
from keras_tunedconv.bench.model import COMPILE_MODES, Job, JobResult

_STATUS = Path("/proc/self/status")
_CLEAR_REFS = Path("/proc/self/clear_refs")


def reset_peak() -> None:
    """Make the peak of resident memory start again at what is resident now (Linux)."""
    try:
        _CLEAR_REFS.write_text("5")
    except OSError:
        return


def peak_bytes() -> int:
    """Most memory resident since the last `reset_peak`, or since the process started; 0 where unknown."""
    try:
        lines = _STATUS.read_text().splitlines()
    except OSError:
        return 0
    line = next((line for line in lines if line.startswith("VmHWM:")), "VmHWM: 0 kB")
    return int(line.split()[1]) * 1024


def build(job: Job) -> keras.Model:
    """The model of a job, compiled."""
    keras.utils.set_random_seed(0)
    keras.config.set_dtype_policy(job.dtype_policy)
    model = models.build(job.model, job.size)
    if job.variant == "tuned":
        model = keras_tunedconv.to_tuned(model)
    loss = "binary_crossentropy" if job.model == "unet" else "sparse_categorical_crossentropy"
    model.compile(optimizer=keras.optimizers.SGD(1e-3), loss=loss, **COMPILE_MODES[job.compile_mode])
    if job.load:
        model.load_weights(job.load)
    return model


def data(job: Job) -> tuple[Any, Any]:
    """One batch of random images and labels."""
    generator = np.random.default_rng(0)
    x = generator.uniform(0, 255, (job.batch, job.size, job.size, 3)).astype("float32")
    if job.model == "unet":
        return x / 255, generator.integers(0, 2, (job.batch, job.size, job.size, 1)).astype("float32")
    return x, generator.integers(0, models.CLASSES, (job.batch,))


def timed(function: Callable[[], Any], times: int) -> tuple[list[float], Any]:
    """Seconds of each of several calls, and what the last one returned, as NumPy."""
    seconds, value = [], None
    for _ in range(times):
        start = time.perf_counter()
        # Converting waits for the device.
        value = np.asarray(function())
        seconds.append(time.perf_counter() - start)
    return seconds, value


def run(job: Job) -> JobResult:
    """Build, train, predict and measure."""
    keras_tunedconv.config.tune = job.tune
    model = build(job)
    x, y = data(job)
    (first,), _ = timed(lambda: model.train_on_batch(x, y), 1)
    result = JobResult(first_step_seconds=first, step_seconds=[], peak_first_bytes=peak_bytes())
    reset_peak()
    result.step_seconds, loss = timed(lambda: model.train_on_batch(x, y), job.steps)
    result.peak_step_bytes = peak_bytes()
    result.loss = float(np.ravel(loss)[0])
    if job.predict:
        (result.first_predict_seconds,), _ = timed(lambda: model.predict_on_batch(x), 1)
        result.predict_seconds, _ = timed(lambda: model.predict_on_batch(x), job.steps)
    result.stats = dict(keras_tunedconv.stats())  # type: ignore[arg-type]
    result.device = _device()
    if job.save:
        model.save_weights(job.save)
    return result


def _device() -> str:
    from keras_tunedconv.bench import contenders

    return "cpu" if contenders.on_cpu() else "gpu"


def main() -> None:
    """Run the job named on the command line and write its result."""
    job = Job(**json.loads(sys.argv[1]))
    Path(sys.argv[2]).write_text(json.dumps(asdict(run(job))))


if __name__ == "__main__":
    main()
