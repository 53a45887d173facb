"""The algorithm that a layer is told to run: which convolutions it reaches, how long, and in which files."""

from __future__ import annotations

import gc
import inspect
import pickle

import keras
import numpy as np
import pytest

from keras_tunedconv import TunedConv2D, override, stats, to_stock, to_tuned
from keras_tunedconv.core import engines
from keras_tunedconv.core.descriptor import DIRECTIONS, forward_descriptor
from keras_tunedconv.layers import algorithms

if keras.backend.backend() not in ("tensorflow", "jax", "torch"):
    pytest.skip("no bridge to this backend", allow_module_level=True)

X_SHAPE = (2, 8, 8, 4)
FORWARD = forward_descriptor(X_SHAPE, (3, 3, 4, 4), padding="same")
MISSING = "none such"


@pytest.fixture(autouse=True)
def no_requests_left():
    yield
    gc.collect()
    for owners in algorithms._asked.values():
        owners.clear()


def make(algorithm=None, name=None, **arguments):
    return TunedConv2D(4, 3, padding="same", algorithm=algorithm, name=name, **arguments)


def run(layer, shape=X_SHAPE):
    x = np.random.default_rng(0).random(shape, "float32")
    return keras.ops.convert_to_numpy(layer(keras.ops.convert_to_tensor(x)))


def counts():
    return {name: stats()[name] for name in ("measured", "hits", "copied", "defaults", "fallbacks")}


NOTHING = dict.fromkeys(("measured", "hits", "copied", "defaults", "fallbacks"), 0)


def test_it_runs_past_the_registry_and_computes_the_same():
    plain, names = make(), engines.candidates(FORWARD)
    expected = run(plain)
    assert len(names) > 1
    before = counts()
    for name in names:
        layer = make(name)
        layer.build(X_SHAPE)
        layer.set_weights(plain.get_weights())
        np.testing.assert_allclose(run(layer), expected, rtol=1e-4, atol=1e-5)
        del layer
        gc.collect()
    assert counts() == before


def test_it_holds_in_compiled_steps_of_every_batch_and_for_the_directions_asked():
    name = engines.candidates(FORWARD)[1]
    model = keras.Sequential([keras.Input(X_SHAPE[1:]), make({"forward": name})])
    model.compile("sgd", "mse")
    x = np.ones((10, *X_SHAPE[1:]), "float32")
    model.predict(x, batch_size=4, verbose=0)
    assert counts() == NOTHING
    assert len(model.layers[0].tuning.forward) == 0
    model.fit(x, x, batch_size=5, verbose=0)
    tuning = model.layers[0].tuning
    tuning.collect()
    assert [len(tuning[direction]) for direction in DIRECTIONS] == [0, 0, 1]
    assert counts()["measured"] == 1


def test_one_that_cannot_run_is_an_error_that_lists_what_can():
    with pytest.raises(Exception, match=f"the override '{MISSING}' cannot run") as caught:
        run(make(MISSING))
    assert engines.candidates(FORWARD)[0] in str(caught.value)


def test_other_convolutions_are_left_alone():
    layer = make(MISSING)
    with pytest.raises(Exception, match=MISSING):
        run(layer)
    run(make(strides=2))
    run(TunedConv2D(4, 3, padding="valid"))
    run(make(), (2, 9, 9, 4))
    assert (counts()["measured"], counts()["copied"]) == (2, 1)
    assert layer.algorithm == MISSING


def test_it_ends_with_the_layer():
    with pytest.raises(Exception, match=MISSING):
        run(make(MISSING))
    keras.backend.clear_session()
    gc.collect()
    run(make())
    assert counts()["measured"] == 1


def test_models_that_nobody_has_any_more_ask_for_nothing():
    x = np.ones(X_SHAPE, "float32")
    gc.disable()
    try:
        for name in engines.candidates(FORWARD)[:2]:
            layer = make({"forward": name})
            model = keras.Sequential([keras.Input(X_SHAPE[1:]), layer])
            del layer
            model.predict(x, verbose=0)
    finally:
        gc.enable()
    assert model.layers[0].algorithm == {"forward": name}


def test_it_can_be_changed_under_a_compiled_step():
    model = keras.Sequential([keras.Input(X_SHAPE[1:]), make()])
    x = np.ones(X_SHAPE, "float32")
    expected = model.predict(x, verbose=0)
    layer = model.layers[0]
    name = engines.candidates(FORWARD)[1]
    layer.algorithm = name
    np.testing.assert_allclose(model.predict(x, verbose=0), expected, rtol=1e-4, atol=1e-5)
    assert layer.algorithm == name
    layer.algorithm = None
    np.testing.assert_allclose(model.predict(x, verbose=0), expected, rtol=1e-4, atol=1e-5)
    assert counts()["measured"] == 1
    layer.algorithm = MISSING
    with pytest.raises(Exception, match=MISSING):  # after which Keras's JAX model has lost its variables
        model.predict(x, verbose=0)


def test_a_block_stands_above_it():
    layer = make(MISSING)
    with override(engines.candidates(FORWARD)[0]):
        run(layer)
    with pytest.raises(Exception, match=MISSING):
        run(layer)


def test_layers_that_contradict_each_other_are_an_error():
    first, second = make("a", name="first"), make({"forward": "b"}, name="second")
    with pytest.raises(Exception, match="cannot run"):
        run(first)
    with pytest.raises(
        ValueError, match=r"'first' and 'second' run the same forward convolution.*'a' and 'b'"
    ):
        run(second)
    other = make("a", name="other")
    with pytest.raises(Exception, match="cannot run"):
        run(other)
    with pytest.raises(ValueError, match="'first' and 'other'"):
        other.algorithm = "b"
    assert other.algorithm == "a"


@pytest.mark.parametrize(
    "bad", ["", "x" * 256, 7, ["forward"], {"sideways": "a"}, {"forward": ""}, {"forward": 1}]
)
def test_bad_ones_are_refused_at_once(bad):
    with pytest.raises(ValueError, match=r"algorithm must be .*'backward_data'.*Received: algorithm="):
        make(bad)
    layer = make("good")
    with pytest.raises(ValueError, match="algorithm must be"):
        layer.algorithm = bad
    assert layer.algorithm == "good"


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ("a", "a"),
        (dict.fromkeys(DIRECTIONS, "a"), "a"),
        ({"backward_data": "b", "forward": "a"}, {"forward": "a", "backward_data": "b"}),
        ({}, None),
        (None, None),
    ],
)
def test_it_is_in_the_configuration_where_it_is_set(given, kept):
    config = make(given).get_config()
    assert config.get("algorithm") == kept
    assert ("algorithm" in config) == (kept is not None)
    assert TunedConv2D.from_config(config).algorithm == kept


def test_it_is_an_argument_by_name():
    parameter = inspect.signature(TunedConv2D).parameters["algorithm"]
    assert parameter.kind is inspect.Parameter.KEYWORD_ONLY


def test_it_survives_saving_and_copying(tmp_path):
    name = engines.candidates(FORWARD)[1]
    model = keras.Sequential(
        [keras.Input(X_SHAPE[1:]), make(name), keras.layers.TimeDistributed(keras.layers.Dense(2))]
    )
    model.save(tmp_path / "model.keras")
    for copy in (keras.saving.load_model(tmp_path / "model.keras"), keras.models.clone_model(model)):
        assert copy.layers[0].algorithm == name
        copy.predict(np.ones(X_SHAPE, "float32"), verbose=0)
    assert counts() == NOTHING
    requests = pickle.loads(pickle.dumps(model.layers[0]._requests))
    assert requests.algorithms == model.layers[0]._requests.algorithms


def test_stock_twins_do_not_have_it(tmp_path):
    inner = keras.Sequential([keras.Input(X_SHAPE[1:]), make("a"), make({"forward": "b"})])
    model = keras.Sequential(
        [
            keras.Input((3, *X_SHAPE[1:])),
            keras.layers.TimeDistributed(make("c")),
            keras.layers.TimeDistributed(inner),
        ]
    )
    stock = to_stock(model)
    assert "algorithm" not in stock.to_json()
    stock.save(tmp_path / "stock.keras")
    assert '"algorithm"' in model.to_json()
    assert to_tuned(stock).layers[0].layer.algorithm is None
