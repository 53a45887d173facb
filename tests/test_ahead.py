"""Warming up: all is measured without data, within one budget, and goes into the layers and the file."""

from __future__ import annotations

import re
from itertools import count

import keras
import numpy as np
import pytest
from click.testing import CliRunner

import keras_tunedconv
from keras_tunedconv import TunedConv2D, ahead, warm_up
from keras_tunedconv.cli.tune import tune
from keras_tunedconv.core import registry
from keras_tunedconv.core.config import config
from keras_tunedconv.core.descriptor import ConvDescriptor
from keras_tunedconv.core.library import lib
from keras_tunedconv.core.record import Provenance
from keras_tunedconv.eager import EagerConvolution

pytestmark = [
    pytest.mark.skipif(lib is None, reason="needs the compiled core"),
    pytest.mark.skipif(keras.backend.backend() == "numpy", reason="there is no bridge to the numpy backend"),
]
DIRECTIONS = ("forward", "backward_data", "backward_filter")


def model_of(*layers, shape=(8, 8, 2)):
    return keras.Sequential([keras.Input(shape), *layers])


# Each model has convolutions of its own: what oneDNN lists changes once it has run a convolution.
_filters = count(4, step=2)


def two_layers():
    filters = next(_filters)
    return model_of(
        TunedConv2D(filters, 3, padding="same", strides=2),
        keras.layers.ReLU(),
        TunedConv2D(filters, 3, groups=2),
    )


def batches(cache):
    """The batch size of each entry, by direction."""
    return {
        direction: sorted(ConvDescriptor.from_key(key).x_dims[0] for key in cache[direction])
        for direction in DIRECTIONS
    }


def test_training_afterwards_measures_nothing():
    model = two_layers()
    done = warm_up(model, [4, 2], show=False)
    assert (done.measured, done.known, done.left, done.unsupported) == (12, 0, 0, 0)
    for i in (0, 2):
        assert batches(model.layers[i].tuning) == {direction: [2, 4] for direction in DIRECTIONS}
        assert {r.provenance for r in model.layers[i].tuning.records()} == {Provenance.MEASURED}
    model.compile("sgd", "mse")
    model.fit(
        np.ones((6, 8, 8, 2), "f4"),
        np.ones((6, *model.output_shape[1:]), "f4"),
        batch_size=4,
        epochs=2,
        verbose=0,
    )
    assert registry.stats()["measured"] == 12
    assert registry.stats()["copied"] == 0
    again = warm_up(model, [2, 4], show=False)
    assert (again.measured, again.known) == (0, 12)


def test_some_directions_only():
    model = two_layers()
    assert warm_up(model, 3, directions=["backward_filter"], show=False).measured == 2
    assert {r.direction for r in model.layers[0].tuning.records()} == {"backward_filter"}
    assert warm_up(model, [3], directions="forward", show=False).measured == 2


def test_what_was_copied_is_measured():
    model = two_layers()
    model.predict(np.ones((4, 8, 8, 2), "f4"), verbose=0)
    model.predict(np.ones((3, 8, 8, 2), "f4"), verbose=0)
    assert registry.stats()["copied"] == 2
    assert warm_up(model, [3], directions=["forward"], show=False).measured == 2
    assert registry.stats()["copied"] == 0


def test_nested_shared_and_branching_models():
    shared = TunedConv2D(2, 3, padding="same")
    first, second = keras.Input((8, 8, 2)), keras.Input((6, 6, 2))
    inner = model_of(TunedConv2D(2, 1), shape=(8, 8, 2))
    model = keras.Model({"a": first, "b": second}, [inner(shared(first)), shared(second)])
    warm_up(model, [2], directions=["forward"], show=False)
    sizes = sorted(ConvDescriptor.from_key(key).x_dims[2] for key in shared.tuning.forward)
    assert sizes == [6, 8]
    assert len(inner.layers[0].tuning.forward) == 1


def test_dtypes_and_open_dims():
    model = model_of(TunedConv2D(2, 3, dtype="mixed_bfloat16"), shape=(None, None, 2))
    with pytest.raises(ValueError, match="pass input_shape"):
        warm_up(model, [2])
    warm_up(model, [2], input_shape=(7, 9, 2), directions=["forward"], show=False)
    (key,) = model.layers[0].tuning.forward
    assert key.startswith("forward|x=bfloat16:nhwc:2x2x7x9|")


class Subclassed(keras.Model):
    def __init__(self):
        super().__init__()
        self.convolution = TunedConv2D(2, 3)

    def call(self, inputs):
        return self.convolution(keras.ops.reshape(inputs, (-1, 8, 8, 2)))


def test_a_subclassed_model_that_folds_its_batch():
    model = Subclassed()
    model.build((None, 3, 8, 8, 2))
    warm_up(model, [2], input_shape=(3, 8, 8, 2), directions=["forward"], show=False)
    assert batches(model.convolution.tuning)["forward"] == [6]


def test_the_budget_is_shared_and_kept(monkeypatch):
    budgets = []
    monkeypatch.setattr(EagerConvolution, "run", lambda self, d: budgets.append(config.key_budget) or True)
    clock = iter([0.0, *(float(t) for t in range(100))])
    monkeypatch.setattr(ahead, "monotonic", lambda: next(clock))
    done = warm_up(two_layers(), [4], budget=3.5, show=False)
    # At 0, 1, 2 and 3 seconds there are 3.5, 2.5, 1.5 and 0.5 left for 6, 5, 4 and 3 tasks.
    assert budgets == pytest.approx([3.5 / 6, 2.5 / 5, 1.5 / 4, 0.5 / 3])
    assert done.left == 2


def test_an_interrupt_keeps_what_was_measured(monkeypatch):
    model, run, calls = two_layers(), EagerConvolution.run, []

    def interrupted(self, direction):
        calls.append(direction)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return run(self, direction)

    monkeypatch.setattr(EagerConvolution, "run", interrupted)
    before = config.mode, config.batch_policy, config.process_budget
    with pytest.raises(KeyboardInterrupt):
        warm_up(model, [4], show=False)
    assert len(model.layers[0].tuning.records()) == 2
    assert (config.mode, config.batch_policy, config.process_budget) == before


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"batch_sizes": []}, "batch_sizes must be integers of at least 1"),
        ({"batch_sizes": [0]}, "batch_sizes must be"),
        ({"batch_sizes": [2.5]}, "batch_sizes must be"),
        ({"batch_sizes": [2], "directions": ["sideways"]}, "directions must be some of .*backward_data"),
        ({"batch_sizes": [2], "budget": 0}, "budget must be a finite number"),
        ({"batch_sizes": [2], "budget": -1.0}, "budget must be"),
        ({"batch_sizes": [2], "budget": float("nan")}, "budget must be"),
    ],
)
def test_bad_arguments_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        warm_up(two_layers(), **arguments)
    assert registry.stats()["measured"] == 0


def test_a_model_without_tuned_layers_is_refused():
    with pytest.raises(ValueError, match="to_tuned"):
        warm_up(model_of(keras.layers.Conv2D(2, 3)), [2])


def test_it_is_public():
    assert keras_tunedconv.warm_up is warm_up


# ---- the command ----------------------------------------------------------------------------------------


def invoke(*arguments):
    return CliRunner().invoke(tune, [str(argument) for argument in arguments])


def test_the_command_writes_the_entries_into_the_file(tmp_path):
    source, target = tmp_path / "m.keras", tmp_path / "tuned.keras"
    model = two_layers()
    model.save(source)
    size = source.stat().st_size
    result = invoke(
        source, "--batch-size", 4, "--batch-size", 2, "--direction", "forward", "--output", target
    )
    assert result.exit_code == 0, result.output
    assert "4 measured, 0 known, 0 left by the budget, 0 unsupported" in result.output
    assert source.stat().st_size == size
    loaded = keras.saving.load_model(target)
    assert batches(loaded.layers[0].tuning)["forward"] == [2, 4]
    for mine, theirs in zip(model.weights, loaded.weights, strict=True):
        np.testing.assert_array_equal(mine, theirs)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["m.keras", "tuned.keras"]


def test_an_interrupted_command_saves_what_there_is(tmp_path, monkeypatch):
    path, run, calls = tmp_path / "m.keras", EagerConvolution.run, []
    two_layers().save(path)

    def interrupted(self, direction):
        calls.append(direction)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return run(self, direction)

    monkeypatch.setattr(EagerConvolution, "run", interrupted)
    result = invoke(path, "--batch-size", 4)
    assert result.exit_code == 130
    assert "Interrupted" in result.output
    assert len(keras.saving.load_model(path).layers[0].tuning.records()) == 2


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["m.keras"], "Missing option '--batch-size'"),
        (["m.keras", "--batch-size", "0"], "0 is not in the range"),
        *(
            (["m.keras", "--batch-size", "2", "--budget", bad], "budget must be a finite number")
            for bad in ("nan", "0", "-1")
        ),
        (["m.keras", "--batch-size", "2", "--output", "m.h5"], r"must be named \*.keras"),
        (["missing.keras", "--batch-size", "2"], "does not exist"),
        (["broken.keras", "--batch-size", "2"], "cannot be loaded"),
    ],
)
def test_the_command_refuses(tmp_path, monkeypatch, arguments, message):
    monkeypatch.chdir(tmp_path)
    two_layers().save("m.keras")
    (tmp_path / "broken.keras").write_bytes(b"PK no model")
    result = invoke(*arguments)
    assert result.exit_code == 2
    assert re.search(message, result.output), result.output
