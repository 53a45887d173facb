"""Inputs that no engine can take: the stock layer's result, on its device, or its exception."""

from __future__ import annotations

import os
import subprocess
import sys

import keras
import numpy as np
import pytest

from keras_tunedconv import TunedConv2D
from keras_tunedconv.bridges import convolution
from keras_tunedconv.core import registry

BACKEND = keras.backend.backend()
only = {
    name: pytest.mark.skipif(name != BACKEND, reason=f"is for {name}")
    for name in ("tensorflow", "jax", "torch")
}
X = np.random.default_rng(0).standard_normal((4, 9, 9, 3)).astype("float32")

pytestmark = pytest.mark.filterwarnings("ignore::keras_tunedconv.core.errors.TuningWarning")


def twins(**arguments):
    """A stock and a tuned layer with the same weights."""
    arguments = {"filters": 4, "kernel_size": 3} | arguments
    layers = keras.layers.Conv2D(**arguments), TunedConv2D(**arguments)
    for layer in layers:
        layer.build((None, 9, 9, 3))
    layers[1].set_weights(layers[0].get_weights())
    return layers


def outcome(call):
    """The values and their device, or the type of the exception."""
    try:
        y = call()
    except Exception as error:
        return type(error), None
    return keras.ops.convert_to_numpy(y), str(y.device)


def check_alike(stock, tuned):
    (expected, its_device), (received, device) = outcome(stock), outcome(tuned)
    assert device == its_device
    if isinstance(expected, type) or isinstance(received, type):
        assert received is expected
    else:
        assert received.dtype == expected.dtype
        np.testing.assert_allclose(received, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("shape", [(0, 9, 9, 3), (4, 0, 9, 3), (4, 9, 9, 0), (4, 2, 2, 3)])
def test_tensors_of_no_elements(shape, compiled):
    stock, tuned = twins()
    x = keras.ops.zeros(shape)

    def run(layer):
        if compiled and BACKEND == "tensorflow":
            import tensorflow as tf

            return tf.function(layer)(x)
        if compiled and BACKEND == "jax":
            import jax

            return jax.jit(layer)(x)
        return layer(x)

    if shape[0] == 0 and BACKEND == "tensorflow":  # whose own convolution gives a wrong shape or fails
        assert run(tuned).shape == (0, 7, 7, 4)
    else:
        check_alike(lambda: run(stock), lambda: run(tuned))
    assert registry.collect()[0] == []


@pytest.mark.parametrize("padding", ["valid", "same"])
def test_an_empty_batch_has_gradients_as_with_the_stock_layer(padding):
    stock, tuned = twins(padding=padding)
    x = np.zeros((0, 9, 9, 3), "float32")

    def gradient(layer):
        if BACKEND == "tensorflow":
            import tensorflow as tf

            with tf.GradientTape() as tape:
                loss = tf.reduce_sum(layer(x))
            return tape.gradient(loss, layer.kernel.value)
        if BACKEND == "jax":
            import jax

            weights = [variable.value for variable in layer.trainable_variables]
            return jax.grad(lambda w: layer.stateless_call(w, [], x)[0].sum())(weights)[0]
        layer.zero_grad()
        layer(x).sum().backward()
        return layer.kernel.value.grad

    if BACKEND == "tensorflow":  # whose own convolution fails
        np.testing.assert_array_equal(gradient(tuned), np.zeros((3, 3, 3, 4)))
    else:
        check_alike(lambda: gradient(stock), lambda: gradient(tuned))


@pytest.mark.parametrize("dtype", ["float64", "float16", "bfloat16"])
def test_dtypes_that_the_engine_may_lack(dtype):
    stock, tuned = twins(dtype=dtype)
    stock_y, tuned_y = (outcome(lambda layer=layer: layer(X))[0] for layer in (stock, tuned))
    if isinstance(stock_y, type):
        assert tuned_y is stock_y
        return
    assert tuned_y.dtype == stock_y.dtype
    loose = {"float64": 1e-4, "float16": 1e-2, "bfloat16": 5e-2}[dtype]
    np.testing.assert_allclose(tuned_y.astype("float64"), stock_y.astype("float64"), rtol=loose, atol=loose)


@pytest.mark.parametrize("view", ["reversed", "strided", "transposed", "expanded"])
def test_views(view):
    stock, tuned = twins()
    views = {
        "reversed": lambda a: a[::-1, :, ::-1],
        "strided": lambda a: np.repeat(np.repeat(a, 2, 1), 2, 3)[:, ::2, :, ::2],
        "transposed": lambda a: a.transpose(0, 2, 1, 3),
        "expanded": lambda a: np.broadcast_to(a[:1], a.shape),
    }
    x = views[view](X)
    assert not x.flags.c_contiguous
    if BACKEND == "torch":
        import torch

        t = torch.from_numpy(X)
        x = {
            "reversed": lambda: t.flip(0, 2),
            "strided": lambda: t.repeat_interleave(2, 1).repeat_interleave(2, 3)[:, ::2, :, ::2],
            "transposed": lambda: t.transpose(1, 2),
            "expanded": lambda: t[:1].expand(t.shape),
        }[view]()
    check_alike(lambda: stock(x), lambda: tuned(x))


@only["torch"]
def test_a_device_without_memory():
    """Keras takes the shape only and makes something up; the bridge itself must not touch such memory."""
    import torch

    stock, tuned = twins()
    x = torch.empty((4, 9, 9, 3), device="meta")
    (expected, its_device), (received, device) = outcome(lambda: stock(x)), outcome(lambda: tuned(x))
    assert (received.shape, device) == (expected.shape, its_device)
    kernel = tuned.kernel.value
    for inputs, weights in ((x, kernel), (torch.from_numpy(X), kernel.to("meta"))):
        arguments = {"strides": (1, 1), "padding": "valid", "data_format": "channels_last"}
        assert convolution(inputs, weights, **arguments, dilation_rate=(1, 1), groups=1) is None


@only["jax"]
def test_a_symbolic_batch():
    import jax
    from jax import export

    stock, tuned = twins()
    shape = jax.ShapeDtypeStruct(export.symbolic_shape("b, 9, 9, 3"), "float32")
    exported = [export.export(jax.jit(layer))(shape) for layer in (stock, tuned)]
    for batch in (1, 4):
        check_alike(lambda: exported[0].call(X[:batch]), lambda: exported[1].call(X[:batch]))  # noqa: B023
    assert registry.collect()[0] == []


TWO_DEVICES = """
import keras, numpy as np
import jax
from keras_tunedconv import TunedConv2D
first, second = jax.devices("cpu")
x = np.random.default_rng(0).standard_normal((4, 9, 9, 3)).astype("float32")
layers = keras.layers.Conv2D(4, 3), TunedConv2D(4, 3)
for layer in layers:
    layer.build(x.shape)
layers[1].set_weights(layers[0].get_weights())

def outcomes(call, x):
    results = []
    for layer in layers:
        try:
            y = call(layer, x)
            results.append((sorted(d.id for d in y.devices()), np.asarray(y)))
        except Exception as error:
            results.append((type(error), None))
    return results

kernels = [layer.kernel.value for layer in layers]
for layer_device in (None, first, second):
    for layer, kernel in zip(layers, kernels):
        layer.kernel.assign(kernel if layer_device is None else jax.device_put(kernel, layer_device))
    for device in (first, second):
        for call in (
            lambda layer, x: layer(x),
            lambda layer, x: jax.jit(layer)(x),
            lambda layer, x: layer.convolution_op(x, layer.kernel.value),
        ):
            stock, tuned = outcomes(call, jax.device_put(x, device))
            assert stock[0] == tuned[0], (layer_device, device, stock[0], tuned[0])
            if stock[1] is not None:
                np.testing.assert_allclose(tuned[1], stock[1], rtol=1e-4, atol=1e-5)
print("alike")
"""


@only["jax"]
def test_arrays_on_several_devices():
    run = subprocess.run(
        [sys.executable, "-c", TWO_DEVICES],
        env=os.environ | {"XLA_FLAGS": "--xla_force_host_platform_device_count=2", "JAX_PLATFORMS": "cpu"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr[-3000:]
    assert run.stdout.splitlines()[-1] == "alike"


@only["tensorflow"]
def test_tensors_on_several_devices():
    program = """
import tensorflow as tf
(cpu,) = tf.config.list_physical_devices("CPU")
tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
import keras, numpy as np
from keras_tunedconv import TunedConv2D, stats
x = np.random.default_rng(0).standard_normal((4, 9, 9, 3)).astype("float32")
layers = keras.layers.Conv2D(4, 3), TunedConv2D(4, 3)
for layer in layers:
    layer.build(x.shape)
layers[1].set_weights(layers[0].get_weights())
for device in ("CPU:0", "CPU:1"):
    with tf.device(device):
        inputs = tf.identity(x)
        for call in (lambda l: l(inputs), lambda l: tf.function(l)(inputs)):
            stock, tuned = (call(layer) for layer in layers)
            assert tuned.device == stock.device
            np.testing.assert_allclose(tuned, stock, rtol=1e-4, atol=1e-5)
assert stats()["measured"] == 1
print("alike")
"""
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr[-3000:]
    assert run.stdout.splitlines()[-1] == "alike"
