"""Batch and image sizes that vary in real training, under the active backend."""

from __future__ import annotations

from collections import Counter
from itertools import count

import keras
import numpy as np
import pytest

from keras_tunedconv import TunedConv2D, fill
from keras_tunedconv.core import registry
from keras_tunedconv.core.config import config
from keras_tunedconv.core.descriptor import DIRECTIONS, ConvDescriptor
from keras_tunedconv.core.library import lib
from keras_tunedconv.core.record import Provenance
from keras_tunedconv.eager import EagerConvolution

pytestmark = [
    pytest.mark.skipif(lib is None, reason="needs the compiled core"),
    pytest.mark.skipif(keras.backend.backend() == "numpy", reason="there is no bridge to the numpy backend"),
]


# Each model has convolutions of its own: what oneDNN lists changes once it has run a convolution, and with
# it what may be copied.
_filters = count(3)


def small_model() -> keras.Model:
    filters = next(_filters)
    model = keras.Sequential(
        [
            keras.Input((8, 8, 2)),
            TunedConv2D(filters, 3, padding="same", activation="relu"),
            TunedConv2D(filters, 3),
            keras.layers.Flatten(),
            keras.layers.Dense(1),
        ]
    )
    model.compile("sgd", "mse")
    return model


def data(size: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(size)
    return rng.random((size, 8, 8, 2), "float32"), rng.random((size, 1), "float32")


class Measured(keras.callbacks.Callback):
    """How many keys had been measured at the end of each epoch."""

    def __init__(self):
        super().__init__()
        self.counts = []

    def on_epoch_end(self, epoch, logs=None):
        self.counts.append(registry.stats()["measured"])


def fit(model: keras.Model) -> list[int]:
    measured = Measured()
    x, y = data(10)
    model.fit(
        x, y, batch_size=4, epochs=3, validation_data=data(6), validation_batch_size=3, callbacks=[measured],
        verbose=0,
    )  # fmt: skip
    return measured.counts


def kinds() -> Counter:
    """How many records each filter, direction and provenance has."""
    records = registry.collect()[0]
    return Counter((ConvDescriptor.from_key(r.key).w_dims, r.direction, r.provenance) for r in records)


def test_a_short_batch_and_validation_measure_nothing():
    counts = fit(small_model())
    measured = {kind: n for kind, n in kinds().items() if kind[2] is Provenance.MEASURED}
    assert len(measured) >= 5  # all but, in some backends, the gradient of the model's input
    assert set(measured.values()) == {1}  # at most three are allowed
    assert counts == [len(measured)] * 3  # all in the first epoch
    stats = registry.stats()
    assert stats["copied"] >= len(measured)  # the last two samples; validation's three, forward
    assert (stats["hits"], stats["defaults"], stats["fallbacks"]) == (0, 0, 0)


def test_exact_measures_each_size_and_still_in_the_first_epoch():
    config.batch_policy = "exact"
    counts = fit(small_model())
    assert {kind[2] for kind in kinds()} == {Provenance.MEASURED}
    assert max(kinds().values()) == 3  # batches of 4, 2 and 3
    assert len(set(counts)) == 1


def test_a_size_that_comes_back_often_is_measured():
    config.copies_before_measuring = 2
    model = small_model()
    model.predict(data(4)[0], verbose=0)
    for expected in (2, 2, 4):
        model.predict(data(3)[0], verbose=0)
        assert registry.stats()["measured"] == expected


def test_copies_are_kept_with_the_layer_and_give_the_same_results(tmp_path):
    model = small_model()
    x, _ = data(6)
    expected = model.predict(x, batch_size=6, verbose=0)
    np.testing.assert_allclose(model.predict(x, batch_size=3, verbose=0), expected, rtol=1e-4, atol=1e-5)
    model.save(tmp_path / "m.keras")
    records = model.layers[0].tuning.records()
    assert sorted(r.provenance for r in records) == [Provenance.MEASURED, Provenance.COPIED]
    registry.clear()
    loaded = keras.saving.load_model(tmp_path / "m.keras")
    loaded.predict(x, batch_size=3, verbose=0)
    assert registry.stats()["copied"] == 2
    assert registry.stats()["measured"] == 0


def test_many_image_sizes_measure_a_few():
    config.maximum_sizes = 2
    layer = TunedConv2D(3, 3, padding="same")
    model = keras.Sequential([keras.Input((None, None, 2)), layer])
    rng = np.random.default_rng(0)
    for _ in range(2):
        for size in range(6, 13):
            x = rng.random((2, size, size + 1, 2), "float32")
            output = np.asarray(keras.ops.convert_to_numpy(model(x)))
            stock = keras.ops.conv(x, layer.kernel, padding="same") + layer.bias
            np.testing.assert_allclose(output, keras.ops.convert_to_numpy(stock), rtol=1e-4, atol=1e-5)
    stats = registry.stats()
    assert (stats["measured"], stats["copied"], stats["defaults"]) == (2, 5, 0)


def test_fill_copies_to_the_listed_sizes():
    model = small_model()
    model.predict(data(4)[0], verbose=0)
    model.predict(data(2)[0], verbose=0)  # copied, so no source
    assert fill(model, [1, 2, 4, 8]) == 4
    records = model.layers[0].tuning.records()
    (measured,) = (r for r in records if r.provenance is Provenance.MEASURED)
    assert sorted(ConvDescriptor.from_key(r.key).x_dims[0] for r in records) == [1, 2, 4, 8]
    assert {(r.algorithm, r.environment) for r in records} == {(measured.algorithm, measured.environment)}
    with config.override(mode="replay"):
        model.predict(data(8)[0], batch_size=8, verbose=0)
    assert registry.stats()["measured"] == 2
    assert fill(model, [8]) == fill(model, 8) == 0
    for bad in ([0], [2.0], ["4"], 0):
        with pytest.raises(ValueError, match="integers of at least 1"):
            fill(model, bad)


def test_forty_image_sizes_measure_no_more_keys_than_a_few_sizes_have():
    """40 batches of 40 sizes, then the same again: few keys whatever comes, none in the second pass."""
    filters = next(_filters)
    arguments = {
        "strides": (1, 1),
        "padding": "same",
        "data_format": "channels_last",
        "dilation_rate": (1, 1),
    }
    measured = []
    for _ in range(2):
        for size in range(6, 46):
            x_shape, kernel_shape = (1, size, size, 2), (3, 3, 2, filters)
            one = EagerConvolution(x_shape, kernel_shape, "float32", **arguments)
            assert all(one.run(direction) for direction in DIRECTIONS)
        measured.append(registry.stats()["measured"])
    assert measured == [config.maximum_sizes * len(DIRECTIONS)] * 2
    sizes = {ConvDescriptor.from_key(r.key).x_dims[2] for r in registry.collect()[0]}
    assert sizes == set(range(6, 46))
    assert registry.stats()["copied"] == (40 - config.maximum_sizes) * len(DIRECTIONS)
