"""Two processes that load one tuned file train to the same bits, if the framework is asked to."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.gpu

# What each backend is asked with, before it is loaded.
_DETERMINISM = {
    "jax": {"XLA_FLAGS": "--xla_gpu_deterministic_ops=true", "XLA_PYTHON_CLIENT_PREALLOCATE": "false"},
    "torch": {"CUBLAS_WORKSPACE_CONFIG": ":4096:8"},
    "tensorflow": {"TF_DETERMINISTIC_OPS": "1", "TF_FORCE_GPU_ALLOW_GROWTH": "true"},
}
_TRAIN = """
import hashlib, json, os, sys
import keras, numpy as np
from keras import layers
import keras_tunedconv
from keras_tunedconv.core import registry
loads, saves = sys.argv[1:]
backend = keras.backend.backend()
keras.utils.set_random_seed(3)
if backend == "tensorflow":
    import tensorflow as tf
    tf.config.experimental.enable_op_determinism()
elif backend == "torch":
    import torch
    torch.use_deterministic_algorithms(True)
keras.config.set_dtype_policy("mixed_float16")
conv = keras_tunedconv.TunedConv2D
model = keras.Sequential([
    keras.Input((48, 48, 3)), conv(32, 7, strides=2, padding="same"), layers.ReLU(),
    conv(64, 3, padding="same", groups=4), layers.ReLU(), conv(64, 1), layers.ReLU(),
    layers.Flatten(), layers.Dense(10, dtype="float32"),
])
model.compile(keras.optimizers.SGD(1e-3), keras.losses.SparseCategoricalCrossentropy(from_logits=True))
if loads:
    model.load_weights(loads)
x = np.random.default_rng(0).random((32, 48, 48, 3), "float32")
y = np.arange(32) % 10
for _ in range(20 if loads else 2):
    model.train_on_batch(x, y)
if not any("cudnn" in record.environment for record in registry.collect()[0]):
    devices = keras.distribution.list_devices()
    sys.exit(f"NO GPU was used: devices {devices}, {keras_tunedconv.stats()}")
if saves:
    model.save_weights(saves)
weights = b"".join(np.asarray(keras.ops.convert_to_numpy(w)).tobytes() for w in model.weights)
print("RESULT", json.dumps([hashlib.sha256(weights).hexdigest(), keras_tunedconv.stats()]))
"""


def _train(loads: Path | str, saves: Path | str) -> tuple[str, dict[str, float]]:
    backend = os.environ["KERAS_BACKEND"]
    environment = {**os.environ, **_DETERMINISM[backend]}
    if backend == "jax":
        environment["XLA_FLAGS"] += " " + os.environ.get("XLA_FLAGS", "")
    done = subprocess.run(
        [sys.executable, "-c", _TRAIN, loads, saves],
        env=environment,
        capture_output=True,
        text=True,
        timeout=600,
    )
    if "NO GPU" in done.stderr:
        pytest.skip(done.stderr[-2000:])
    results = [line for line in done.stdout.splitlines() if line.startswith("RESULT ")]
    assert results, done.stdout + done.stderr
    digest, stats = json.loads(results[0].removeprefix("RESULT "))
    return digest, stats


def test_weights_are_the_same_bits_after_twenty_steps(tmp_path: Path) -> None:
    if os.environ["KERAS_BACKEND"] not in _DETERMINISM:
        pytest.skip("needs a backend that trains on GPUs")
    file = tmp_path / "tuned.weights.h5"
    _, stats = _train("", file)
    assert stats["measured"] >= 8  # three directions of three layers, but for the first one's input
    (first, stats), (second, _) = _train(file, ""), _train(file, "")
    assert stats["measured"] == 0
    assert stats["hits"] >= 8
    assert first == second
