"""torch.compile finds no more to stumble over in the tuned layer than in Keras's own."""

import keras
import numpy as np
import pytest

from keras_tunedconv.layers.tuned_conv2d import TunedConv2D

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(keras.backend.backend() != "torch", reason="torch's compiler"),
]


def graph_breaks(layer_class):
    import torch._dynamo

    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    layers = [keras.Input((12, 12, 3)), layer_class(4, 3), layer_class(4, 3, groups=2)]
    model = keras.Sequential([*layers, keras.layers.GlobalAveragePooling2D()])
    model.compile("sgd", "mse", jit_compile=True)
    model.fit(np.ones((16, 12, 12, 3), "float32"), np.ones((16, 4)), batch_size=8, epochs=2, verbose=0)
    return sum(torch._dynamo.utils.counters["graph_break"].values()), model


def test_compiled_steps_break_no_more_graphs_and_are_noted():
    stock, _ = graph_breaks(keras.layers.Conv2D)
    tuned, model = graph_breaks(TunedConv2D)
    assert tuned <= stock
    for layer in model.layers[:2]:
        layer.tuning.collect()
        assert len(layer.tuning.records()) >= 2
