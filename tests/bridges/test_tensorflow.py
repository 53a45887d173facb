"""Tuned convolutions under TensorFlow: values, gradients, graphs, XLA, and what is left to Keras."""

from __future__ import annotations

import concurrent.futures
import ctypes
import os
import warnings
from collections import Counter

import numpy as np
import pytest
from native_build import build_fake_engine
from tuning_data import own_warnings

from keras_tunedconv.core import engines, registry
from keras_tunedconv.core.config import config
from keras_tunedconv.core.descriptor import DIRECTIONS, ConvDescriptor, forward_descriptor
from keras_tunedconv.core.errors import TuningWarning, check
from keras_tunedconv.core.library import lib
from tests.reference import expect, random_operands

if os.environ["KERAS_BACKEND"] != "tensorflow":
    pytest.skip("needs KERAS_BACKEND=tensorflow", allow_module_level=True)

import keras
import tensorflow as tf

from keras_tunedconv.bridges import fallback
from keras_tunedconv.bridges.tensorflow import convolution, library, operations, placement
from keras_tunedconv.bridges.tensorflow.compiler import BuildError

CASES = {
    "plain": {"x": (2, 9, 8, 5), "w": (3, 3, 5, 7)},
    "pointwise": {"x": (3, 6, 5, 8), "w": (1, 1, 8, 4)},
    "same, odd padding": {"x": (2, 9, 8, 3), "w": (4, 3, 3, 5), "strides": (2, 3), "padding": "same"},
    "strides, unused border": {"x": (1, 11, 10, 2), "w": (3, 2, 2, 4), "strides": (3, 3)},
    "dilation": {"x": (2, 12, 11, 3), "w": (3, 3, 3, 4), "dilation_rate": (2, 3), "padding": "same"},
    "groups": {"x": (2, 8, 8, 6), "w": (3, 3, 2, 9), "padding": "same"},
    "depthwise": {"x": (2, 8, 7, 6), "w": (3, 3, 1, 6), "padding": "same"},
    "channels first": {
        "x": (2, 3, 9, 8),
        "w": (3, 3, 3, 5),
        "strides": (2, 1),
        "padding": "same",
        "data_format": "channels_first",
    },
    "channels first, groups": {"x": (2, 4, 7, 7), "w": (3, 3, 2, 6), "data_format": "channels_first"},
    "one axis": {"x": (2, 15, 3), "w": (4, 3, 5), "strides": (2,), "padding": "same"},
    "three axes": {"x": (2, 5, 6, 4, 3), "w": (2, 3, 2, 3, 4), "padding": "same"},
    "kernel as large as the input": {"x": (2, 5, 5, 3), "w": (5, 5, 3, 4)},
    "bfloat16": {"x": (2, 9, 8, 8), "w": (3, 3, 8, 16), "padding": "same", "dtype": "bfloat16"},
}
PLAIN = {
    "strides": (1, 1),
    "padding": "valid",
    "data_format": "channels_last",
    "dilation_rate": (1, 1),
    "groups": 1,
}


class Case:
    """Tensors of a convolution, and what its three directions must give."""

    def __init__(self, x, w, dtype="float32", **arguments):
        rank = len(x) - 2
        self.arguments = {
            "strides": (1,) * rank,
            "padding": "valid",
            "data_format": "channels_last",
            "dilation_rate": (1,) * rank,
        }
        self.arguments |= arguments
        self.descriptor = forward_descriptor(x, w, dtype, **self.arguments)
        self.arguments["groups"] = self.descriptor.groups
        self.shapes = {"x": x, "w": w}
        self.arrays = random_operands(self.descriptor)
        self.x, self.w, self.v = (tf.constant(a) for a in self.arrays)

    def of(self, dtype):
        arguments = {name: value for name, value in self.arguments.items() if name != "groups"}
        return Case(**self.shapes, dtype=dtype, **arguments)

    def __call__(self, x, w):
        y = convolution(x, w, **self.arguments)
        assert y is not None
        return y

    def check(self, direction, actual, x=None, w=None, y=None):
        arrays = [
            own if other is None else np.asarray(other)
            for own, other in zip(self.arrays, (x, w, y), strict=True)
        ]
        expect(self.descriptor.with_direction(direction), *arrays).check(np.asarray(actual))

    def step(self, x, w, v):
        with tf.GradientTape() as tape:
            tape.watch([x, w])
            y = self(x, w)
        return (y, *tape.gradient(y, [x, w], output_gradients=v))

    def compiled(self, jit_compile, sizes_known=True):
        shapes = [[*self.x.shape], [*self.w.shape], [*self.v.shape]]
        if not sizes_known:
            channels = {self.x.shape.rank - 1, 0} if "last" in self.arguments["data_format"] else {1}
            for k in (0, 2):
                shapes[k] = [n if i in channels and i else None for i, n in enumerate(shapes[k])]
        signature = [tf.TensorSpec(shape, self.x.dtype) for shape in shapes]
        return tf.function(self.step, input_signature=signature, jit_compile=jit_compile)


@pytest.fixture(autouse=True)
def _quick():
    """Values do not depend on how long a choice was measured, and reasons are told afresh."""
    fallback.forget()
    operations._known.clear()
    with config.override(key_budget=0.02, minimum_runs=1):
        yield


@pytest.fixture(params=CASES, ids=lambda name: name.replace(", ", ",").replace(" ", "-"))
def case(request):
    return Case(**CASES[request.param])


MODES = {
    "eager": lambda case: case.step,
    "graph": lambda case: case.compiled(False),
    "graph, sizes unknown": lambda case: case.compiled(False, sizes_known=False),
    "xla": lambda case: case.compiled(True),
    "xla, sizes unknown": lambda case: case.compiled(True, sizes_known=False),
}


@pytest.mark.parametrize("mode", MODES, ids=lambda name: name.replace(", ", ",").replace(" ", "-"))
def test_values_and_gradients(case, mode):
    y, dx, dw = MODES[mode](case)(case.x, case.w, case.v)
    case.check("forward", y)
    case.check("backward_data", dx)
    case.check("backward_filter", dw)


@pytest.mark.gpu
@pytest.mark.parametrize("mode", MODES, ids=lambda name: name.replace(", ", ",").replace(" ", "-"))
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
def test_values_and_gradients_on_a_gpu(case, dtype, mode):
    if not tf.config.list_logical_devices("GPU"):
        pytest.skip("TensorFlow sees no GPU")
    case = case.of(dtype)
    if not all(engines.supported(case.descriptor.with_direction(d), "cuda") for d in DIRECTIONS):
        pytest.skip("cuDNN has no algorithm for it")
    tf32 = tf.config.experimental.tensor_float_32_execution_enabled()
    tf.config.experimental.enable_tensor_float_32_execution(False)
    try:
        y, dx, dw = MODES[mode](case)(case.x, case.w, case.v)
    finally:
        tf.config.experimental.enable_tensor_float_32_execution(tf32)
    case.check("forward", y)
    case.check("backward_data", dx)
    case.check("backward_filter", dw)
    assert all("GPU" in result.device for result in (y, dx, dw))
    assert all("cudnn" in record.environment for record in registry.collect()[0])


@pytest.mark.parametrize("jit_compile", [None, False, True], ids=["eager", "graph", "xla"])
def test_gradients_of_gradients(case, jit_compile):
    """Each gradient is bilinear, so its derivative along a tensor is a convolution with that tensor in it."""
    u, q, _ = (tf.constant(a) for a in random_operands(case.descriptor, seed=1))

    def second_order(x, w, v):
        with tf.GradientTape(persistent=True) as outer:
            outer.watch([x, w, v])
            with tf.GradientTape() as inner:
                inner.watch([x, w])
                y = case(x, w)
            dx, dw = inner.gradient(y, [x, w], output_gradients=v)
        of_dx = outer.gradient(dx, [w, v], output_gradients=u)
        of_dw = outer.gradient(dw, [x, v], output_gradients=q)
        return *of_dx, *of_dw

    if jit_compile is not None:
        second_order = tf.function(second_order, jit_compile=jit_compile)
    dx_w, dx_v, dw_x, dw_v = second_order(case.x, case.w, case.v)
    case.check("backward_filter", dx_w, x=u)
    case.check("forward", dx_v, x=u)
    case.check("backward_data", dw_x, w=q)
    case.check("forward", dw_v, w=q)


def test_third_order():
    case = Case(**CASES["same, odd padding"])
    with tf.GradientTape() as third:
        third.watch(case.x)
        with tf.GradientTape() as second:
            second.watch(case.x)
            with tf.GradientTape() as first:
                first.watch(case.x)
                cubes = tf.reduce_sum(case(case.x, case.w) ** 3)
            g1 = first.gradient(cubes, case.x)
        g2 = second.gradient(g1, case.x, output_gradients=case.x)
    g3 = third.gradient(g2, case.x, output_gradients=case.x)
    # The cubes have degree 3 in x, so x·∇f = 3f; ∇f has degree 2, so its derivative along x is twice itself,
    # and so is that of the result.
    scale = np.abs(g1).max()
    np.testing.assert_allclose(tf.reduce_sum(g1 * case.x), 3 * cubes, rtol=1e-4)
    np.testing.assert_allclose(g2, 2 * g1, rtol=1e-4, atol=1e-5 * scale)
    np.testing.assert_allclose(g3, 4 * g1, rtol=1e-4, atol=1e-5 * scale)


def test_forward_mode(case):
    u, q, _ = (tf.constant(a) for a in random_operands(case.descriptor, seed=1))
    with tf.autodiff.ForwardAccumulator(case.x, u) as along_x:
        y = case(case.x, case.w)
    case.check("forward", along_x.jvp(y), x=u)
    with tf.autodiff.ForwardAccumulator(case.w, q) as along_w:
        y = case(case.x, case.w)
    case.check("forward", along_w.jvp(y), w=q)


def test_map_fn_and_vectorized_map():
    case = Case(x=(6, 8, 7, 3), w=(3, 3, 3, 4), padding="same")

    def one(x):
        return case(x[None], case.w)[0]

    for mapped in (tf.map_fn(one, case.x), tf.vectorized_map(one, case.x)):
        case.check("forward", mapped)


def test_jacobian_in_a_graph():
    case = Case(x=(1, 4, 4, 1), w=(3, 3, 1, 1))

    @tf.function
    def jacobian(x, w):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = case(x, w)
        return tape.jacobian(y, x)

    value = tf.reshape(jacobian(case.x, case.w), (4, 16))
    case.check("forward", tf.reshape(tf.linalg.matvec(value, tf.reshape(case.x, [16])), case.v.shape))


def test_one_trace_serves_all_sizes():
    """Padding is computed from the sizes of the call, also where `same` pads unevenly."""
    arguments = PLAIN | {"strides": (2, 2), "padding": "same"}
    traces = Counter()

    @tf.function(input_signature=[tf.TensorSpec([None, None, None, 3]), tf.TensorSpec([3, 3, 3, 4])])
    def step(x, w):
        traces["step"] += 1
        y = convolution(x, w, **arguments)
        assert y.shape.as_list() == [None, None, None, 4]
        return (y, *tf.gradients(y, [x, w], grad_ys=tf.ones_like(y)))

    for shape in [(2, 9, 8, 3), (1, 8, 9, 3), (3, 2, 1, 3)]:
        case = Case(shape, (3, 3, 3, 4), strides=(2, 2), padding="same")
        ones = np.ones(case.v.shape, np.float32)
        y, dx, dw = step(case.x, case.w)
        case.check("forward", y)
        case.check("backward_data", dx, y=ones)
        case.check("backward_filter", dw, y=ones)
    assert traces["step"] == 1


def test_input_smaller_than_the_kernel_at_run_time():
    case = Case(x=(2, 9, 9, 3), w=(5, 5, 3, 4))
    step = case.compiled(False, sizes_known=False)
    with pytest.raises(tf.errors.InvalidArgumentError, match="output size would be negative"):
        step(case.x[:, :3, :3], case.w, case.v[:, :0, :0])


@pytest.mark.parametrize("mode", ["eager", "graph", "xla"])
def test_empty_batch(mode):
    case = Case(x=(2, 9, 9, 3), w=(3, 3, 3, 6))
    case.x, case.v = case.x[:0], case.v[:0]
    y, dx, dw = MODES[mode](case)(case.x, case.w, case.v)
    assert (y.shape, dx.shape) == ((0, 7, 7, 6), (0, 9, 9, 3))
    np.testing.assert_array_equal(dw, np.zeros((3, 3, 3, 6)))
    assert registry.collect() == ([], 0)
    assert registry.stats()["measured"] == 0


def test_every_mode_runs_the_same_keys():
    case = Case(**CASES["groups"])
    for mode in MODES.values():
        mode(case)(case.x, case.w, case.v)
    keys = {record.key for record in registry.collect()[0]}
    assert keys == {case.descriptor.with_direction(direction).key for direction in DIRECTIONS}
    assert registry.stats()["measured"] == 3


def test_unwatched_input_costs_no_gradient():
    case = Case(**CASES["plain"])
    with tf.GradientTape() as tape:
        tape.watch(case.w)
        y = case(case.x, case.w)
    case.check("backward_filter", tape.gradient(y, case.w, output_gradients=case.v))
    directions = {ConvDescriptor.from_key(record.key).direction for record in registry.collect()[0]}
    assert directions == {"forward", "backward_filter"}


@pytest.fixture
def engine_that_is_not_exact(tmp_path):
    """With one open beside oneDNN, what is asked for makes a difference on the CPU too."""
    library = build_fake_engine(tmp_path)
    ctypes.CDLL(str(library)).fake_set_device_kind(lib.TC_CPU)
    check(lib.tc_engine_load(str(library).encode()))
    yield
    check(lib.tc_engine_close(b"fake"))


def test_determinism_is_in_the_key(engine_that_is_not_exact):
    determinism = pytest.importorskip("tensorflow.python.framework.config")
    tf.config.experimental.enable_op_determinism()
    try:
        for jit_compile in (False, True):
            case = Case(x=(2, 6 + jit_compile, 6, 3), w=(3, 3, 3, 4))
            case.compiled(jit_compile)(case.x, case.w, case.v)
    finally:
        determinism.disable_op_determinism()
    keys = [record.key for record in registry.collect()[0]]
    assert len(keys) == 6
    assert all("|deterministic=1|" in key for key in keys)


def test_threads_share_the_registry():
    cases = [Case(x=(2, 8 + i % 2, 9, 3), w=(3, 3, 3, 4), padding="same") for i in range(8)]
    exact = config.override(batch_policy="exact")  # else the later of the two sizes may copy
    with exact, concurrent.futures.ThreadPoolExecutor(8) as pool:
        results = list(pool.map(lambda case: [case.step(case.x, case.w, case.v) for _ in range(3)], cases))
    for case, steps in zip(cases, results, strict=True):
        for y, dx, dw in steps:
            case.check("forward", y)
            case.check("backward_data", dx)
            case.check("backward_filter", dw)
    assert registry.stats()["measured"] == 6


class _Autocasting(keras.layers.Layer):
    def build(self, shape):
        self.kernel = self.add_weight(shape=(3, 3, 2, 4), initializer="ones")

    def call(self, x):
        return convolution(x, self.kernel, **PLAIN)


@pytest.mark.parametrize("policy", ["float32", "mixed_bfloat16"])
def test_kernel_is_a_keras_variable(policy):
    layer = _Autocasting(dtype=policy)
    y = layer(tf.ones((1, 5, 5, 2)))
    assert y.dtype == layer.compute_dtype
    np.testing.assert_array_equal(tf.cast(y, "float32"), np.full((1, 3, 3, 4), 18.0))


# ---- what is left to Keras ------------------------------------------------------------------------------


LEFT_TO_KERAS = {
    "integers": {"x": tf.ones((1, 5, 5, 2), tf.int32), "w": tf.ones((3, 3, 2, 4), tf.int32)},
    "complex numbers": {"x": tf.ones((1, 5, 5, 2), tf.complex64), "w": tf.ones((3, 3, 2, 4), tf.complex64)},
    "two dtypes": {"x": tf.ones((1, 5, 5, 2)), "w": tf.ones((3, 3, 2, 4), tf.bfloat16)},
    "wrong channels": {"x": tf.ones((1, 5, 5, 3)), "w": tf.ones((3, 3, 2, 4))},
    "wrong rank": {"x": tf.ones((5, 5, 2)), "w": tf.ones((3, 3, 2, 4))},
    "rank 1": {"x": tf.ones((5,)), "w": tf.ones((5,))},
    "four spatial axes": {"x": tf.ones((1, 2, 2, 2, 2, 2)), "w": tf.ones((1, 1, 1, 1, 2, 2))},
    "empty output": {"x": tf.ones((1, 2, 2, 2)), "w": tf.ones((3, 3, 2, 4))},
    "empty image": {"x": tf.ones((1, 0, 5, 2)), "w": tf.ones((3, 3, 2, 4))},
    "no filters": {"x": tf.ones((1, 5, 5, 2)), "w": tf.ones((3, 3, 2, 0))},
    "a ragged tensor": {
        "x": tf.RaggedTensor.from_row_lengths(tf.ones((3, 5, 2)), [1, 2]),
        "w": tf.ones((1, 1, 2, 4)),
    },
    "an array": {"x": np.ones((1, 5, 5, 2), np.float32), "w": tf.ones((3, 3, 2, 4))},
}


@pytest.mark.parametrize("name", LEFT_TO_KERAS)
def test_left_to_keras_without_a_word(name):
    """Keras then gives its own result or its own error."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert convolution(LEFT_TO_KERAS[name]["x"], LEFT_TO_KERAS[name]["w"], **PLAIN) is None
    assert registry.stats()["fallbacks"] == 0


def test_unknown_rank_or_channels_are_left_to_keras():
    @tf.function(input_signature=[tf.TensorSpec([1, 5, 5, 2])])
    def trace(x):
        for shape in (None, [None, 5, 5, None]):
            forgotten = tf.raw_ops.PlaceholderWithDefault(input=x, shape=shape)
            assert forgotten.shape.rank is None or forgotten.shape[-1] is None
            assert convolution(forgotten, tf.ones((3, 3, 2, 4)), **PLAIN) is None

    trace.get_concrete_function()


def test_dtype_the_engine_lacks_is_told_once():
    case = {"x": (1, 5, 5, 2), "w": (3, 3, 2, 4), "dtype": "float64"}
    if engines.supported(Case(**case).descriptor):
        pytest.skip("this engine has float64")
    w = tf.ones((3, 3, 2, 4), tf.float64)
    with warnings.catch_warnings(record=True, action="always") as told:
        for size in (5, 6):
            assert convolution(tf.ones((1, size, 5, 2), tf.float64), w, **PLAIN) is None
    (warning,) = own_warnings(told)
    assert "float64" in str(warning.message)
    assert registry.stats()["fallbacks"] == 2


@pytest.mark.parametrize("graph", [False, True], ids=["eager", "graph"])
def test_device_of_a_call_where_there_is_a_gpu(monkeypatch, graph):
    monkeypatch.setattr(placement, "_has_gpu", lambda: True)
    found = []

    def call():
        found.append(placement.device_of_call())
        with tf.device("CPU:0"):
            found.append(placement.device_of_call())
        with tf.device("GPU:1"):
            found.append(placement.device_of_call())

    tf.function(call).get_concrete_function() if graph else call()
    assert found == ["cuda", "cpu", "cuda"]


def test_foreign_machines_are_left_to_keras(monkeypatch):
    class Elsewhere(tf.distribute.ParameterServerStrategy):
        def __init__(self):
            pass

    monkeypatch.setattr(tf.distribute, "get_strategy", Elsewhere)
    results = []

    @tf.function
    def trace(x, w):
        results.append(convolution(x, w, **PLAIN))

    with pytest.warns(TuningWarning, match="parameter server"):
        trace(tf.ones((1, 5, 5, 2)), tf.ones((3, 3, 2, 4)))
    assert results == [None]


def test_a_library_that_cannot_be_built_is_told_once(monkeypatch):
    def fail():
        raise BuildError("there is no compiler", "Install one.")

    monkeypatch.setattr(operations, "op_library", fail)
    with warnings.catch_warnings(record=True, action="always") as told:
        for size in (9, 10):
            assert convolution(tf.ones((2, size, 8, 5)), tf.ones((3, 3, 5, 7)), **PLAIN) is None
    (warning,) = own_warnings(told)
    assert "no compiler. Install one." in str(warning.message)


def test_without_xla_kernels_jit_compile_is_left_to_keras(monkeypatch):
    monkeypatch.setattr(library.op_library(), "xla", False)
    case = Case(**CASES["plain"])
    results = []

    def trace(x, w):
        results.append(convolution(x, w, **case.arguments))
        return x

    tf.function(trace, jit_compile=False)(case.x, case.w)
    with pytest.warns(TuningWarning, match="without XLA kernels"):
        tf.function(trace, jit_compile=True)(case.x, case.w)
    assert results[0] is not None
    assert results[1] is None


# ---- the ops themselves ---------------------------------------------------------------------------------


@pytest.fixture
def ops():
    return library.op_library().ops


GEOMETRY = {"strides": [1, 1], "padding": "VALID", "dilations": [1, 1]}


@pytest.mark.parametrize("jit_compile", [False, True], ids=["graph", "xla"])
def test_explicit_padding(ops, jit_compile):
    descriptor = forward_descriptor(
        (2, 6, 7, 3), (3, 2, 3, 4), strides=(2, 1), padding=[(2, 0), (1, 3)], dilation_rate=(1, 2)
    )
    arrays = random_operands(descriptor)
    x, w, v = (tf.constant(a) for a in arrays)
    attributes = {
        "strides": [2, 1],
        "padding": "EXPLICIT",
        "explicit_paddings": [2, 0, 1, 3],
        "dilations": [1, 2],
        "groups": 1,
    }

    @tf.function(jit_compile=jit_compile)
    def all_directions():
        return (
            ops.tuned_conv_forward(x, w, **attributes),
            ops.tuned_conv_backward_data(tf.constant([2, 6, 7, 3], tf.int64), w, v, **attributes),
            ops.tuned_conv_backward_filter(x, tf.constant([3, 2, 3, 4], tf.int32), v, **attributes),
        )

    for direction, value in zip(DIRECTIONS, all_directions(), strict=True):
        expect(descriptor.with_direction(direction), *arrays).check(np.asarray(value))


BAD_ATTRIBUTES = {
    "zero stride": (dict(GEOMETRY, strides=[0, 1]), "must be positive"),
    "negative dilation": (dict(GEOMETRY, dilations=[1, -1]), "must be positive"),
    "four strides": (dict(GEOMETRY, strides=[1, 1, 1, 1]), "1 to 3 spatial axes"),
    "padding of another kind": (dict(GEOMETRY, explicit_paddings=[1, 1]), "explicit_paddings must hold"),
    "negative padding": (
        dict(GEOMETRY, padding="EXPLICIT", explicit_paddings=[1, 1, -1, 1]),
        "explicit_paddings must hold",
    ),
    "other rank": ({"strides": [1], "padding": "SAME", "dilations": [1]}, "rank"),
    "groups that do not fit": (dict(GEOMETRY, groups=2), "input channels|Dimensions must be equal"),
}


@pytest.mark.parametrize("graph", [False, True], ids=["eager", "graph"])
@pytest.mark.parametrize("name", BAD_ATTRIBUTES)
def test_bad_attributes(ops, name, graph):
    attributes, message = BAD_ATTRIBUTES[name]

    def call():
        return ops.tuned_conv_forward(tf.ones((1, 5, 5, 4)), tf.ones((3, 3, 4, 6)), **attributes)

    with pytest.raises((tf.errors.InvalidArgumentError, ValueError), match=message):
        (tf.function(call) if graph else call)()


def test_gradient_of_another_output_shape(ops):
    x, w = tf.ones((1, 5, 5, 2)), tf.ones((3, 3, 2, 4))
    with pytest.raises(
        tf.errors.InvalidArgumentError, match=r"shape \[1,3,3,4\]. Received: shape \[1,3,2,4\]"
    ):
        ops.tuned_conv_backward_filter(x, w.shape, tf.ones((1, 3, 2, 4)), **GEOMETRY)
    with pytest.raises(tf.errors.InvalidArgumentError):
        ops.tuned_conv_backward_data([1, -5, 5, 2], w, tf.ones((1, 3, 3, 4)), **GEOMETRY)


def test_shape_functions(ops):
    """What is known of the inputs reaches the output, through the tensors that hold shapes too."""
    shapes = {}

    @tf.function(input_signature=[tf.TensorSpec([None, None, 8, 2]), tf.TensorSpec([3, 3, 2, 4])])
    def trace(x, w):
        y = ops.tuned_conv_forward(x, w, **GEOMETRY)
        shapes["y"] = y.shape.as_list()
        shapes["dx"] = ops.tuned_conv_backward_data(tf.shape(x), w, y, **GEOMETRY).shape.as_list()
        shapes["dw"] = ops.tuned_conv_backward_filter(x, tf.shape(w), y, **GEOMETRY).shape.as_list()
        anything = tf.raw_ops.PlaceholderWithDefault(input=x, shape=None)
        shapes["of unknown rank"] = ops.tuned_conv_forward(anything, w, **GEOMETRY).shape.as_list()

    trace.get_concrete_function()
    assert shapes == {
        "y": [None, None, 6, 4],
        "dx": [None, None, 8, 2],
        "dw": [3, 3, 2, 4],
        "of unknown rank": [None, None, None, 4],
    }
