"""Tuned convolutions under JAX: values, derivatives, transformations, and what is left to Keras."""

from __future__ import annotations

import os
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from tuning_data import own_warnings

from tests.bridges.conv_cases import CASES, TELLING, Case, only_reference_engine

if os.environ["KERAS_BACKEND"] != "jax":
    pytest.skip("needs KERAS_BACKEND=jax", allow_module_level=True)

import jax
import jax.numpy as jnp
import keras
from jax.test_util import check_grads

from keras_tunedconv.bridges import fallback
from keras_tunedconv.bridges.jax import convolution, local, primitive, targets
from keras_tunedconv.bridges.jax.convolution import _determinism_asked_for
from keras_tunedconv.core import engines, registry
from keras_tunedconv.core.config import config
from keras_tunedconv.core.descriptor import DIRECTIONS, ConvDescriptor
from keras_tunedconv.core.errors import TuningWarning, UnavailableError

enable_x64 = jax.enable_x64 if hasattr(jax, "enable_x64") else jax.experimental.enable_x64


def forget():
    jax.clear_caches()
    targets._supported.cache_clear()


@pytest.fixture(autouse=True)
def _quick():
    fallback.forget()
    with config.override(key_budget=0.02, minimum_runs=1):
        yield


@pytest.fixture
def float64(monkeypatch):
    with only_reference_engine(monkeypatch, forget), enable_x64(True):
        yield


def tuned(case):
    def function(x, w):
        y = convolution(x, w, **case.arguments, groups=case.groups)
        assert y is not None
        return y

    return function


def stock(case):
    return lambda x, w: keras.ops.conv(x, w, **case.arguments)


def custom_calls(function, *arguments, **lowering):
    text = jax.jit(function).trace(*arguments).lower(**lowering).as_text()
    return text.count(f"@{targets.TARGET}")


def assert_close(actual, expected, tolerance=1e-4):
    jax.tree.map(partial(np.testing.assert_allclose, rtol=tolerance, atol=tolerance), actual, expected)


@pytest.mark.parametrize("compile_", [jax.jit, lambda f: f], ids=["jit", "eager"])
@pytest.mark.parametrize("name", CASES)
def test_values_and_gradients(name, compile_):
    case = Case(name)
    y, pull = jax.vjp(compile_(tuned(case)), case.x, case.w)
    dx, dw = compile_(pull)(jnp.asarray(case.y))
    case.check("forward", np.asarray(y))
    case.check("backward_data", np.asarray(dx))
    case.check("backward_filter", np.asarray(dw))


@pytest.fixture
def as_on_cuda(monkeypatch):
    """The CPU is given filters in the order that GPUs are."""
    monkeypatch.setattr(local, "on_platform", lambda descriptor, _: targets.on_platform(descriptor, "cuda"))
    forget()
    yield
    forget()


@pytest.mark.parametrize("name", CASES)
def test_filters_in_the_order_of_cudnn(as_on_cuda, name):
    case = Case(name)
    y, pull = jax.jit(lambda x, w: jax.vjp(tuned(case), x, w))(case.x, case.w)
    dx, dw = pull(jnp.asarray(case.y))
    for direction, value in zip(DIRECTIONS, (y, dx, dw), strict=True):
        case.check(direction, np.asarray(value))
    layouts = {ConvDescriptor.from_key(record.key).w_layout for record in registry.collect()[0]}
    assert layouts == {"ohwi"}
    directions = {record.key.split("|")[0] for record in registry.collect()[0]}
    assert directions == {"forward", "backward_data", "backward_filter"}


@pytest.mark.parametrize("name", ["same_odd_padding", "channels_first_groups"])
def test_derivatives_to_second_order(name, float64):
    case = Case(name, "float64")
    check_grads(jax.jit(tuned(case)), (case.x, case.w), order=2, modes=("fwd", "rev"), atol=1e-6, rtol=1e-6)
    assert registry.stats()["fallbacks"] > 0, "the core's loops ran"


@pytest.mark.parametrize("of", ["hessian", "jacfwd of jacfwd", "jacrev of jacrev"])
def test_second_derivatives_are_those_of_keras(of, float64):
    case = Case("unused_border", "float64")
    transform = {
        "hessian": jax.hessian,
        "jacfwd of jacfwd": lambda f: jax.jacfwd(jax.jacfwd(f)),
        "jacrev of jacrev": lambda f: jax.jacrev(jax.jacrev(f)),
    }[of]
    results = [
        transform(lambda w, f=f: jnp.sum(jnp.sin(f(case.x, w))))(case.w) for f in (tuned(case), stock(case))
    ]
    assert_close(*results, 1e-9)


MAPPED = {"x": (0, None), "w": (None, 1), "both": (2, 0)}


@pytest.mark.parametrize("mapped", MAPPED)
@pytest.mark.parametrize("name", TELLING)
def test_vmap_of_values_and_gradients(name, mapped):
    case, axes = Case(name), MAPPED[mapped]
    scales = np.array([1, -2, 3], np.float32)
    x, w = (
        a if axis is None else np.stack([s * a for s in scales], axis)
        for a, axis in zip((case.x, case.w), axes, strict=True)
    )

    def with_gradients(f):
        def one(x, w):
            y, pull = jax.vjp(f, x, w)
            return y, pull(jnp.cos(y))

        return one

    batched = jax.vmap(with_gradients(tuned(case)), axes)
    one_by_one = [
        with_gradients(stock(case))(
            *(a if axis is None else np.take(a, i, axis) for a, axis in zip((x, w), axes, strict=True))
        )
        for i in range(3)
    ]
    assert_close(batched(x, w), jax.tree.map(lambda *rows: jnp.stack(rows), *one_by_one), 2e-4)
    assert custom_calls(batched, x, w) == 3


def test_vmap_within_vmap():
    case = Case("groups")
    x, w = np.stack([case.x, -case.x]), np.stack([case.w, 2 * case.w, 3 * case.w])
    twice = [jax.vmap(jax.vmap(f, (None, 0)), (0, None))(x, w) for f in (tuned(case), stock(case))]
    assert_close(*twice)


def test_vmap_over_nothing():
    case = Case("plain")
    y = jax.vmap(tuned(case), (0, None))(np.zeros((0, *case.x.shape), np.float32), case.w)
    assert y.shape == (0, *case.y.shape)


def test_vmap_where_the_larger_convolution_is_not_served(monkeypatch):
    case = Case("groups")
    f = tuned(case)
    monkeypatch.setattr(targets, "_supported", lambda descriptor, _: descriptor.groups == case.groups)
    x, w = np.stack([case.x, -case.x]), np.stack([case.w, 2 * case.w])
    assert custom_calls(jax.vmap(f), x, w) == 0
    assert_close(jax.vmap(f)(x, w), jax.vmap(stock(case))(x, w))


def loss(f):
    return lambda x, w: jnp.mean(jnp.sin(f(x, w)))


TRANSFORMATIONS = {
    "checkpoint": lambda f: jax.grad(jax.checkpoint(loss(f)), (0, 1)),
    "checkpoint_dots": lambda f: jax.grad(
        jax.checkpoint(loss(f), policy=jax.checkpoint_policies.dots_saveable), (0, 1)
    ),
    "scan": lambda f: lambda x, w: jax.lax.scan(lambda c, row: (c, f(row[None], c)), w, x)[1],
    "grad_of_scan": lambda f: jax.grad(
        lambda x, w: jnp.sum(jax.lax.scan(lambda c, row: (c, jnp.sin(f(row[None], w))), 0.0, x)[1]), (0, 1)
    ),
    "map": lambda f: lambda x, w: jax.lax.map(lambda row: f(row[None], w), x),
    "cond": lambda f: lambda x, w: jax.lax.cond(True, f, lambda x, w: 2 * f(x, w), x, w),
    "linearize": lambda f: lambda x, w: jax.linearize(f, x, w)[1](x, w),
    "jvp_of_grad": lambda f: lambda x, w: jax.jvp(jax.grad(loss(f), (0, 1)), (x, w), (x, w)),
    "donation": lambda f: lambda x, w: jax.jit(f, donate_argnums=0)(jnp.array(x), w),
    "ahead_of_time": lambda f: lambda x, w: jax.jit(f).lower(x, w).compile()(x, w),
}


@pytest.mark.filterwarnings("ignore:Some donated buffers")
@pytest.mark.parametrize("name", TRANSFORMATIONS)
def test_transformations_give_what_they_give_for_keras(name):
    case, transform = Case("same_odd_padding"), TRANSFORMATIONS[name]
    assert_close(transform(tuned(case))(case.x, case.w), transform(stock(case))(case.x, case.w))


def test_without_jit():
    case = Case("plain")
    with jax.disable_jit():
        y, pull = jax.vjp(tuned(case), case.x, case.w)
        dx, dw = pull(jnp.asarray(case.y))
    case.check("forward", np.asarray(y))
    case.check("backward_data", np.asarray(dx))
    case.check("backward_filter", np.asarray(dw))


def test_eval_shape_computes_nothing():
    case = Case("bfloat16")
    shape = jax.eval_shape(tuned(case), case.x, case.w)
    assert (shape.shape, shape.dtype) == (case.y.shape, case.y.dtype)
    assert registry.collect()[0] == []


@pytest.mark.parametrize("enabled", [False, True])
def test_float32_does_not_depend_on_x64(enabled):
    case = Case("groups")
    with enable_x64(enabled):
        y, pull = jax.vjp(jax.jit(tuned(case)), case.x, case.w)
        case.check("forward", np.asarray(y))
        case.check("backward_filter", np.asarray(pull(jnp.asarray(case.y))[1]))
        assert y.dtype == np.float32


def test_inputs_are_cast_to_the_kernels_dtype_as_keras_does():
    case = Case("plain")
    y = tuned(case)(case.x.astype(np.float16), case.w)
    assert_close(y, stock(case)(case.x.astype(np.float16), case.w))


class TestExport:
    def test_holds_the_stock_convolution(self):
        case = Case("plain")
        f = jax.jit(jax.value_and_grad(loss(tuned(case)), (0, 1)))
        exported = jax.export.export(f)(case.x, case.w)
        assert f"@{targets.TARGET}" not in exported.mlir_module()
        assert_close(exported.call(case.x, case.w), f(case.x, case.w))

    def test_for_several_platforms(self):
        case = Case("plain")
        exported = jax.export.export(jax.jit(tuned(case)), platforms=("cpu", "cuda", "tpu"))(case.x, case.w)
        assert_close(exported.call(case.x, case.w), stock(case)(case.x, case.w))

    def test_with_a_symbolic_batch(self):
        case = Case("plain")
        (batch,) = jax.export.symbolic_shape("batch")
        shape = jax.ShapeDtypeStruct((batch, *case.x.shape[1:]), np.float32)
        function = partial(convolution, **case.arguments, groups=1)
        seen = []
        jax.export.export(jax.jit(lambda x, w: seen.append(function(x, w)) or x))(shape, case.w)
        assert seen == [None]


class TestLeftToKeras:
    def test_dtypes_that_no_engine_serves(self):
        case = Case("plain")
        for dtype in (np.int32, np.complex64):
            assert convolution(case.x.astype(dtype), case.w.astype(dtype), **case.arguments, groups=1) is None

    def test_float64_says_so_once(self):
        case = Case("plain", "float64")
        calls = [partial(convolution, case.x, case.w, **case.arguments, groups=1)] * 2
        with enable_x64(True), pytest.warns(TuningWarning, match="float64") as warned:
            assert [call() for call in calls] == [None, None]
        assert len(own_warnings(warned)) == 1
        assert registry.stats()["fallbacks"] == 1

    def test_empty_tensors(self):
        case = Case("plain")
        assert convolution(case.x[:0], case.w, **case.arguments, groups=1) is None

    def test_what_is_an_error(self):
        case = Case("plain")
        assert convolution(case.x, case.w[..., :3, :], **case.arguments, groups=1) is None
        assert convolution(case.x[:, :2, :2], case.w, **case.arguments, groups=1) is None
        assert convolution(case.x, case.w, **case.arguments, groups=5) is None

    def test_precisions_of_matrix_products_only(self):
        case = Case("plain")
        with jax.default_matmul_precision("BF16_BF16_F32_X3"):
            assert convolution(case.x, case.w, **case.arguments, groups=1) is None

    def test_a_missing_engine_says_so(self, monkeypatch):
        def missing(device):
            raise UnavailableError(f"no library for {device}")

        case = Case("plain")
        monkeypatch.setattr(engines, "ensure_open", missing)
        with pytest.warns(TuningWarning, match="no library for cpu"):
            assert convolution(case.x, case.w, **case.arguments, groups=1) is None


def test_other_platforms_lower_to_the_stock_convolution():
    case = Case("plain")
    assert custom_calls(tuned(case), case.x, case.w) == 1
    assert custom_calls(tuned(case), case.x, case.w, lowering_platforms=("tpu",)) == 0


def test_settings_of_gpus_are_not_in_the_keys_of_cpus():
    case = Case("plain")
    asked = replace(case.descriptor, allow_tf32=True, deterministic=True)
    jax.block_until_ready(primitive.bind(asked, case.x, case.w))
    assert [record.key for record in registry.collect()[0]] == [case.descriptor.key]


@pytest.mark.parametrize(
    ("flags", "asked"),
    [
        ("", False),
        ("--xla_gpu_deterministic_ops=true", True),
        ("--xla_foo=1 --xla_gpu_exclude_nondeterministic_ops --xla_bar=2", True),
        ("--xla_gpu_deterministic_ops=false", False),
    ],
)
def test_determinism_is_read_from_xla_flags(flags, asked):
    assert _determinism_asked_for(flags) is asked
