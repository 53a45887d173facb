"""Twins: other convolutions, the same everything else."""

import subprocess
import sys

import keras
import numpy as np
import pytest
from tuning_data import build, entries, fill

from keras_tunedconv import TunedConv2D, to_stock, to_tuned

Conv2D = keras.layers.Conv2D


def kinds(model):
    return [type(layer) for layer in model._flatten_layers() if isinstance(layer, Conv2D)]


def names(model):
    return [layer.name for layer in model.layers if not isinstance(layer, keras.layers.InputLayer)]


def assert_same_weights(first, second):
    for one, other in zip(first.weights, second.weights, strict=True):
        assert one.shape == other.shape
        np.testing.assert_array_equal(*map(keras.ops.convert_to_numpy, (one, other)))


def nested():
    inner = keras.Sequential([keras.Input((8, 8, 3)), Conv2D(4, 3, name="inner_conv")], name="inner")
    inputs = keras.Input((8, 8, 3))
    shared = Conv2D(3, 3, padding="same", name="shared")
    hidden = shared(shared(inputs))
    functional = keras.Model(inputs, inner(hidden), name="middle")
    sequence = keras.Input((2, 8, 8, 3))
    outputs = keras.layers.TimeDistributed(functional)(sequence)
    outputs = keras.layers.TimeDistributed(Conv2D(2, 1, name="wrapped"))(outputs)
    return keras.Model(sequence, outputs, name="outer")


@pytest.mark.parametrize("kind", ["functional", "sequential"])
def test_there_and_back(kind):
    stock = build(kind, Conv2D)
    tuned = to_tuned(stock)
    back = to_stock(tuned)
    assert kinds(stock) == kinds(back) == [Conv2D, Conv2D]
    assert kinds(tuned) == [TunedConv2D, TunedConv2D]
    assert type(tuned) is type(back) is type(stock)
    for twin in (tuned, back):
        assert_same_weights(stock, twin)
        assert names(twin) == names(stock)
        assert twin.name == stock.name


def test_models_inside_models_shared_layers_and_wrappers():
    stock = nested()
    tuned = to_tuned(stock)
    assert kinds(tuned) == [TunedConv2D] * 3
    assert len(tuned.weights) == len(stock.weights)
    assert_same_weights(stock, tuned)
    assert kinds(to_stock(tuned)) == [Conv2D] * 3
    x = np.random.default_rng(0).standard_normal((1, 2, 8, 8, 3)).astype("float32")
    for _ in range(2):  # neither uses up the other's arrays
        received, expected = (model.predict(x, verbose=0) for model in (tuned, stock))
        np.testing.assert_allclose(received, expected, rtol=1e-4, atol=1e-5)


def test_models_with_operations_between_layers():
    inputs = keras.Input((9, 9, 3))
    hidden = Conv2D(3, 3, padding="same")(inputs)
    model = keras.Model(inputs, keras.ops.relu(hidden + 1.0) * inputs)
    tuned = to_tuned(model)
    assert kinds(tuned) == [TunedConv2D]
    x = np.random.default_rng(0).standard_normal((2, 9, 9, 3)).astype("float32")
    received, expected = (each.predict(x, verbose=0) for each in (tuned, model))
    np.testing.assert_allclose(received, expected, rtol=1e-4, atol=1e-5)


def test_the_model_itself_is_not_changed():
    stock = build("functional", Conv2D)
    before = stock.get_weights()
    tuned = to_tuned(stock)
    for weight in tuned.weights:
        weight.assign(np.zeros(weight.shape))
    for one, other in zip(before, stock.get_weights(), strict=True):
        np.testing.assert_array_equal(one, other)


def test_weights_that_a_layer_reorders_are_found_by_their_place():
    model = keras.Sequential([keras.Input((9, 9, 3)), Conv2D(4, 3), Conv2D(2, 3)])
    model.layers[0].trainable = False
    model.layers[1].enable_lora(2)
    model.layers[1].lora_kernel_b.assign(np.ones((2, 2)))
    tuned = to_tuned(model)
    assert_same_weights(model, tuned)
    assert tuned.layers[0].trainable is False
    assert tuned.layers[1].lora_rank == 2


def test_dtype_policies_and_arguments_are_kept():
    model = keras.Sequential(
        [keras.Input((9, 9, 3)), Conv2D(4, 3, dtype="mixed_bfloat16", kernel_regularizer="l2")]
    )
    layer = to_tuned(model).layers[0]
    assert layer.get_config() == model.layers[0].get_config()


def test_a_stock_twin_has_no_entries_and_opens_without_the_package(tmp_path):
    tuned = build("functional", TunedConv2D)
    fill(tuned)
    to_stock(tuned).save(tmp_path / "plain.keras")
    with keras.saving.custom_object_scope({}):
        loaded = keras.models.load_model(tmp_path / "plain.keras")
    assert kinds(loaded) == [Conv2D, Conv2D]
    assert entries(to_tuned(tuned)) == [[], []]


WITHOUT_THE_PACKAGE = """
import sys
sys.modules["keras_tunedconv"] = None  # as if it were not installed
import keras
try:
    print(keras.models.load_model(sys.argv[1]).name)
except Exception as error:
    print(type(error).__name__, error)
"""


def test_without_the_package_keras_says_what_is_missing_and_opens_the_stock_twin(tmp_path):
    tuned = build("functional", TunedConv2D)
    tuned.save(tmp_path / "tuned.keras")
    to_stock(tuned).save(tmp_path / "stock.keras")

    def opened(name):
        command = [sys.executable, "-c", WITHOUT_THE_PACKAGE, tmp_path / name]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout

    assert opened("stock.keras").strip() == tuned.name
    told = opened("tuned.keras")
    assert told.startswith("TypeError")
    assert "could not be deserialized properly" in told
    assert "keras_tunedconv>TunedConv2D" in told


def test_single_layers():
    layer = Conv2D(4, 3)
    layer.build((None, 9, 9, 3))
    tuned = to_tuned(layer)
    assert type(tuned) is TunedConv2D
    assert_same_weights(layer, tuned)


def test_derived_layers_stay_as_they_are():
    class Mine(Conv2D):
        pass

    model = keras.Sequential([keras.Input((9, 9, 3)), Mine(4, 3), keras.layers.DepthwiseConv2D(3)])
    assert [type(layer) for layer in to_tuned(model).layers] == [Mine, keras.layers.DepthwiseConv2D]


@pytest.mark.parametrize("convert", [to_tuned, to_stock])
def test_what_cannot_be_converted_is_an_error_that_says_how_to_go_on(convert):
    with pytest.raises(ValueError, match="subclassed"):
        convert(build("subclassed", Conv2D))
    with pytest.raises(ValueError, match="not built"):
        convert(keras.Sequential([Conv2D(4, 3)]))


def assert_twins(stock, size):
    """Convert there and back; weights stay, and so do outputs, up to rounding."""
    count = len(kinds(stock))
    assert kinds(stock) == [Conv2D] * count
    tuned = to_tuned(stock)
    assert kinds(tuned) == [TunedConv2D] * count
    assert_same_weights(stock, tuned)
    back = to_stock(tuned)
    assert kinds(back) == [Conv2D] * count
    assert_same_weights(stock, back)
    x = np.random.default_rng(0).uniform(0, 255, (2, size, size, 3)).astype("float32")
    received, expected = (model.predict(x, verbose=0) for model in (tuned, stock))
    assert np.ptp(expected) > 0
    np.testing.assert_allclose(received, expected, rtol=0, atol=1e-3 * np.ptp(expected))


def application(name, size, **arguments):
    """One without its classifier, whose softmax of untrained features would be the same for all models."""
    arguments = {"weights": None, "include_top": False, "input_shape": (size, size, 3), **arguments}
    return getattr(keras.applications, name)(**arguments)


def test_the_first_blocks_of_an_application():
    whole = application("MobileNetV3Small", 32)
    assert_twins(keras.Model(whole.inputs, whole.layers[45].output), size=32)


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("name", ["ResNet50", "EfficientNetB0", "ConvNeXtTiny", "MobileNetV3Small"])
def test_applications(name):
    assert_twins(application(name, 64), size=64)
