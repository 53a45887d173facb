"""TunedConv2D is Conv2D in all but who convolves."""

import copy
import inspect
import pickle
import subprocess
import sys

import keras
import numpy as np
import pytest
from tuning_data import build, entries, fill

import keras_tunedconv
from keras_tunedconv.core import registry
from keras_tunedconv.layers import tuned_conv2d
from keras_tunedconv.layers.tuned_conv2d import TunedConv2D

BACKEND = keras.backend.backend()
Conv2D = keras.layers.Conv2D

ARGUMENTS = {
    "plain": {"filters": 4, "kernel_size": 3},
    "same_strided": {"filters": 4, "kernel_size": (3, 5), "strides": (2, 1), "padding": "SAME"},
    "dilated": {"filters": 4, "kernel_size": 3, "dilation_rate": (2, 1)},
    "grouped": {"filters": 6, "kernel_size": 3, "groups": 3},
    "everything": {
        "filters": 4,
        "kernel_size": 3,
        "activation": "relu",
        "use_bias": False,
        "kernel_initializer": "ones",
        "bias_initializer": "ones",
        "kernel_regularizer": "l2",
        "bias_regularizer": "l1",
        "activity_regularizer": "l2",
        "kernel_constraint": "max_norm",
        "bias_constraint": "non_neg",
        "dtype": "mixed_bfloat16",
        "name": "mine",
        "trainable": False,
        "lora_rank": None,
    },
    "lora": {"filters": 4, "kernel_size": 3, "lora_rank": 2, "lora_alpha": 3},
}


@pytest.fixture
def calls(monkeypatch):
    """Calls that reach the bridge, which then declines them."""
    reached = []

    def decline(inputs, kernel, **arguments):
        reached.append(arguments)

    monkeypatch.setattr(tuned_conv2d, "convolution", decline)
    return reached


def images(*shape):
    return np.random.default_rng(0).standard_normal(shape).astype("float32")


def twins(channels=3, size=9, **arguments):
    """A stock and a tuned layer with the same weights."""
    layers = [layer_class(**arguments) for layer_class in (Conv2D, TunedConv2D)]
    for layer in layers:
        layer.build((None, size, size, channels))
    layers[1].set_weights(layers[0].get_weights())
    return layers


# ---- identity --------------------------------------------------------------------------------------


def test_it_has_the_name_that_weights_files_are_keyed_by():
    assert TunedConv2D.__name__ == "Conv2D"
    assert keras.saving.get_registered_name(TunedConv2D) == "keras_tunedconv>TunedConv2D"
    assert keras.saving.get_registered_object("keras_tunedconv>TunedConv2D") is TunedConv2D
    assert keras_tunedconv.TunedConv2D is TunedConv2D


def test_it_says_what_it_is():
    assert repr(TunedConv2D(4, 3, name="first")) == "<TunedConv2D name=first, built=False>"
    stock = inspect.signature(Conv2D).parameters
    own = dict(inspect.signature(TunedConv2D).parameters)
    assert own.pop("algorithm").default is None
    assert own == dict(stock)
    assert TunedConv2D.__doc__


def test_layers_get_the_names_that_stock_ones_would():
    keras.utils.clear_session()
    stock = [Conv2D(1, 1).name for _ in range(3)]
    keras.utils.clear_session()
    assert [TunedConv2D(1, 1).name for _ in range(3)] == stock


@pytest.mark.parametrize("arguments", ARGUMENTS.values(), ids=ARGUMENTS)
def test_configs_are_those_of_the_stock_layer(arguments):
    keras.utils.clear_session()
    stock = Conv2D(**arguments).get_config()
    keras.utils.clear_session()
    tuned = TunedConv2D(**arguments)
    assert tuned.get_config() == stock
    assert TunedConv2D.from_config(tuned.get_config()).get_config() == stock
    assert Conv2D.from_config(tuned.get_config()).get_config() == stock


def test_a_subclass_is_named_by_itself():
    @keras.saving.register_keras_serializable("test")
    class Mine(TunedConv2D):
        pass

    layer = Mine(2, 1)
    assert layer.name.startswith("mine")
    assert repr(layer).startswith("<test_a_subclass_is_named_by_itself.<locals>.Mine name=mine")
    serialized = keras.saving.serialize_keras_object(layer)
    assert type(keras.saving.deserialize_keras_object(serialized)) is Mine


# ---- copies ----------------------------------------------------------------------------------------


def test_serialized_layers_come_back():
    layer = TunedConv2D(4, 3, name="mine")
    serialized = keras.saving.serialize_keras_object(layer)
    assert serialized["registered_name"] == "keras_tunedconv>TunedConv2D"
    assert type(keras.saving.deserialize_keras_object(serialized)) is TunedConv2D


@pytest.mark.parametrize("duplicate", [copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m))])
@pytest.mark.parametrize("kind", ["functional", "sequential"])
def test_copies_of_models_have_weights_and_entries(kind, duplicate):
    model = build(kind, TunedConv2D)
    fill(model)
    twin = duplicate(model)
    assert entries(twin) == entries(model)
    for mine, its in zip(model.get_weights(), twin.get_weights(), strict=True):
        np.testing.assert_array_equal(mine, its)


@pytest.mark.parametrize("duplicate", [copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m))])
def test_copies_of_layers_have_weights_and_entries(duplicate):
    layer = TunedConv2D(4, 3)
    model = keras.Sequential([keras.Input((16, 16, 3)), layer])
    fill(model)
    twin = duplicate(layer)
    assert type(twin) is TunedConv2D
    assert len(twin.tuning.records()) == 3
    np.testing.assert_array_equal(twin.get_weights()[0], layer.get_weights()[0])


def test_a_pickled_layer_loads_where_the_package_was_not_imported(tmp_path):
    layer = TunedConv2D(4, 3)
    layer.build((None, 9, 9, 3))
    file = tmp_path / "layer.pickle"
    file.write_bytes(pickle.dumps(layer))
    code = f"import pickle; print(pickle.load(open({str(file)!r}, 'rb')))"
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert "<TunedConv2D name=" in printed


def test_clones_are_tuned_layers_without_entries():
    model = build("functional", TunedConv2D)
    fill(model)
    clone = keras.models.clone_model(model)
    assert entries(clone) == [[], []]
    assert entries(model) != [[], []]


# ---- calls -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("arguments", ARGUMENTS.values(), ids=ARGUMENTS)
def test_a_declined_call_is_the_stock_layers(arguments, calls):
    stock, tuned = twins(**arguments)
    x = images(2, 9, 9, 3)
    np.testing.assert_array_equal(
        keras.ops.convert_to_numpy(keras.ops.cast(tuned(x), "float32")),
        keras.ops.convert_to_numpy(keras.ops.cast(stock(x), "float32")),
    )
    assert len(calls) == 1
    assert calls[0]["groups"] == stock.groups
    assert calls[0]["padding"] == stock.padding


@pytest.mark.parametrize("arguments", ARGUMENTS.values(), ids=ARGUMENTS)
def test_outputs_are_the_stock_layers(arguments):
    stock, tuned = twins(**arguments)
    x = images(2, 9, 9, 3)
    expected, received = (
        keras.ops.convert_to_numpy(keras.ops.cast(layer(x), "float32")) for layer in (stock, tuned)
    )
    tolerance = 2e-2 if "bfloat16" in str(arguments.get("dtype")) else 1e-5
    np.testing.assert_allclose(received, expected, rtol=tolerance, atol=tolerance)


def test_the_bridge_is_called_with_the_kernel_in_the_compute_dtype(monkeypatch):
    seen = []
    monkeypatch.setattr(tuned_conv2d, "convolution", lambda x, k, **_: seen.append((x.dtype, k.dtype)))
    TunedConv2D(4, 3, dtype="mixed_bfloat16")(images(1, 9, 9, 3))
    assert [keras.backend.standardize_dtype(dtype) for dtype in seen[0]] == ["bfloat16", "bfloat16"]


def test_lora_convolves_with_the_merged_kernel(calls):
    stock, tuned = twins(filters=4, kernel_size=3)
    for layer in (stock, tuned):
        layer.enable_lora(2)
        layer.lora_kernel_b.assign(images(*layer.lora_kernel_b.shape))
    tuned.lora_kernel_a.assign(stock.lora_kernel_a)
    x = images(2, 9, 9, 3)
    expected, received = (keras.ops.convert_to_numpy(layer(x)) for layer in (stock, tuned))
    np.testing.assert_allclose(received, expected, rtol=1e-5, atol=1e-5)
    assert len(calls) == 1


def test_symbolic_calls_record_and_run_nothing(calls):
    layer = TunedConv2D(4, 3)
    assert layer(keras.Input((9, 9, 3))).shape == (None, 7, 7, 4)
    assert layer.compute_output_spec(keras.KerasTensor((2, 9, 9, 3))).shape == (2, 7, 7, 4)
    assert layer.convolution_op(keras.KerasTensor((2, 9, 9, 3)), layer.kernel).shape == (2, 7, 7, 4)
    assert calls == []
    assert layer.tuning._entries.traces == set()


def test_shape_inference_through_a_layer_around_it_records_nothing(calls):
    class Around(keras.layers.Layer):
        def __init__(self):
            super().__init__()
            self.inner = TunedConv2D(4, 3)

        def call(self, inputs):
            return self.inner(inputs)

    outputs = Around()(keras.Input((9, 9, 3)))
    assert outputs.shape == (None, 7, 7, 4)
    assert calls == []


def test_what_runs_tuned_is_noted_once():
    layer = TunedConv2D(4, 3)
    for _ in range(3):
        layer(images(2, 9, 9, 3))
    layer(images(5, 9, 9, 3))
    sizes = [dict(trace)["x_shape"] for trace in layer.tuning._entries.traces]
    assert sorted(sizes) in ([], [(2, 9, 9, 3), (5, 9, 9, 3)])  # nothing where there is no engine


# ---- what is wrong is wrong as ever ----------------------------------------------------------------

BAD_ARGUMENTS = {
    "no filters": {"filters": 0, "kernel_size": 3},
    "negative kernel": {"filters": 2, "kernel_size": (-1, 3)},
    "zero kernel": {"filters": 2, "kernel_size": 0},
    "zero stride": {"filters": 2, "kernel_size": 3, "strides": 0},
    "strides with dilation": {"filters": 2, "kernel_size": 3, "strides": 2, "dilation_rate": 2},
    "groups": {"filters": 3, "kernel_size": 3, "groups": 2},
    "padding": {"filters": 2, "kernel_size": 3, "padding": "causal"},
    "data format": {"filters": 2, "kernel_size": 3, "data_format": "middle"},
    "unknown argument": {"filters": 2, "kernel_size": 3, "tuning": True},
    "missing argument": {"filters": 2},
}

ODD_INPUTS = {
    "rank": images(9, 9, 3),
    "channels": images(1, 9, 9, 4),
    "smaller than the kernel": images(1, 2, 2, 3),
    "integers": np.ones((1, 9, 9, 3), "int32"),
    "text": "x",
}


def outcome(function):
    """The type of the exception, or `None`."""
    try:
        function()
    except Exception as error:
        return type(error)
    return None


@pytest.mark.parametrize("arguments", BAD_ARGUMENTS.values(), ids=BAD_ARGUMENTS)
def test_bad_arguments_raise_what_the_stock_layer_raises(arguments):
    expected = outcome(lambda: Conv2D(**arguments))
    assert expected is not None
    assert outcome(lambda: TunedConv2D(**arguments)) is expected


@pytest.mark.parametrize("inputs", ODD_INPUTS.values(), ids=ODD_INPUTS)
def test_odd_inputs_end_as_with_the_stock_layer_and_errors_measure_nothing(inputs):
    stock, tuned = twins(filters=4, kernel_size=3)
    expected = outcome(lambda: stock(inputs))
    assert outcome(lambda: tuned(inputs)) is expected
    if expected is not None:  # JAX and torch cast integers
        assert registry.stats()["measured"] == 0
        assert registry.collect()[0] == []


@pytest.mark.parametrize("mode", ["int8", "int4", "float8"])
def test_quantizing_ends_as_with_the_stock_layer(mode):
    stock, tuned = twins(filters=4, kernel_size=3)
    assert outcome(lambda: tuned.quantize(mode)) is outcome(lambda: stock.quantize(mode))


def test_a_kernel_before_building_is_the_stock_layers_error():
    assert outcome(lambda: TunedConv2D(2, 1).kernel) is outcome(lambda: Conv2D(2, 1).kernel) is AttributeError
