"""Whole Keras models, stock and tuned, each in a fresh process, in turn."""

from __future__ import annotations

import json
import os
import statistics
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, TypedDict

from keras_tunedconv.bench import process

VARIANTS = ("stock", "tuned")
COMPILE_MODES: dict[str, dict[str, Any]] = {
    "auto": {"jit_compile": "auto"},
    "graph": {"jit_compile": False},
    "xla": {"jit_compile": True},
    "eager": {"run_eagerly": True, "jit_compile": False},
}


@dataclass(frozen=True)
class Job:
    """What one process trains and measures.

    Args:
        model: One of `models.MODELS`.
        variant: `"stock"` or `"tuned"`.
        batch: Images a step.
        size: Height and width of the images.
        compile_mode: One of `COMPILE_MODES`.
        dtype_policy: Keras dtype policy, such as `"float32"` or `"mixed_float16"`.
        steps: Steps after the first one.
        predict: Whether to time `predict_on_batch` too.
        tune: `False` measures no algorithms.
        load: Weights file, stock or tuned, loaded before the first step; `""` for none.
        save: Weights file written at the end with its tuning; `""` for none.
    """

    model: str
    variant: str
    batch: int = 8
    size: int = 224
    compile_mode: str = "auto"
    dtype_policy: str = "float32"
    steps: int = 10
    predict: bool = True
    tune: bool = True
    load: str = ""
    save: str = ""


@dataclass
class JobResult:
    """What one process found.

    Args:
        first_step_seconds: The first `train_on_batch`: tracing, compiling and measuring algorithms included.
        step_seconds: Each later step.
        predict_seconds: Each `predict_on_batch` after the first.
        first_predict_seconds: The first one.
        peak_first_bytes: Most memory resident up to the end of the first step.
        peak_step_bytes: Most memory resident during the later steps.
        loss: Loss of the last step.
        stats: `keras_tunedconv.stats()` at the end.
        device: What it ran on.
    """

    first_step_seconds: float
    step_seconds: list[float]
    predict_seconds: list[float] = field(default_factory=list)
    first_predict_seconds: float = 0.0
    peak_first_bytes: int = 0
    peak_step_bytes: int = 0
    loss: float = 0.0
    stats: dict[str, float] = field(default_factory=dict)
    device: str = "cpu"

    @property
    def steady_seconds(self) -> float:
        """Median of the later steps."""
        return statistics.median(self.step_seconds)


class ModelReport(TypedDict):
    """What `compare` returns, and the JSON of `keras-tunedconv bench model`."""

    backend: str
    job: dict[str, Any]
    stock: dict[str, Any]
    tuned: dict[str, Any]
    runs: list[dict[str, Any]]
    step_speedup: float
    predict_speedup: float | None
    peak_ratio: float


def run_job(job: Job, *, backend: str | None = None, environment: dict[str, str] | None = None) -> JobResult:
    """Run a job in a fresh process.

    Args:
        job: What to run.
        backend: Keras backend; the active one unless given.
        environment: Variables added to this process's.

    Raises:
        RuntimeError: the process failed; the message ends with what it wrote.
    """
    with tempfile.TemporaryDirectory() as folder:
        answer = Path(folder) / "result.json"
        variables = {**os.environ, **(environment or {})}
        variables.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
        if backend is not None:
            variables["KERAS_BACKEND"] = backend
        command = [sys.executable, "-m", "keras_tunedconv.bench.worker", json.dumps(asdict(job)), str(answer)]
        process.run(command, f"The process of {job}", variables=variables, answer=answer)
        return JobResult(**json.loads(answer.read_text()))


def compare(
    job: Job,
    *,
    rounds: int = 2,
    backend: str | None = None,
    progress: Callable[[str, JobResult], None] | None = None,
) -> ModelReport:
    """Run stock and tuned in turn, each in a fresh process.

    Args:
        job: What to run; its variant is replaced.
        rounds: How many processes of each variant.
        backend: Keras backend; the active one unless given.
        progress: Called with the variant and result of each process.

    Returns:
        Medians over the rounds, every single run, and the ratios of stock over tuned.
    """
    runs: list[tuple[str, JobResult]] = []
    for _ in range(rounds):
        for variant in VARIANTS:
            result = run_job(Job(**{**asdict(job), "variant": variant}), backend=backend)
            runs.append((variant, result))
            if progress is not None:
                progress(variant, result)
    medians = {v: summary([r for name, r in runs if name == v]) for v in VARIANTS}
    stock, tuned = medians["stock"], medians["tuned"]
    return ModelReport(
        backend=backend or os.environ.get("KERAS_BACKEND", ""),
        job=asdict(job),
        stock=stock,
        tuned=tuned,
        runs=[{"variant": v, **asdict(r)} for v, r in runs],
        step_speedup=stock["step_seconds"] / tuned["step_seconds"],
        predict_speedup=stock["predict_seconds"] / tuned["predict_seconds"] if job.predict else None,
        peak_ratio=tuned["peak_step_bytes"] / stock["peak_step_bytes"],
    )


def summary(results: Sequence[JobResult]) -> dict[str, Any]:
    """Medians over runs of one variant; samples of all runs are pooled."""

    def pooled(name: str) -> float | None:
        samples = [s for r in results for s in getattr(r, name)]
        return statistics.median(samples) if samples else None

    def median(name: str) -> float:
        return float(statistics.median(getattr(r, name) for r in results))

    return {
        "first_step_seconds": median("first_step_seconds"),
        "step_seconds": pooled("step_seconds"),
        "first_predict_seconds": median("first_predict_seconds"),
        "predict_seconds": pooled("predict_seconds"),
        "peak_first_bytes": median("peak_first_bytes"),
        "peak_step_bytes": median("peak_step_bytes"),
        "tuning_seconds": statistics.median(r.stats.get("tuning_seconds", 0.0) for r in results),
        "measured": max(r.stats.get("measured", 0) for r in results),
    }
