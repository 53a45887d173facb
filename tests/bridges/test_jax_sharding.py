"""Programs for several devices: what each computes, what travels between them.

The number of host devices is fixed when JAX starts, so these tests run in a process of their own.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

if os.environ["KERAS_BACKEND"] != "jax":
    pytest.skip("needs KERAS_BACKEND=jax", allow_module_level=True)

import jax
import jax.numpy as jnp
import keras
from jax.sharding import AxisType, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from keras_tunedconv import TunedConv2D
from keras_tunedconv.bridges import convolution
from keras_tunedconv.core import registry
from keras_tunedconv.core.config import config

DEVICES = 4
has_devices = pytest.mark.skipif(len(jax.devices("cpu")) < DEVICES, reason="runs in a process of its own")
GATHERS = {"all-gather", "all-to-all"}


@pytest.mark.slow
@pytest.mark.skipif(len(jax.devices("cpu")) >= DEVICES, reason="this is that process")
@pytest.mark.timeout(900)
def test_in_a_process_with_several_devices():
    flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count={DEVICES}"
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", __file__]
    run = subprocess.run(
        command,
        env=os.environ | {"XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu"},
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stdout[-5000:] + run.stderr[-2000:]
    passed = re.search(r"(\d+) passed", run.stdout)
    assert passed is not None
    assert int(passed[1]) >= 20


@pytest.fixture(autouse=True)
def _quick():
    with config.override(key_budget=0.02, minimum_runs=1):
        yield


@pytest.fixture
def mesh():
    return Mesh(np.array(jax.devices()[:DEVICES]).reshape(2, 2), ("data", "model"))


def arrays(x=(8, 16, 8, 4), w=(3, 3, 4, 6)):
    rng = np.random.default_rng(0)
    return (rng.standard_normal(shape).astype(np.float32) for shape in (x, w))


def functions(**arguments):
    arguments = {
        "strides": (1, 1),
        "padding": "same",
        "data_format": "channels_last",
        "dilation_rate": (1, 1),
    } | arguments

    def tuned(x, w):
        channels = x.shape[-1 if arguments["data_format"] == "channels_last" else 1]
        y = convolution(x, w, **arguments, groups=channels // w.shape[-2])
        assert y is not None
        return y

    return tuned, lambda x, w: keras.ops.conv(x, w, **arguments)


def with_gradients(f):
    return lambda x, w: (f(x, w), *jax.grad(lambda x, w: jnp.mean(jnp.sin(f(x, w))), (0, 1))(x, w))


def collectives(compiled):
    names = r"(all-gather|all-reduce|all-to-all|collective-permute|reduce-scatter)"
    return set(re.findall(rf" {names}(?:-start)?\(", compiled.as_text()))


def assert_close(actual, expected):
    # All copies, not only the one that is compared: a device that still runs would find its plan cleared.
    jax.block_until_ready(actual)
    for a, e in zip(actual, expected, strict=True):
        np.testing.assert_allclose(a, e, rtol=1e-4, atol=1e-5)


SPLIT = {
    "images": {"x_spec": P("data"), "travels": {"all-reduce"}},
    "images over all devices": {"x_spec": P(("data", "model")), "travels": {"all-reduce"}},
    "images, channels first": {
        "x": (8, 4, 16, 8),
        "x_spec": P("data"),
        "data_format": "channels_first",
        "strides": (2, 2),
        "travels": {"all-reduce"},
    },
    "images and filters": {
        "x_spec": P("data"),
        "w_spec": P(None, None, None, "model"),
        "travels": {"all-reduce"},
    },
    "input channels": {
        "x_spec": P("data", None, None, "model"),
        "w_spec": P(None, None, "model"),
        "travels": {"all-reduce"},
    },
    "groups": {
        "w": (3, 3, 2, 6),
        "x_spec": P("data"),
        "w_spec": P(None, None, None, "model"),
        "travels": {"all-reduce"},
    },
    "depthwise": {"w": (3, 3, 1, 4), "x_spec": P("data"), "travels": {"all-reduce"}},
    "places": {"x_spec": P(None, "data", "model"), "travels": {"all-reduce", "collective-permute"}},
    "places, over more devices": {
        "x_spec": P(None, ("data", "model")),
        "travels": {"all-reduce", "collective-permute"},
    },
    "places, strides": {
        "w": (7, 7, 4, 6),
        "x_spec": P(None, "data"),
        "strides": (2, 2),
        "travels": {"all-reduce", "collective-permute"},
    },
    "places, dilation": {
        "x": (8, 4, 16, 8),
        "w": (3, 3, 2, 6),
        "x_spec": P("model", None, "data"),
        "data_format": "channels_first",
        "dilation_rate": (2, 2),
        "travels": {"all-reduce", "collective-permute"},
    },
    "places, stride beyond the kernel": {
        "w": (1, 1, 4, 6),
        "x_spec": P(None, "data"),
        "strides": (2, 2),
        "travels": {"all-reduce"},
    },
    "nothing": {"x_spec": P(), "travels": set()},
}


@has_devices
@pytest.mark.parametrize("name", SPLIT)
def test_each_device_convolves_its_part(name, mesh):
    fields = dict(SPLIT[name])
    travels, x_spec = fields.pop("travels"), fields.pop("x_spec")
    w_spec = fields.pop("w_spec", P())
    shapes = {role: fields.pop(role) for role in ("x", "w") if role in fields}
    x, w = arrays(**shapes)
    tuned, stock = functions(**fields)
    sharded = jax.device_put(x, NamedSharding(mesh, x_spec)), jax.device_put(w, NamedSharding(mesh, w_spec))
    compiled = jax.jit(with_gradients(tuned)).lower(*sharded).compile()
    assert "keras_tunedconv_convolution" in compiled.as_text()
    assert collectives(compiled) <= travels
    assert_close(compiled(*sharded), with_gradients(stock)(x, w))


UNEVEN = {
    "what does not divide": {"x": (8, 14, 8, 4), "strides": (4, 4)},
    "valid": {"padding": "valid"},
    "margins beyond the neighbour": {"x": (8, 4, 8, 4), "w": (7, 7, 4, 6)},
}


@has_devices
@pytest.mark.parametrize("name", UNEVEN)
def test_places_that_cannot_be_split_are_still_right(name, mesh):
    fields = dict(UNEVEN[name])
    x, w = arrays(**{role: fields.pop(role) for role in ("x", "w") if role in fields})
    tuned, stock = functions(**fields)
    x_sharded = jax.device_put(x, NamedSharding(mesh, P(None, "data")))
    assert_close(jax.jit(with_gradients(tuned))(x_sharded, w), with_gradients(stock)(x, w))


@has_devices
def test_images_that_do_not_divide_are_still_right(mesh):
    x, w = arrays(x=(6, 16, 8, 4))
    tuned, stock = functions()

    @jax.jit
    def f(x, w):
        x = jax.lax.with_sharding_constraint(x, NamedSharding(mesh, P(("data", "model"))))
        return with_gradients(tuned)(x, w)

    assert_close(f(x, w), with_gradients(stock)(x, w))


@has_devices
def test_with_the_former_partitioner(mesh):
    x, w = arrays()
    tuned, stock = functions()
    jax.config.update("jax_use_shardy_partitioner", False)
    try:
        sharded = jax.device_put(x, NamedSharding(mesh, P("data", "model")))
        compiled = jax.jit(with_gradients(tuned)).lower(sharded, w).compile()
        assert not collectives(compiled) & GATHERS
        assert_close(compiled(sharded, w), with_gradients(stock)(x, w))
    finally:
        jax.config.update("jax_use_shardy_partitioner", True)


@has_devices
def test_eager_calls_on_sharded_arrays(mesh):
    x, w = arrays()
    tuned, stock = functions()
    sharding = NamedSharding(mesh, P("data"))
    y, dx, dw = with_gradients(tuned)(
        jax.device_put(x, sharding), jax.device_put(w, NamedSharding(mesh, P()))
    )
    assert_close((y, dx, dw), with_gradients(stock)(x, w))
    assert y.sharding.is_equivalent_to(sharding, 4)


@has_devices
def test_an_array_on_another_device_stays_there():
    x, w = arrays()
    tuned, stock = functions()
    device = jax.devices()[2]
    y = tuned(jax.device_put(x, device), w)
    assert y.devices() == {device}
    assert_close([y], [stock(x, w)])


@has_devices
@pytest.mark.parametrize("check_vma", [True, False])
def test_shard_map(check_vma, mesh):
    x, w = arrays()
    tuned, stock = functions()
    mapped = jax.shard_map(
        tuned,
        mesh=mesh,
        in_specs=(P(("data", "model")), P()),
        out_specs=P(("data", "model")),
        check_vma=check_vma,
    )
    compiled = jax.jit(with_gradients(mapped)).lower(x, w).compile()
    assert "keras_tunedconv_convolution" in compiled.as_text()
    assert_close(compiled(x, w), with_gradients(stock)(x, w))


@has_devices
def test_shard_map_over_some_of_the_axes_is_left_to_keras(mesh):
    x, w = arrays()
    seen = []

    def f(x, w):
        arguments = {
            "strides": (1, 1),
            "padding": "same",
            "data_format": "channels_last",
            "dilation_rate": (1, 1),
        }
        seen.append(convolution(x, w, **arguments, groups=1))
        return x

    jax.jit(jax.shard_map(f, mesh=mesh, axis_names={"data"}, in_specs=(P("data"), P()), out_specs=P("data")))(
        x, w
    )
    assert seen == [None]


@has_devices
def test_pmap():
    x, w = arrays()
    tuned, stock = functions()
    y = jax.pmap(tuned, in_axes=(0, None))(x.reshape(DEVICES, 2, *x.shape[1:]), w)
    assert_close([y.reshape(x.shape[0], *y.shape[2:])], [stock(x, w)])


@has_devices
@pytest.mark.parametrize("jit", [jax.jit, lambda f: f], ids=["jit", "eager"])
def test_explicit_axes(jit):
    x, w = arrays()
    tuned, stock = functions()
    mesh = jax.make_mesh((DEVICES,), ("data",), axis_types=(AxisType.Explicit,))
    sharded = jax.device_put(x, NamedSharding(mesh, P("data"))), jax.device_put(w, NamedSharding(mesh, P()))
    with jax.set_mesh(mesh):
        y, dx, dw = jit(with_gradients(tuned))(*sharded)
    assert jax.typeof(y).sharding.spec == P("data", None, None, None)
    assert_close((y, dx, dw), with_gradients(stock)(x, w))


@has_devices
def test_explicit_axes_that_split_the_filter_are_left_to_keras():
    x, w = arrays(w=(3, 3, 4, 8))
    mesh = jax.make_mesh((DEVICES,), ("model",), axis_types=(AxisType.Explicit,))
    x = jax.device_put(x, NamedSharding(mesh, P()))
    w = jax.device_put(w, NamedSharding(mesh, P(None, None, None, "model")))
    arguments = {
        "strides": (1, 1),
        "padding": "same",
        "data_format": "channels_last",
        "dilation_rate": (1, 1),
    }
    assert convolution(x, w, **arguments, groups=1) is None


@has_devices
def test_export_of_a_sharded_program(mesh):
    x, w = arrays()
    tuned, _ = functions()
    shardings = NamedSharding(mesh, P("data")), NamedSharding(mesh, P())
    exported = jax.export.export(jax.jit(tuned, in_shardings=shardings))(x, w)
    assert "CustomSPMDPartitioning" not in exported.mlir_module()


def train(layer, distribution=None):
    keras.utils.set_random_seed(0)
    keras.distribution.set_distribution(distribution)
    try:
        model = keras.Sequential(
            [
                keras.Input((16, 16, 3)),
                layer(8, 3, padding="same", activation="relu"),
                layer(8, 3, strides=2, groups=2, name="second"),
                keras.layers.GlobalAveragePooling2D(),
                keras.layers.Dense(2),
            ]
        )
        model.compile(keras.optimizers.SGD(0.1), "mse")
        rng = np.random.default_rng(1)
        x, y = rng.standard_normal((16, 16, 16, 3)), rng.standard_normal((16, 2))
        losses = model.fit(x, y, batch_size=8, epochs=2, shuffle=False, verbose=0).history["loss"]
        jax.block_until_ready([variable.value for variable in model.variables])
        return losses, model.get_weights()
    finally:
        keras.distribution.set_distribution(None)


def model_parallel():
    mesh = keras.distribution.DeviceMesh((2, 2), ["batch", "model"])
    layout = keras.distribution.LayoutMap(mesh)
    layout["second/kernel"] = (None, None, None, "model")
    return keras.distribution.ModelParallel(layout_map=layout, batch_dim_name="batch")


@has_devices
@pytest.mark.parametrize(
    "distribution", [lambda: keras.distribution.DataParallel(), model_parallel], ids=["data", "model"]
)
def test_training_under_a_distribution_of_keras(distribution):
    losses, weights = train(TunedConv2D, distribution())
    expected_losses, expected = train(keras.layers.Conv2D)
    np.testing.assert_allclose(losses, expected_losses, rtol=1e-4)
    for weight, other in zip(weights, expected, strict=True):
        np.testing.assert_allclose(weight, other, rtol=1e-3, atol=1e-5)


@has_devices
@pytest.mark.parametrize(
    ("x_spec", "w_spec"),
    [
        (P("data"), P()),
        (P(None, "data", "model"), P()),
        (P("data"), P(None, None, None, "model")),
        (P("data", None, None, "model"), P(None, None, "model")),
    ],
    ids=["images", "places", "filters", "input channels"],
)
def test_a_layer_keeps_the_entries_of_each_devices_part(x_spec, w_spec, mesh):
    registry.clear()
    x, w = arrays()
    layer = TunedConv2D(6, 3, padding="same")
    layer.build(x.shape)

    def loss(x, w):
        return jnp.mean(jnp.sin(layer.convolution_op(x, w)))

    operands = [jax.device_put(a, NamedSharding(mesh, s)) for a, s in ((x, x_spec), (w, w_spec))]
    jax.block_until_ready(jax.jit(jax.grad(loss, (0, 1)))(*operands))
    layer.tuning.collect()
    ran = {record.key for record in registry.collect(0)[0]}
    assert len(ran) >= 3
    assert not any(f"|x=float32:nhwc:{x.shape[0]}x4x16x8|w=float32:hwio:6x4" in key for key in ran)
    assert {record.key for record in layer.tuning.records()} == ran
