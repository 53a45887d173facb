"""Exported models run in a process that cannot import this package, and give the same numbers there."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys

import keras
import numpy as np
import pytest
from tuning_data import build

from keras_tunedconv import TunedConv2D, stats, to_stock

BACKEND = keras.backend.backend()

# What a process without the package does with a file; `path` and `x` are there, it leaves `y`.
LOADERS = {
    "tf_saved_model": """
import tensorflow as tf
loaded = tf.saved_model.load(path)
y = loaded.serve(tf.constant(x))
""",
    "onnx": """
import onnxruntime
session = onnxruntime.InferenceSession(path)
y = session.run(None, {session.get_inputs()[0].name: x})[0]
""",
    "litert": """
import tensorflow as tf
interpreter = tf.lite.Interpreter(path)
interpreter.resize_tensor_input(interpreter.get_input_details()[0]["index"], x.shape)
interpreter.allocate_tensors()
interpreter.set_tensor(interpreter.get_input_details()[0]["index"], x)
interpreter.invoke()
y = interpreter.get_tensor(interpreter.get_output_details()[0]["index"])
""",
    "torch": """
import torch
y = torch.export.load(path).module()(torch.from_numpy(x))
""",
    "torch.jit": "import torch; y = torch.jit.load(path)(torch.from_numpy(x)).detach()",
    "jax.export": """
import jax, pathlib
from jax import export
y = export.deserialize(bytearray(pathlib.Path(path).read_bytes())).call(x)
""",
    "keras": "import keras; y = keras.ops.convert_to_numpy(keras.saving.load_model(path)(x))",
}
NEEDED = {
    "tf_saved_model": ["tensorflow"],
    "litert": ["tensorflow"],
    "onnx": {
        "tensorflow": ["tf2onnx", "onnxruntime"],
        "jax": ["jax2onnx", "flax", "onnxruntime"],
        "torch": ["onnx", "onnxscript", "onnxruntime"],
    }[BACKEND],
}
PROGRAM = """
import os, sys
sys.modules["keras_tunedconv"] = sys.modules["keras_tunedconv._core"] = None
import numpy as np
path, inputs, outputs = sys.argv[1:]
x = np.load(inputs)
{loader}
assert sys.modules["keras_tunedconv"] is None
np.save(outputs, np.asarray(y))
"""


def model_and_images():
    model = build("functional", TunedConv2D)
    x = np.random.default_rng(0).standard_normal((2, 16, 16, 3)).astype("float32")
    expected = keras.ops.convert_to_numpy(model(x, training=False))
    assert stats()["measured"] == 2, "the model itself runs tuned"
    return model, x, expected


def without_the_package(kind, path, x):
    """What a file gives, loaded and run where the package is not."""
    inputs, outputs = path.with_name("x.npy"), path.with_name("y.npy")
    np.save(inputs, x)
    program = PROGRAM.format(loader=LOADERS[kind])
    run = subprocess.run(
        [sys.executable, "-c", program, path, inputs, outputs],
        env=os.environ | {"TF_CPP_MIN_LOG_LEVEL": "3"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr[-3000:]
    return np.load(outputs)


def need(kind):
    for module in NEEDED.get(kind, []):
        if importlib.util.find_spec(module) is None:
            pytest.skip(f"needs {module}")


def check(kind, path, x, expected):
    np.testing.assert_allclose(without_the_package(kind, path, x), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("kind", "suffix"), [("tf_saved_model", ""), ("onnx", ".onnx"), ("litert", ".tflite"), ("torch", ".pt2")]
)
def test_keras_export(kind, suffix, tmp_path):
    offered = {
        "tf_saved_model": ("tensorflow", "jax"),  # torch's way to it needs torch_xla
        "litert": ("tensorflow",),  # torch's needs litert_torch
        "torch": ("torch",),
    }
    if BACKEND not in offered.get(kind, (BACKEND,)):
        pytest.skip(f"Keras does not export {kind} under {BACKEND} here")
    need(kind)
    model, x, expected = model_and_images()
    path = tmp_path / f"exported{suffix}"
    arguments = {"input_signature": [keras.InputSpec(shape=x.shape)]} if kind == "torch" else {}
    model.export(path, format=kind, verbose=False, **arguments)
    check(kind, path, x, expected)


@pytest.mark.skipif(BACKEND != "jax", reason="JAX's own export")
@pytest.mark.parametrize("batch", ["2", "b"])
def test_jax_export(batch, tmp_path):
    import jax
    from jax import export

    model, x, expected = model_and_images()
    shape = export.symbolic_shape(f"{batch}, 16, 16, 3")
    exported = export.export(jax.jit(lambda x: model(x, training=False)))(
        jax.ShapeDtypeStruct(shape, "float32")
    )
    path = tmp_path / "exported"
    path.write_bytes(exported.serialize())
    check("jax.export", path, x, expected)


@pytest.mark.skipif(BACKEND != "torch", reason="TorchScript")
def test_torch_script(tmp_path):
    import torch

    model, x, expected = model_and_images()
    model.eval()
    path = tmp_path / "traced.pt"
    torch.jit.save(torch.jit.trace(model, torch.from_numpy(x), check_trace=False), path)
    check("torch.jit", path, x, expected)


def test_to_stock(tmp_path):
    model, x, expected = model_and_images()
    path = tmp_path / "stock.keras"
    to_stock(model).save(path)
    check("keras", path, x, expected)
