"""Measuring a model's convolutions ahead of its use, without data."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from time import monotonic
from typing import Any

import keras

from keras_tunedconv.bridges import BACKENDS
from keras_tunedconv.core import registry
from keras_tunedconv.core.config import config
from keras_tunedconv.core.descriptor import DIRECTIONS, Direction
from keras_tunedconv.core.errors import emit_pending_warnings
from keras_tunedconv.eager import EagerConvolution
from keras_tunedconv.layers.keras_internals import flatten_layers
from keras_tunedconv.tuning.cache import TuningCache
from keras_tunedconv.tuning.describe import stdout_console
from keras_tunedconv.tuning.entries import Trace

# The least a key is given; the default and one rival are tried all the same.
_SHORTEST_SECONDS = 1e-3
_ENDLESS = 1e5


@dataclass(frozen=True)
class WarmUp:
    """What a warm-up did.

    Args:
        measured: Keys that were measured.
        known: Keys that were stored already.
        left: Keys that the budget left unmeasured.
        unsupported: Convolutions and directions that no tuned engine can run.
        seconds: Wall time of it all.
    """

    measured: int
    known: int
    left: int
    unsupported: int
    seconds: float


def warm_up(
    model: Any,
    batch_sizes: Sequence[int],
    *,
    directions: Iterable[Direction] = DIRECTIONS,
    input_shape: Any = None,
    budget: float | None = None,
    show: bool = True,
) -> WarmUp:
    """Measure every convolution of a model for some batch sizes, without training data.

    The model runs once on zeros with a batch of one, which tells the shapes; then each of its convolutions
    is measured on random tensors, on the backend's default device. What is stored already is not measured
    again. The entries go into the layers, and with them into the file the model is saved to, also when
    Ctrl-C ends it early.

    Args:
        model: A built model with `TunedConv2D` layers.
        batch_sizes: The batch sizes, as the device sees them.
        directions: Which of `"forward"`, `"backward_data"` and `"backward_filter"`; for inference
            `["forward"]`.
        input_shape: Shape of the input without the batch, or a structure of such shapes as the model takes
            them, for models that do not tell it or leave dims open.
        budget: Seconds for everything together, shared evenly among what is left to measure; `None` for
            `config.key_budget` each.
        show: Whether to show a progress bar with an estimate of the time left.

    Returns:
        A `WarmUp` with counts.

    Raises:
        ValueError: a batch size, direction or budget is invalid, the shapes are unknown, or the model has
            no tuned layer; the message says what is expected.

    Example:

    ```python
    keras_tunedconv.warm_up(model, [32, 64], budget=60)
    model.save("model.keras")
    ```
    """
    started = monotonic()
    sizes, wanted = _sizes(batch_sizes), _directions(directions)
    if budget is not None and not (budget > 0 and math.isfinite(budget)):
        raise ValueError(f"budget must be a finite number of seconds above 0. Received: budget={budget!r}")
    caches = [layer.tuning for layer in flatten_layers(model) if _is_tuned(layer)]
    if not caches:
        raise ValueError(
            "Expected a model with TunedConv2D layers, got one without; "
            "keras_tunedconv.to_tuned(model) makes one."
        )
    if keras.backend.backend() not in BACKENDS:
        raise ValueError(
            f"Warming up needs one of the backends {BACKENDS}. Received: {keras.backend.backend()!r}"
        )
    tasks = _tasks(_problems(model, caches, input_shape), sizes, wanted)
    before = registry.stats()
    try:
        left, unsupported = _run(tasks, None if budget is None else started + budget, show)
    finally:
        for cache in caches:
            cache.collect()
        emit_pending_warnings(stacklevel=3)
    measured = registry.stats()["measured"] - before["measured"]
    known = max(len(tasks) - measured - left - unsupported, 0)
    return WarmUp(measured, known, left, unsupported, monotonic() - started)


def _is_tuned(layer: Any) -> bool:
    return isinstance(getattr(layer, "tuning", None), TuningCache)


def _sizes(batch_sizes: Any) -> list[int]:
    sizes = [batch_sizes] if isinstance(batch_sizes, int) else list(batch_sizes)
    if not sizes or any(type(size) is not int or size < 1 for size in sizes):
        raise ValueError(f"batch_sizes must be integers of at least 1. Received: batch_sizes={batch_sizes!r}")
    return list(dict.fromkeys(sizes))


def _directions(directions: Iterable[Direction] | str) -> list[Direction]:
    named = {directions} if isinstance(directions, str) else set(directions)
    if not named or not named <= set(DIRECTIONS):
        raise ValueError(f"directions must be some of {DIRECTIONS}. Received: directions={directions!r}")
    return [direction for direction in DIRECTIONS if direction in named]


# ---- what there is to measure ---------------------------------------------------------------------------


def _problems(model: Any, caches: list[TuningCache], input_shape: Any) -> list[Trace]:
    """The shapes and arguments that the layers' convolutions have for a batch of one, each once."""
    before = [cache.exchange_traces(set()) for cache in caches]
    try:
        with config.override(mode="heuristic"):
            model(_inputs(model, input_shape), training=False)
    finally:
        found = [cache.exchange_traces(set()) for cache in caches]
        for cache, old, new in zip(caches, before, found, strict=True):
            cache.exchange_traces(old | new)
    return list(dict.fromkeys(trace for traces in found for trace in sorted(traces, key=repr)))


def _inputs(model: Any, input_shape: Any) -> Any:
    """Zeros of the model's inputs for a batch of one."""
    if input_shape is not None:
        return _map_shapes(input_shape)
    inputs = getattr(model, "inputs", None)
    if not inputs:
        raise ValueError(
            "The model does not tell the shape of its input: pass input_shape, without the batch."
        )
    structure = inputs[0] if len(inputs) == 1 else model.input
    for each in inputs:
        if None in each.shape[1:]:
            raise ValueError(
                f"Input {each.name!r} has shape {each.shape}: pass input_shape, without the batch and "
                "with every dim known."
            )
    return keras.tree.map_structure(lambda each: keras.ops.zeros((1, *each.shape[1:]), each.dtype), structure)


def _map_shapes(shapes: Any) -> Any:
    if isinstance(shapes, dict):
        return {name: _map_shapes(shape) for name, shape in shapes.items()}
    if all(type(dim) is int for dim in shapes):
        return keras.ops.zeros((1, *shapes))
    return [_map_shapes(shape) for shape in shapes]


@dataclass(frozen=True)
class _Task:
    """One direction of one convolution."""

    problem: Trace
    batch_size: int
    direction: Direction


def _tasks(problems: list[Trace], sizes: list[int], directions: list[Direction]) -> list[_Task]:
    return [
        _Task(problem, size, direction) for size in sizes for problem in problems for direction in directions
    ]


# ---- measuring ------------------------------------------------------------------------------------------


def _run(tasks: list[_Task], deadline: float | None, show: bool) -> tuple[int, int]:
    """Run the tasks until the deadline; gives how many it left, and how many cannot run."""
    from rich.progress import Progress, TimeElapsedColumn, TimeRemainingColumn

    columns = (*Progress.get_default_columns()[:-1], TimeElapsedColumn(), TimeRemainingColumn())
    unsupported = 0
    with Progress(*columns, console=stdout_console(), disable=not show) as progress:
        bar = progress.add_task("measuring", total=len(tasks))
        for done, task in enumerate(tasks):
            seconds = _ENDLESS if deadline is None else deadline - monotonic()
            if seconds <= 0:
                return len(tasks) - done, unsupported
            unsupported += not _run_task(task, seconds, len(tasks) - done)
            progress.advance(bar)
    return 0, unsupported


def _run_task(task: _Task, seconds: float, tasks_left: int) -> bool:
    arguments = dict(task.problem)
    first, *rest = arguments.pop("x_shape")
    made = EagerConvolution((first * task.batch_size, *rest), arguments.pop("kernel_shape"), **arguments)
    settings = {
        "mode": "refresh" if config.mode == "refresh" else "search",
        "batch_policy": "exact",
        "key_budget": min(config.key_budget, max(seconds / tasks_left, _SHORTEST_SECONDS)),
        "process_budget": registry.stats()["tuning_seconds"] + seconds,
    }
    with config.override(**settings):
        return made.run(task.direction)
