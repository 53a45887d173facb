"""Tuned convolutions under JAX on a CUDA device: values, memory, and JAX's settings."""

from __future__ import annotations

import os

import pytest

from tests.bridges.conv_cases import CASES, Case

if os.environ["KERAS_BACKEND"] != "jax":
    pytest.skip("needs KERAS_BACKEND=jax", allow_module_level=True)

import jax
import jax.numpy as jnp
import numpy as np

if jax.default_backend() != "gpu":
    pytest.skip("JAX sees no GPU", allow_module_level=True)

from keras_tunedconv.bridges.jax import convolution
from keras_tunedconv.bridges.jax.targets import TARGET
from keras_tunedconv.core import engines, registry
from keras_tunedconv.core.config import config
from keras_tunedconv.core.descriptor import DIRECTIONS
from keras_tunedconv.core.errors import UnavailableError

pytestmark = pytest.mark.gpu

NAMES = [name for name in CASES if name not in ("one_axis", "three_axes", "bfloat16")]


@pytest.fixture(autouse=True)
def _exact():
    with config.override(key_budget=0.2), jax.default_matmul_precision("float32"):
        yield


def tuned(case):
    def function(x, w):
        y = convolution(x, w, **case.arguments, groups=case.groups)
        assert y is not None
        return y

    return function


def step(f):
    @jax.jit
    def with_gradients(x, w, v):
        y, pull = jax.vjp(f, x, w)
        return y, *pull(v)

    return with_gradients


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("name", NAMES)
def test_values_and_gradients(name, dtype):
    case = Case(name, dtype)
    if not all(engines.supported(case.descriptor.with_direction(d), "cuda") for d in DIRECTIONS):
        pytest.skip("cuDNN has no algorithm for it")
    compiled = step(tuned(case)).lower(case.x, case.w, case.y).compile()
    assert compiled.as_text().count(f'custom_call_target="{TARGET}"') == len(DIRECTIONS)
    results = jax.block_until_ready(compiled(case.x, case.w, case.y))
    for direction, value in zip(DIRECTIONS, results, strict=True):
        case.check(direction, np.asarray(value))
    assert all("cudnn" in record.environment for record in registry.collect()[0])


def test_eager_calls_and_inputs_on_the_host():
    case = Case("plain")
    y = tuned(case)(jnp.asarray(case.x), jnp.asarray(case.w))
    case.check("forward", np.asarray(y))
    try:
        engines.ensure_open("cpu")
    except UnavailableError as error:
        pytest.skip(f"nothing runs on the host: {error}")
    with jax.default_device(jax.devices("cpu")[0]):
        y = tuned(case)(jnp.asarray(case.x), jnp.asarray(case.w))
    assert {device.platform for device in y.devices()} == {"cpu"}
    case.check("forward", np.asarray(y))
    engines_used = {record.environment.split(";")[0] for record in registry.collect()[0]}
    assert engines_used == {"engine=cudnn", "engine=onednn"}


def test_precision_of_jax_is_in_the_keys():
    case = Case("plain")
    for precision in ("default", "float32"):
        with jax.default_matmul_precision(precision):
            jax.block_until_ready(jax.jit(tuned(case))(case.x, case.w))
    keys = [record.key for record in registry.collect()[0]]
    assert ["tf32=1" in key for key in keys] == [True, False]


def test_many_steps_in_one_program():
    case = Case("groups")

    @jax.jit
    def f(x, w):
        return jax.lax.fori_loop(0, 20, lambda _, total: total + tuned(case)(x, w), jnp.zeros(case.y.shape))

    np.testing.assert_allclose(f(case.x, case.w), 20 * tuned(case)(case.x, case.w), rtol=1e-5, atol=1e-5)
