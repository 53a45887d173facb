"""Stock and tuned models in one process, in turn: that they train, and what is counted."""

import json
import math
import statistics

import keras
import pytest
from click.testing import CliRunner

from keras_tunedconv.bench import models
from keras_tunedconv.cli.bench import bench
from keras_tunedconv.core import registry

BACKEND = keras.backend.backend()
pytestmark = pytest.mark.skipif(
    BACKEND not in ("tensorflow", "jax", "torch"), reason="no bridge to this backend"
)


def tiny(size):
    x = inputs = keras.Input((size, size, 3))
    for filters in (8, 4):
        x = keras.layers.Conv2D(filters, 3, strides=2, activation="relu")(x)
    x = keras.layers.GlobalAveragePooling2D()(x)
    return keras.Model(inputs, keras.layers.Dense(models.CLASSES, activation="softmax")(x))


@pytest.fixture
def _tiny_resnet50(monkeypatch):
    monkeypatch.setitem(models.MODELS, "resnet50", tiny)
    monkeypatch.setenv("KERAS_TUNEDCONV_SEARCH_PATH", "0")  # as every test has it, whatever the command sets


@pytest.mark.usefixtures("_tiny_resnet50")
@pytest.mark.timeout(900)
def test_both_variants_train_in_turn_on_the_same_data(tmp_path):
    file = tmp_path / "out.json"
    options = {"batch": 2, "size": 32, "steps": 2, "rounds": 3, "warm-up-steps": 1, "json": file}
    arguments = [f"--{name}={value}" for name, value in options.items()]
    result = CliRunner().invoke(bench, ["together", "resnet50", *arguments])
    assert result.exit_code == 0, result.output
    report = json.loads(file.read_text())
    assert (report["backend"], report["device"]) == (BACKEND, "cpu")
    assert report["method"] == ("fit" if BACKEND == "jax" else "train_on_batch")
    stock, tuned = report["rounds"]["stock"], report["rounds"]["tuned"]
    assert len(stock) == len(tuned) == 3
    assert min(*stock, *tuned, *report["first_step_seconds"].values()) > 0
    assert report["step_seconds"]["tuned"] == statistics.median(tuned)
    assert report["median_ratio"] == pytest.approx(
        statistics.median(s / t for s, t in zip(stock, tuned, strict=True))
    )
    # Two layers, the gradient of the input of one of them.
    assert report["measured"] == registry.stats()["measured"] == 5
    assert report["tuning_seconds"] > 0
    # Both have made the same steps from the same weights on the same batch.
    assert report["losses"]["tuned"] == pytest.approx(report["losses"]["stock"], rel=1e-3)
    assert report["losses"]["stock"] != pytest.approx(math.log(models.CLASSES), rel=1e-9)
    assert f"{BACKEND}, resnet50" in result.output
    assert "5 in " in result.output


@pytest.mark.parametrize(
    "arguments", [["resnet51"], ["resnet50", "--rounds", "0"], ["resnet50", "--steps", "x"]]
)
def test_bad_arguments_are_usage_errors(arguments):
    assert CliRunner().invoke(bench, ["together", *arguments]).exit_code == 2
