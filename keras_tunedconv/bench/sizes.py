"""Batches whose image size changes all the time, stock and tuned in turn: seen first, and seen again."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypedDict

import keras
import numpy as np

from keras_tunedconv.bench.model import COMPILE_MODES, VARIANTS
from keras_tunedconv.core import registry
from keras_tunedconv.layers.tuned_conv2d import TunedConv2D

# Heights and widths of the images, a batch of each.
SIZES = tuple(range(64, 224, 4))
PASSES = ("first", "second")
_CLASSES = 10
# Filters and stride of each convolution.
_LAYERS = ((32, 2), (64, 2), (64, 1), (128, 2), (128, 1))


class SizesReport(TypedDict):
    """Seconds of 40 training steps, a step a size, medians over the rounds."""

    backend: str
    batch: int
    sizes: int
    seconds: dict[str, dict[str, float]]
    first_pass_ratio: float
    second_pass_ratio: float
    measured: int
    copied: int
    tuning_seconds: float
    rounds: list[dict[str, Any]]


@dataclass
class Round:
    """What one round found.

    Args:
        seconds: Pass to variant to seconds of all its steps.
        measured: Keys that were measured.
        copied: Keys that ran another size's algorithm.
        tuning_seconds: Seconds of measuring.
    """

    seconds: dict[str, dict[str, float]] = field(default_factory=dict)
    measured: int = 0
    copied: int = 0
    tuning_seconds: float = 0.0


def run(
    *,
    batch: int = 8,
    rounds: int = 3,
    compile_mode: str = "",
    progress: Callable[[Round], None] | None = None,
) -> SizesReport:
    """Train a small network on a batch of each size, then on the same again, under the active backend.

    Stock and tuned take turns within a pass, step by step, and each goes first every second time. Every
    round starts with new models and with nothing known.

    Args:
        batch: Images a batch.
        rounds: How many rounds.
        compile_mode: One of `model.COMPILE_MODES`; `""` for a graph of any size under TensorFlow, where XLA
            would compile anew for each, and for the backend's own otherwise.
        progress: Called with each round.
    """
    backend = keras.backend.backend()
    mode = compile_mode or ("graph" if backend == "tensorflow" else "auto")
    done = []
    for number in range(rounds):
        done.append(_round(batch, mode, number))
        if progress is not None:
            progress(done[-1])
    seconds = {
        name: {v: statistics.median(one.seconds[name][v] for one in done) for v in VARIANTS}
        for name in PASSES
    }
    first, second = (seconds[name]["tuned"] / seconds[name]["stock"] for name in PASSES)
    return SizesReport(
        backend=backend,
        batch=batch,
        sizes=len(SIZES),
        seconds=seconds,
        first_pass_ratio=first,
        second_pass_ratio=second,
        measured=max(one.measured for one in done),
        copied=max(one.copied for one in done),
        tuning_seconds=statistics.median(one.tuning_seconds for one in done),
        rounds=[vars(one) for one in done],
    )


def build(layer_class: type[Any], mode: str) -> keras.Model:
    """A network for images of any size."""
    x = inputs = keras.Input((None, None, 3))
    for filters, stride in _LAYERS:
        x = layer_class(filters, 3, strides=stride, padding="same", activation="relu")(x)
    outputs = keras.layers.Dense(_CLASSES)(keras.layers.GlobalAveragePooling2D()(x))
    model = keras.Model(inputs, outputs)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile("sgd", loss, **COMPILE_MODES[mode])
    return model


def _round(batch: int, mode: str, number: int) -> Round:
    registry.clear()
    before = registry.stats()["tuning_seconds"]
    classes = dict(zip(VARIANTS, (keras.layers.Conv2D, TunedConv2D), strict=True))
    models = {name: build(layer_class, mode) for name, layer_class in classes.items()}
    generator = np.random.default_rng(number)
    labels = generator.integers(0, _CLASSES, batch)
    found = Round()
    for name in PASSES:
        found.seconds[name] = dict.fromkeys(VARIANTS, 0.0)
        for i, size in enumerate(SIZES):
            x = generator.random((batch, size, size, 3), "float32")
            for variant in VARIANTS if (i + number) % 2 == 0 else VARIANTS[::-1]:
                found.seconds[name][variant] += _step_seconds(models[variant], x, labels)
    stats = registry.stats()
    found.measured, found.copied = stats["measured"], stats["copied"]
    found.tuning_seconds = stats["tuning_seconds"] - before
    return found


def _step_seconds(model: keras.Model, x: Any, y: Any) -> float:
    start = time.perf_counter()
    np.asarray(model.train_on_batch(x, y))  # waits for the device
    return time.perf_counter() - start
