"""The model builders, and the sets of problems that were taken from the models."""

import importlib.util

import pytest

from keras_tunedconv.bench.problem import load_set, model_set_names

if not any(importlib.util.find_spec(name) for name in ("tensorflow", "jax", "torch")):
    pytest.skip("needs a Keras backend", allow_module_level=True)

import keras

import keras_tunedconv
from keras_tunedconv.bench import models


def some(*names):
    """All models; those not named in the slow run only, since building one takes seconds."""
    return [n if n in names else pytest.param(n, marks=pytest.mark.slow) for n in sorted(models.MODELS)]


def test_each_set_that_is_named_after_a_model_has_one():
    assert set(model_set_names()) == set(models.MODELS)


@pytest.mark.parametrize("name", some("resnext50", "unet"))
def test_a_set_holds_the_models_convolutions(name):
    found = models.convolutions(models.build(name, 224), batch=8)
    expected = load_set(name)
    assert {p.text for p in found} == {p.text for p in expected}


@pytest.mark.parametrize("name", some("mobilenet_v3"))
def test_every_model_has_a_tuned_twin(name):
    model = models.build(name, 64)
    twin = keras_tunedconv.to_tuned(model)
    stock = [layer for layer in model._flatten_layers() if type(layer) is keras.layers.Conv2D]
    tuned = [layer for layer in twin._flatten_layers() if isinstance(layer, keras_tunedconv.TunedConv2D)]
    assert [layer.name for layer in tuned] == [layer.name for layer in stock]
    assert stock


def test_resnext50_has_its_published_size():
    # 25.0 million parameters (Xie et al., table 1), batch normalisation's moving statistics aside.
    assert round(models.build("resnext50", 224).count_params() / 1e6) == 25


def test_unet_scores_every_pixel():
    assert models.build("unet", 64).output.shape == (None, 64, 64, 1)


def test_an_unknown_model_lists_those_there_are():
    with pytest.raises(ValueError, match="resnext50"):
        models.build("resnet51")
