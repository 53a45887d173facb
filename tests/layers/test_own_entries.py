"""A layer saves what its convolutions really ran, also where a framework made others out of them."""

from __future__ import annotations

import keras
import numpy as np
import pytest

from keras_tunedconv import TunedConv2D
from keras_tunedconv.core import registry
from keras_tunedconv.core.config import config
from keras_tunedconv.core.descriptor import ConvDescriptor

BACKEND = keras.backend.backend()
only = {name: pytest.mark.skipif(name != BACKEND, reason=f"is for {name}") for name in ("jax", "torch")}
X = np.random.default_rng(0).standard_normal((4, 8, 8, 6)).astype("float32")


@pytest.fixture(autouse=True)
def _quick():
    with config.override(key_budget=0.02, minimum_runs=1):
        yield


def made(**arguments):
    layer = TunedConv2D(4, 3, padding="same", **arguments)
    layer.build(X.shape)
    return layer


def descriptors(layer):
    """What ran, all of which the layer must have."""
    layer.tuning.collect()
    ran = {record.key for record in registry.collect(0)[0]}
    assert {record.key for record in layer.tuning.records()} == ran
    assert ran
    return [ConvDescriptor.from_key(key) for key in sorted(ran)]


@only["jax"]
@pytest.mark.parametrize("groups", [1, 2])
def test_gradients_of_each_example_under_jax(groups):
    import jax

    layer = made(groups=groups)
    weights = [variable.value for variable in layer.trainable_variables]

    def loss(weights, x):
        return (layer.stateless_call(weights, [], x[None])[0] ** 2).sum()

    gradients = jax.block_until_ready(jax.jit(jax.vmap(jax.grad(loss, (0, 1)), (None, 0)))(weights, X))
    assert gradients[1].shape == X.shape
    ran = descriptors(layer)
    assert max(d.groups for d in ran) == 4 * groups, "the examples' kernels became groups"


@only["jax"]
@pytest.mark.parametrize("groups", [1, 2])
def test_ensembles_under_jax(groups):
    import jax

    layer = made(groups=groups)
    kernels = np.stack([np.asarray(layer.kernel.value)] * 3)
    jax.block_until_ready(jax.jit(jax.vmap(lambda kernel: layer.convolution_op(X, kernel)))(kernels))
    (ran,) = descriptors(layer)
    assert ran.w_dims[0] == 12


@only["torch"]
@pytest.mark.parametrize("groups", [1, 2])
def test_transforms_of_torch(groups):
    import torch

    layer = made(groups=groups)
    kernels = torch.stack([layer.kernel.value.detach()] * 3)
    x = torch.from_numpy(X)

    def loss(kernel, x):
        return (layer.convolution_op(x[None], kernel) ** 2).sum()

    torch.func.vmap(lambda kernel: layer.convolution_op(x, kernel))(kernels)
    torch.func.vmap(torch.func.grad(loss), (None, 0))(kernels[0], x)
    ran = descriptors(layer)
    assert {d.direction for d in ran} == {"forward", "backward_filter"}
    assert max(d.w_dims[0] for d in ran) == 16


@only["torch"]
def test_autocast_of_torch():
    import torch

    layer = made()
    with torch.autocast("cpu", torch.bfloat16):
        outputs = layer(torch.from_numpy(X))
    outputs.float().sum().backward()
    assert {d.x_dtype for d in descriptors(layer)} == {"bfloat16"}


@only["torch"]
def test_torchs_channels_last_format():
    import torch

    layer = TunedConv2D(4, 3, data_format="channels_first")
    layer.build((4, 6, 8, 8))
    layer(torch.from_numpy(np.moveaxis(X, -1, 1)).contiguous(memory_format=torch.channels_last))
    assert {d.x_layout for d in descriptors(layer)} == {"channels_last"}


def test_other_layers_do_not_take_them():
    if BACKEND != "jax":
        pytest.skip("is for jax")
    import jax

    layer, other = made(), TunedConv2D(4, 5, padding="same")
    other.build(X.shape)
    jax.block_until_ready(other(X))
    kernels = np.stack([np.asarray(layer.kernel.value)] * 3)
    jax.block_until_ready(jax.vmap(lambda kernel: layer.convolution_op(X, kernel))(kernels))
    other.tuning.collect()
    layer.tuning.collect()
    assert [ConvDescriptor.from_key(r.key).w_dims for r in other.tuning.records()] == [(4, 6, 5, 5)]
    assert [ConvDescriptor.from_key(r.key).w_dims for r in layer.tuning.records()] == [(12, 6, 3, 3)]
