"""What several tests of files need."""

import pytest
from tuning_data import build, fill

from keras_tunedconv.core import registry
from keras_tunedconv.layers.tuned_conv2d import TunedConv2D


@pytest.fixture
def saved(tmp_path):
    """A model, and its weights file with entries."""
    model = build("sequential", TunedConv2D)
    fill(model)
    path = tmp_path / "m.weights.h5"
    model.save_weights(path)
    registry.clear()
    return model, path
