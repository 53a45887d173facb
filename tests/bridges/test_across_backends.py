"""A model saved under one backend of Keras is loaded under another, which then measures nothing."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys

import numpy as np
import pytest

PROGRAM = """
import json, os, sys
import keras, numpy as np
import keras_tunedconv

if sys.argv[2] == "deterministic":
    match keras.backend.backend():
        case "tensorflow":
            import tensorflow
            tensorflow.config.experimental.enable_op_determinism()
        case "torch":
            import torch
            torch.use_deterministic_algorithms(True)
keras.utils.set_random_seed(0)
rng = np.random.default_rng(0)
x, y = (rng.standard_normal(shape).astype("float32") for shape in ((16, 16, 16, 3), (16, 2)))
if os.path.exists(sys.argv[1]):
    # What torch saves of a compiled model names an optimizer of torch's, which others load and cannot use.
    model = keras.saving.load_model(sys.argv[1], compile=False)
else:
    keras.utils.set_random_seed(0)
    model = keras.Sequential([
        keras.Input((16, 16, 3)),
        keras_tunedconv.TunedConv2D(8, 3, padding="same", activation="relu"),
        keras_tunedconv.TunedConv2D(8, 3, strides=2, groups=2),
        keras.layers.GlobalAveragePooling2D(),
        keras.layers.Dense(2),
    ])
model.compile("sgd", "mse")
before = model.predict(x, batch_size=8, verbose=0)
model.fit(x, y, batch_size=8, verbose=0, shuffle=False, callbacks=[keras_tunedconv.TuningCallback()])
after = model.predict(x, batch_size=8, verbose=0)
if not os.path.exists(sys.argv[1]):
    model.save(sys.argv[1])
stats = keras_tunedconv.stats()
algorithms = {r.key: r.algorithm for layer in model.layers[:2] for r in layer.tuning.records()}
print(json.dumps({
    "stats": stats, "algorithms": algorithms, "before": before.tolist(), "after": after.tolist(),
}))
"""
BACKENDS = ("tensorflow", "jax", "torch")
OTHERS = [name for name in BACKENDS if name != os.environ["KERAS_BACKEND"] and importlib.util.find_spec(name)]


def run(backend, path, arithmetic):
    flags = {"XLA_FLAGS": "--xla_gpu_deterministic_ops=true"} if arithmetic == "deterministic" else {}
    process = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(path), arithmetic],
        env=os.environ | {"KERAS_BACKEND": backend} | flags,
        capture_output=True,
        text=True,
        check=False,
    )
    assert process.returncode == 0, process.stderr[-3000:]
    return json.loads(process.stdout.splitlines()[-1])


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.skipif(not OTHERS, reason="needs two of TensorFlow, JAX and torch")
@pytest.mark.parametrize(
    "arithmetic", [("usual", "usual"), ("deterministic", "usual"), ("usual", "deterministic")]
)
def test_what_one_backend_measured_is_used_by_the_others(arithmetic, tmp_path):
    path = tmp_path / "model.keras"
    first = run(os.environ["KERAS_BACKEND"], path, arithmetic[0])
    assert first["stats"]["measured"] == 5, "the input of the model needs no gradient"
    for backend in OTHERS:
        other = run(backend, path, arithmetic[1])
        assert (other["stats"]["measured"], other["stats"]["hits"]) == (0, 5)
        assert other["algorithms"] == first["algorithms"]
        np.testing.assert_allclose(other["before"], first["after"], rtol=1e-4, atol=1e-5)
