"""Exported models run where this package is not: they hold Keras's own convolution."""

import importlib.util

import keras
import numpy as np
import pytest
from tuning_data import build

from keras_tunedconv.layers import tuned_conv2d
from keras_tunedconv.layers.tuned_conv2d import TunedConv2D

BACKEND = keras.backend.backend()
HAS = {
    name: importlib.util.find_spec(name) is not None for name in ("tensorflow", "tf2onnx", "jax2onnx", "onnx")
}


@pytest.fixture
def model(monkeypatch):
    """A model whose tuned convolution would be seen in what is exported."""

    def forbidden(inputs, kernel, **arguments):
        raise AssertionError("the tuned convolution was traced")

    made = build("functional", TunedConv2D)
    monkeypatch.setattr(tuned_conv2d, "convolution", forbidden)
    with pytest.raises(AssertionError, match="tuned convolution was traced"):
        made(images())
    return made


def images():
    return np.ones((2, 16, 16, 3), "float32")


@pytest.mark.skipif(BACKEND == "torch", reason="needs torch_xla")
@pytest.mark.skipif(not HAS["tensorflow"], reason="SavedModel needs TensorFlow")
def test_saved_model(model, tmp_path):
    import tensorflow as tf

    model.export(tmp_path / "exported", format="tf_saved_model", verbose=False)
    loaded = tf.saved_model.load(tmp_path / "exported")
    outputs = loaded.serve(tf.constant(images()))
    assert outputs.shape == (2, 7, 7, 6)


@pytest.mark.skipif(BACKEND != "tensorflow", reason="TensorFlow's own saving")
def test_functions_made_while_tensorflow_saves(model, tmp_path):
    import tensorflow as tf

    class Module(tf.Module):
        def __init__(self):
            super().__init__()
            self.weights = [weight.value for weight in model.weights]

        @tf.function(input_signature=[tf.TensorSpec((None, 16, 16, 3))])
        def serve(self, x):
            return model(x)

    tf.saved_model.save(Module(), str(tmp_path / "saved"))


@pytest.mark.skipif(BACKEND != "tensorflow", reason="through a concrete function of TensorFlow's")
def test_lite(model, tmp_path):
    model.export(tmp_path / "model.tflite", format="litert", verbose=False)
    assert (tmp_path / "model.tflite").stat().st_size > 0


@pytest.mark.skipif(not HAS["onnx"], reason="onnx is not installed")
@pytest.mark.skipif(BACKEND == "tensorflow" and not HAS["tf2onnx"], reason="tf2onnx is not installed")
@pytest.mark.skipif(BACKEND == "jax" and not HAS["jax2onnx"], reason="jax2onnx is not installed")
def test_onnx(model, tmp_path):
    model(keras.Input((16, 16, 3)))
    model.export(tmp_path / "model.onnx", format="onnx", verbose=False)
    assert (tmp_path / "model.onnx").stat().st_size > 0


@pytest.mark.skipif(BACKEND != "jax", reason="JAX's own export")
def test_jax_export(model):
    import jax
    from jax import export

    exported = export.export(jax.jit(lambda x: model(x)))(jax.ShapeDtypeStruct((2, 16, 16, 3), "float32"))
    assert "custom_call" not in exported.mlir_module() or "keras_tunedconv" not in exported.mlir_module()


@pytest.mark.skipif(BACKEND != "torch", reason="torch's own export")
@pytest.mark.parametrize("strict", [False])
def test_torch_export(model, strict):
    import torch

    model.eval()
    program = torch.export.export(model, (torch.from_numpy(images()),), strict=strict)
    assert "conv2d" in program.graph_module.code or "convolution" in program.graph_module.code


@pytest.mark.skipif(BACKEND != "torch", reason="TorchScript")
def test_torch_trace(model):
    import torch

    model.eval()
    torch.jit.trace(model, torch.from_numpy(images()), check_trace=False)


def test_a_model_runs_tuned_again_after_an_export(model, monkeypatch, tmp_path):
    if BACKEND == "torch" or not HAS["tensorflow"]:
        pytest.skip("nothing to export with")
    model.export(tmp_path / "exported", format="tf_saved_model", verbose=False)
    with pytest.raises(AssertionError, match="tuned convolution was traced"):
        model.predict(images(), verbose=0)
